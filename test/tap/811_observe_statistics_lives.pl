# Random lives of jobs: sessions enqueue, cancel, claim, roll back, prepare, write plain SQL and
# COPY, make and drop types, while processes are ended and killed and the server crashes and
# restarts.  Afterwards the counted rows are the rows, and the counters are the events.
#
# JOBQ_SEED repeats the choices, JOBQ_SECONDS is the length of a round (5, JOBQ_FULL: 60).

use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

seed();
my $seconds = $ENV{JOBQ_SECONDS} // ($ENV{JOBQ_FULL} ? 60 : 5);

my $node = jobq_server('lives', 'jobq.max_sql_workers = 3', 'max_prepared_transactions = 20', 'restart_after_crash = on', 'fsync = off',
	'max_connections = 60', 'jobq.max_stat_types = 16');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE FUNCTION noop(p jsonb) RETURNS void LANGUAGE sql AS 'SELECT';
CREATE FUNCTION slow(p jsonb) RETURNS void LANGUAGE sql AS 'SELECT pg_sleep(random() * 0.2)';
CREATE FUNCTION fails(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF random() < 0.4 THEN RAISE 'no'; ELSIF random() < 0.1 THEN PERFORM jobq.skip('so'); ELSIF random() < 0.1 THEN PERFORM jobq.snooze('50ms'); END IF;
END $$;
CREATE FUNCTION grows(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM jobq.enqueue('noop') FROM generate_series(1, 3);
  BEGIN PERFORM jobq.enqueue('noop'); RAISE 'x'; EXCEPTION WHEN raise_exception THEN NULL; END;
END $$;
SELECT jobq.create_job_type('noop', 'noop(jsonb)'), jobq.create_job_type('slow', 'slow(jsonb)'),
       jobq.create_job_type('fails', 'fails(jsonb)', max_attempts => 3, backoff => 'fixed', backoff_base => '20ms'),
       jobq.create_job_type('grows', 'grows(jsonb)'), jobq.create_job_type('held', 'noop(jsonb)'), jobq.create_job_type('pulled', max_attempts => 2),
       jobq.create_job_type('tool', command => ARRAY['/bin/sh', '-c', 'exit {code}'], max_attempts => 2, backoff_base => '20ms',
                            options => '{"output": "none"}');
SELECT jobq.alter_job_type(name, options => options || '{"events": "all"}'), jobq.pause_job_type('held', 'test') FROM jobq.job_types;
CREATE FUNCTION life() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  types text[] := '{noop,slow,fails,grows,held,pulled,held}';
  t text := types[1 + floor(random() * 7)::int];
  c record;
BEGIN
  CASE floor(random() * 10)::int
    WHEN 0 THEN PERFORM jobq.enqueue(t) FROM generate_series(1, (random() * 20)::int);
    WHEN 1 THEN PERFORM jobq.enqueue(t, delay => '300ms');
    WHEN 2 THEN
      BEGIN PERFORM jobq.enqueue(t); RAISE 'x'; EXCEPTION WHEN raise_exception THEN PERFORM jobq.enqueue(t); END;
    WHEN 3 THEN PERFORM jobq.cancel_job(q.id) FROM (SELECT id FROM jobq.queue ORDER BY random() LIMIT 1) q;
    WHEN 4 THEN
      FOR c IN SELECT * FROM jobq.claim('{pulled}', max_jobs => 3) LOOP
        CASE floor(random() * 3)::int
          WHEN 0 THEN PERFORM jobq.complete(c.id, c.lease_token);
          WHEN 1 THEN PERFORM jobq.fail(c.id, c.lease_token, 'no');
          ELSE PERFORM jobq.skip_job(c.id, c.lease_token);
        END CASE;
      END LOOP;
    WHEN 5 THEN PERFORM jobq.enqueue(t, unique_key => (random() * 5)::int::text, on_conflict => 'replace');
    WHEN 6 THEN PERFORM jobq.retry_job(d.id) FROM (SELECT id FROM jobq.dead_letters ORDER BY random() LIMIT 1) d;
    WHEN 7 THEN PERFORM jobq.enqueue(t, after => ARRAY[jobq.enqueue('noop')]);
    WHEN 8 THEN PERFORM jobq.enqueue('tool', jsonb_build_object('code', floor(random() * 2)::int::text));
    ELSE PERFORM jobq.purge_dead_letters('fails', max_jobs => 2);
  END CASE;
EXCEPTION WHEN OTHERS THEN
  -- a job that another session changes, say: its part counts nothing
END $$;
-- Types that come and go: their entries are given to others.  A job that is enqueued beside the
-- drop of its type stays, and so does an entry for it: not here.
CREATE FUNCTION churn() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  t text := 'churn' || floor(random() * 4);
BEGIN
  PERFORM pg_advisory_xact_lock(hashtext(t));
  CASE floor(random() * 3)::int
    WHEN 0 THEN PERFORM jobq.create_job_type(t);
    WHEN 1 THEN PERFORM jobq.enqueue(t) FROM generate_series(1, 3);
    ELSE PERFORM jobq.drop_job_type(t, force => true);
  END CASE;
EXCEPTION WHEN OTHERS THEN
  -- it is there, or is not
END $$;
CREATE TABLE copied (n int);
CREATE FUNCTION plain(dir text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  file text := format('%s/%s.copy', dir, pg_backend_pid());
BEGIN
  CASE floor(random() * 4)::int
    WHEN 3 THEN
      EXECUTE format('COPY (DELETE FROM jobq.queue WHERE id IN (SELECT id FROM jobq.queue WHERE status IN (''pending'', ''retry'')'
                     ' ORDER BY random() LIMIT 3 FOR UPDATE SKIP LOCKED) RETURNING *) TO %L', file);
      EXECUTE format('COPY jobq.queue FROM %L', file);
      INSERT INTO copied VALUES (1);
    WHEN 0 THEN DELETE FROM jobq.queue WHERE id IN (SELECT id FROM jobq.queue WHERE status = 'pending' ORDER BY random() LIMIT 3 FOR UPDATE SKIP LOCKED);
    WHEN 1 THEN UPDATE jobq.queue SET status = CASE status WHEN 'pending' THEN 'retry'::jobq.job_status ELSE 'pending' END
      WHERE id IN (SELECT id FROM jobq.queue WHERE status IN ('pending', 'retry') ORDER BY random() LIMIT 3 FOR UPDATE SKIP LOCKED);
    ELSE DELETE FROM jobq.dead_letters WHERE id IN (SELECT id FROM jobq.dead_letters LIMIT 2 FOR UPDATE SKIP LOCKED);
  END CASE;
EXCEPTION WHEN OTHERS THEN
  -- the same
END $$;
END

sub scalar_of { return $node->safe_psql('postgres', $_[0]); }
sub pick { return $_[ int(rand(@_)) ]; }

# The counted rows of each type beside those of jobq.count_by_status.
my $differences = q{
  SELECT coalesce(string_agg(concat_ws(' ', t.name, s.status, coalesce(c.count, 0), s.n), ', '), '') FROM jobq.job_types t
    JOIN jobq.stat_job_types x ON x.job_type = t.name
    JOIN LATERAL (VALUES ('pending', x.pending), ('blocked', x.blocked), ('retry', x.retry), ('running', x.running), ('error', x.dead)) s(status, n) ON true
    LEFT JOIN LATERAL jobq.count_by_status(t.name) c ON c.status::text = s.status
   WHERE t.name !~ '^churn' AND coalesce(c.count, 0) IS DISTINCT FROM s.n};

# The conductor may still release a job that is held.
sub counts_are_rows
{
	my ($what) = @_;

	wait_for_sql($node, "SELECT ($differences) = ''", $what) or note scalar_of($differences);
	return;
}

# The counters beside the events since a time.
sub counters_and_events
{
	my ($since) = @_;

	return scalar_of(<<"END");
SELECT coalesce(string_agg(concat_ws(' ', t.name, v.what, v.n, e.n), ', '), '') FROM jobq.job_types t JOIN jobq.stat_job_types x ON x.job_type = t.name,
       LATERAL (VALUES ('enqueued', x.enqueued), ('started', x.started), ('completed', x.completed), ('skipped', x.skipped), ('cancelled', x.cancelled), ('dead', x.died), ('retry_scheduled', x.retried),
                       ('failed', (SELECT sum(f.value::int) FROM jsonb_each_text(x.failures) f))) v(what, n),
       LATERAL (SELECT count(*) FROM jobq.events e WHERE e.job_type = t.name AND e.ts > '$since' AND CASE v.what
         WHEN 'enqueued' THEN (e.type = 'enqueued' AND NOT e.data ? 'replaced') OR (e.type = 'retried' AND e.data->>'from' = 'error')
         WHEN 'started' THEN e.type = CASE t.kind WHEN 'pull' THEN 'claimed' ELSE 'started' END
         ELSE e.type = v.what END) e(n)
 WHERE t.name !~ '^churn' AND v.n IS DISTINCT FROM e.n
END
}

my $dir = PostgreSQL::Test::Utils::tempdir();
# Each call begins its random numbers with one of pgbench, which --random-seed determines.
my $draw = "\\set r random(0, 1000000)\n";
my $life = "${draw}SELECT setseed(:r / 1e6), life();\n";
append_to_file("$dir/life", $life);
append_to_file("$dir/abort", "BEGIN;\n${life}ROLLBACK;\n");
append_to_file("$dir/savepoint", "BEGIN;\n${life}SAVEPOINT a;\n${life}ROLLBACK TO a;\n${life}COMMIT;\n");
append_to_file("$dir/prepare", "BEGIN;\nSELECT jobq.enqueue('held') FROM generate_series(1, 2);\nPREPARE TRANSACTION 'p:client_id';\n"
	. "\\sleep 20 ms\n\\if random(1, 2) = 1\nCOMMIT PREPARED 'p:client_id';\n\\else\nROLLBACK PREPARED 'p:client_id';\n\\endif\n");
append_to_file("$dir/churn", "${draw}SELECT setseed(:r / 1e6), churn();\n");
append_to_file("$dir/plain", "${draw}SELECT setseed(:r / 1e6), plain('$dir');\n");

# Starts sessions that run the scripts for a while; returns the harness.
sub sessions
{
	my (@scripts) = @_;

	return IPC::Run::start([ 'pgbench', '-n', '-c', 6, '-T', $seconds, '--random-seed', int(rand(2**31)), '--max-tries', 20, '-p', $node->port,
			'-h', $node->host, (map { ('-f', "$dir/$_") } @scripts), 'postgres' ], '>', "$dir/out", '2>&1');
}

# Waits for the end of the sessions, and ends the transactions that they have prepared.
sub end_sessions
{
	my ($harness) = @_;

	$harness->finish;
	note slurp_file("$dir/out");
	$node->poll_query_until('postgres', 'SELECT true') or die 'the server is gone';
	foreach my $gid (split /\n/, scalar_of('SELECT gid FROM pg_prepared_xacts'))
	{
		scalar_of(pick("COMMIT PREPARED '$gid'", "ROLLBACK PREPARED '$gid'"));
	}
	return;
}

# Waits until nothing runs or becomes due.
sub come_to_rest
{
	wait_for_sql($node, q{SELECT NOT EXISTS (SELECT FROM jobq.jobs WHERE job_type !~ '^(held|pulled|churn)' AND status IN ('pending', 'retry', 'running')
    AND (status <> 'pending' OR scheduled_for < now() + '1min'))}, 'the jobs have ended');
	return;
}

wait_dispatcher($node, 'postgres', 'the dispatcher runs');
my $since = scalar_of('SELECT clock_timestamp()');

foreach my $round (1 .. 2)
{
	my $harness = sessions(qw(life abort savepoint prepare churn));

	end_sessions($harness);
	come_to_rest();
	counts_are_rows("round $round: the rows");
	is(counters_and_events($since), '', "round $round: the counters are the events");
	cmp_ok(scalar_of(q{SELECT sum(completed) FROM jobq.stat_job_types}), '>', 50, "round $round: jobs have run");
	cmp_ok(scalar_of(q{SELECT count(*) FROM jobq.job_types}), '>', 16, "round $round: types have come and gone");
	is(scalar_of(q{SELECT count(*) FROM jobq.stat_job_types WHERE job_type IS NULL}), '0', "round $round: none share an entry");
	$node->restart if $round == 1;
}

# Sends a signal to one process of the kind, when one is there; returns how many it has hit.
sub hit
{
	my ($signal, $kind) = @_;

	foreach (1 .. 100 * $PostgreSQL::Test::Utils::timeout_default)
	{
		my $pid = scalar_of("SELECT pid FROM pg_stat_activity WHERE backend_type = '$kind' AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1");

		return 1 if $pid ne '' && kill $signal, $pid;
	}
	return 0;
}

my @processes = ('jobq dispatcher', 'jobq sql worker', 'jobq exec worker', 'jobq conductor');

# Ends processes while sessions write: one of each kind, then random ones, as often as they
# come back.
sub end_processes
{
	my ($what, $between) = @_;
	my %ended;
	my $until = time() + $seconds;

	for (my $n = 0; $n < @processes || time() < $until; $n++)
	{
		my $kind = $processes[$n] // pick(@processes, 'jobq sql worker');

		$ended{$kind} += hit('TERM', $kind);
		$between->($n);
		scalar_of('SELECT pg_sleep(0.3), count(*) FROM jobq.stat_job_types');
	}
	is(join(', ', grep { !$ended{$_} } @processes), '', "$what: processes of each kind were ended");
	return;
}

# ended processes
my $harness = sessions(qw(life abort savepoint prepare churn));
end_processes('calls', sub { });
end_sessions($harness);
come_to_rest();
counts_are_rows('the rows, after ended processes');
is(counters_and_events($since), '', 'the counters are the events, after ended processes');

# crashes in the middle: the counters begin at 0
foreach my $kind (pick(@processes), 'client backend')
{
	my $start = scalar_of('SELECT stats_reset FROM jobq.stat_dispatcher');

	$harness = sessions(qw(life abort savepoint prepare churn));
	wait_for_sql($node, "SELECT count(*) > 3 FROM pg_stat_activity WHERE backend_type = 'client backend'", 'sessions write');
	wait_for_sql($node, "SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type = '$kind'", "a $kind is there");
	is(hit('KILL', $kind), 1, "a $kind is killed");
	end_sessions($harness);
	wait_for_sql($node, "SELECT stats_reset > '$start' FROM jobq.stat_dispatcher", "a crash of a $kind");
	end_sessions(sessions(qw(life abort savepoint prepare churn)));
	come_to_rest();
	counts_are_rows("the rows, after a crash of a $kind");
	is(counters_and_events(scalar_of('SELECT stats_reset FROM jobq.stat_dispatcher')), '', "the counters are the events, after a crash of a $kind");
}

# plain SQL and ended processes, and counts while sessions write
$harness = sessions(qw(life abort savepoint prepare churn plain));
end_processes('plain SQL', sub { scalar_of('BEGIN; TRUNCATE jobq.dead_letters; COMMIT') if $_[0] % 3 == 0 });
end_sessions($harness);
come_to_rest();
counts_are_rows('the rows, after plain SQL, ended processes and counts beside writes');
cmp_ok(scalar_of('SELECT count(*) FROM copied'), '>', 0, 'COPY was among it');
$node->stop;
done_testing();
