# jobq.wait_for: its result, its timing, and the session state afterwards.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('wait', 'max_connections = 100');
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION jobq');
sleeper_types($node, 'postgres');
$node->safe_psql('postgres', <<'END');
CREATE FUNCTION echo(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_sleep(coalesce((p->>'seconds')::float8, 0));
  RETURN p;
END $$;
CREATE FUNCTION broken(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'broken'; END $$;
CREATE FUNCTION waiter(p jsonb) RETURNS jsonb LANGUAGE sql AS $$
  SELECT to_jsonb(jobq.wait_for((p->>'id')::uuid, '5s')) $$;
CREATE TABLE gate (open text);
CREATE FUNCTION gated(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  WHILE NOT EXISTS (SELECT FROM public.gate WHERE open = p->>'gate') LOOP PERFORM pg_sleep(0.01); END LOOP;
  RETURN p;
END $$;
SELECT jobq.create_job_type('echo', 'echo(jsonb)');
SELECT jobq.create_job_type('gated', 'gated(jsonb)');
SELECT jobq.create_job_type('forget', 'gated(jsonb)', keep_completed => '0');
SELECT jobq.create_job_type('waiter', 'waiter(jsonb)', max_attempts => 1);
SELECT jobq.create_job_type('broken', 'broken(jsonb)', max_attempts => 2, backoff_base => '0.1s', backoff => 'fixed');
SELECT jobq.create_job_type('lost', 'broken(jsonb)', max_attempts => 1, keep_dead => '0');
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub enqueue
{
	my ($type, $payload, $more) = @_;

	return $node->safe_psql('postgres',
		sprintf("SELECT jobq.enqueue('%s', '%s'%s)", $type, $payload // '{}', $more // ''));
}

sub wait_for
{
	my ($id, $timeout, $columns) = @_;

	return $node->safe_psql('postgres', 'SELECT ' . ($columns // '(w).status, (w).result') .
		  " FROM jobq.wait_for('$id', '$timeout') w");
}

# The same, without a time limit: one call waits for at most 20 seconds.
sub ended
{
	my ($id, $columns) = @_;
	my $answer = '';

	foreach (1 .. 10)
	{
		$answer = wait_for($id, '20s', $columns);
		last if $answer !~ /^\|*$/;
	}
	return $answer;
}

# A session that waits for that job, call after call.
sub waiter
{
	my ($id) = @_;
	my $s = { out => '' };

	$s->{run} = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'),
			('-c', "SELECT (w).status, (w).result, (w).job_type, (w).payload FROM jobq.wait_for('$id') w") x 10 ],
		'<', \undef, '>', \$s->{out});
	return $s;
}

# Its first answer.
sub heard
{
	my ($s) = @_;

	$s->{run}->finish;
	return (grep { !/^\|*$/ } split /\n/, $s->{out})[0];
}

sub wait_for_waiters
{
	my ($n, $id) = @_;

	return wait_for_sql($node, "SELECT count(*) = $n FROM pg_stat_activity WHERE query LIKE 'SELECT (w).%$id%' AND state = 'active'"
		  . " AND pid <> pg_backend_pid() AND wait_event IN ('Extension', 'JobqWaitFor')", "$n sessions wait");
}

# ---------- answers ----------

is(ended(enqueue('echo', '{"a": 1}')), 'completed|{"a": 1}', 'a completed job, with its result');
my $done = enqueue('echo', '{"a": 2}');
wait_status($node, 'postgres', $done, 'completed');
is(wait_for($done, '0'), 'completed|{"a": 2}', 'one that had ended before');
is($node->safe_psql('postgres', "SELECT jobq.wait_for('$done')::text = j::text FROM jobq.jobs j WHERE id = '$done'"),
	't', 'the row is the row of jobq.jobs');
is(ended(enqueue('broken'), '(w).status, (w).attempts, (w).error_msg'), 'error|2|broken',
	'a retry is no end, a dead letter is');
my $forgotten = enqueue('forget', '{"gate": "forget"}');
my $waiter = waiter($forgotten);
wait_for_waiters(1, $forgotten);
$node->safe_psql('postgres', q{INSERT INTO gate VALUES ('forget')});
is(heard($waiter), 'completed||forget|{"gate": "forget"}', 'a job that is not kept is answered from memory');
is(ended(enqueue('lost'), '(w).status, (w).job_type'), 'error|lost', 'so is a dead letter that is not kept');
my $gone = enqueue('forget', '{"gate": "forget"}');
wait_for_sql($node, "SELECT count(*) = 0 FROM jobq.jobs WHERE id = '$gone'", 'a job has ended without a trace');
is(ended($gone, '(w).status, (w).job_type, (w).result IS NULL'), 'completed|forget|t', 'memory still knows it');

# A session that waits is woken; by itself it looks a second after its last look.
my $soonest = 'inf';
foreach my $round (1 .. 5)
{
	my $woken = enqueue('gated', qq({"gate": "woken $round"}));

	$waiter = waiter($woken);
	wait_for_waiters(1, $woken);
	my $took = seconds_of { $node->safe_psql('postgres', "INSERT INTO gate VALUES ('woken $round')"); heard($waiter) };
	$soonest = $took if $took < $soonest;
	last if $soonest < 0.4;
}
cmp_ok($soonest, '<', 0.4, sprintf 'a session that waits is woken (%.2f s)', $soonest);

# an end rolled back to a savepoint does not count
$node->safe_psql('postgres', "SELECT jobq.pause_job_type('forget')");
$gone = enqueue('forget', '{"gate": "forget"}');
$node->safe_psql('postgres', "BEGIN; SAVEPOINT a; SELECT jobq.cancel_job('$gone'); ROLLBACK TO a; COMMIT");
$node->safe_psql('postgres', "SELECT jobq.resume_job_type('forget')");
wait_for_sql($node, "SELECT count(*) = 0 FROM jobq.jobs WHERE id = '$gone'", 'it ran after all');
is(ended($gone, '(w).status'), 'completed', 'memory knows only how it ended');

my $seconds = seconds_of { is(wait_for(enqueue('echo', '{"seconds": 600}'), '0.5s', 'w IS NULL'), 't', 'NULL when the time is up') };
cmp_ok($seconds, '>=', 0.5, 'not before');
cmp_ok($seconds, '<', 75, sprintf 'and not long after (%.1f s)', $seconds);

# ---------- no such job ----------

sub error_of_wait
{
	my ($id, $timeout, $role) = @_;
	my (undef, undef, $err) = $node->psql('postgres',
		'\\set VERBOSITY verbose' . "\nSELECT jobq.wait_for('$id', '$timeout')", extra_params => [ '-U', $role // 'postgres' ]);

	return join '|', map { $err =~ /^(?:psql:\S+ )?$_: +(.*)$/m ? $1 : () } qw(NOTICE ERROR DETAIL);
}

my $none = '00000000-0000-7000-8000-000000000000';
my $refusal;
foreach (1 .. 3)				# or more often on a machine that stands still
{
	$seconds = seconds_of { $refusal = error_of_wait($none, '20s') };
	last if $seconds < 15;
}
is($refusal, qq{P0002: job "$none" does not exist}, 'a job that there is not is an error');
cmp_ok($seconds, '<', 15, sprintf 'at once (%.1f s)', $seconds);
$node->safe_psql('postgres', q{CREATE ROLE support LOGIN; SELECT jobq.grant_access('support', 'read', 'acme')});
is(error_of_wait($done, '20s', 'support'), qq{P0002: job "$done" does not exist}, 'so is one that the caller may not see');
is(error_of_wait($gone, '20s', 'support'), qq{P0002: job "$gone" does not exist}, 'and one of those that memory knows');
is(error_of_wait($none, '20.001s'),
	qq{00000: argument "timeout": "00:00:20.001" counts as 20 s|P0002: job "$none" does not exist},
	'one notice for a timeout that is too long');
my (undef, undef, $notices) = $node->psql('postgres', "SELECT jobq.wait_for('$done', '20s'), jobq.wait_for('$done', '1min')");
is(() = $notices =~ /NOTICE/g, 1, 'none for 20 seconds');

# a job that is removed while a session waits for it
my $purged = enqueue('echo', '{}', ", tenant => 'leaves', delay => '1h'");
$waiter = $node->background_psql('postgres', on_error_stop => 0);
$waiter->query_until(qr/waiting/, "\\echo waiting\nSELECT 'purged' FROM jobq.wait_for('$purged');\n");
wait_for_sql($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE '%$purged%' AND state = 'active'"
	  . " AND pid <> pg_backend_pid() AND wait_event IN ('Extension', 'JobqWaitFor')", 'a session waits');
$node->safe_psql('postgres', q{SELECT jobq.purge_tenant('leaves')});
$waiter->query('SELECT 1');
like($waiter->{stderr}, qr/ERROR:  job "$purged" does not exist\nDETAIL:  It was there when wait_for began/, 'it gets an error');
$waiter->quit;

# memory holds the last 512
$node->safe_psql('postgres', q{INSERT INTO gate VALUES ('many'); SELECT jobq.enqueue_many('forget', array_fill('{"gate": "many"}'::jsonb, ARRAY[600]))});
wait_for_sql($node, q{SELECT count(*) = 0 FROM jobq.jobs WHERE job_type = 'forget'}, '600 jobs have ended without a trace');
is(error_of_wait($gone, '20s'), qq{P0002: job "$gone" does not exist}, 'a job that memory has forgotten is no job');

my $later = enqueue('echo', '{}', ", delay => '1h'");
my $session = $node->background_psql('postgres');
$session->query_until(qr/waiting/, "\\echo waiting\nSELECT (jobq.wait_for('$later')).status;\n");
wait_for_sql($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE 'SELECT (jobq.wait_for%' AND state = 'active'"
	  . " AND wait_event IN ('Extension', 'JobqWaitFor')", 'a session waits for a job that is not due');
$node->safe_psql('postgres', "SELECT jobq.cancel_job('$later', 'no need')");
is($session->query_safe('SELECT 1'), "cancelled\n1", 'it returns the cancel');
$session->quit;

# a retried dead letter is live again
my $dead = $node->safe_psql('postgres', "SELECT id FROM jobq.jobs WHERE status = 'error' LIMIT 1");
$node->safe_psql('postgres', "SELECT jobq.retry_job('$dead')");
is(ended($dead, '(w).status, (w).runs'), 'error|4', 'a retried one is waited for again');

# ---------- refusals ----------

sqlstate_is($node, 'postgres', "BEGIN ISOLATION LEVEL $_; SELECT jobq.wait_for('$done')", '25001', "$_")
  foreach 'REPEATABLE READ', 'SERIALIZABLE';
sqlstate_is($node, 'postgres', "SELECT jobq.wait_for(jobq.enqueue('echo'))", '25001', 'a job of the same statement');
sqlstate_is($node, 'postgres',
	"BEGIN; SELECT jobq.enqueue('echo') AS id \\gset\nSELECT 1; SELECT jobq.wait_for(:'id')", '25001',
	'a job of the same transaction');
sqlstate_is($node, 'postgres',
	"BEGIN; SELECT (SELECT id FROM jobq.enqueue_many('echo', array_fill('{}'::jsonb, ARRAY[6000])) id OFFSET 5999) AS id \\gset\n"
	  . "SELECT jobq.wait_for(:'id')", '25001', 'also the last of thousands');
sqlstate_is($node, 'postgres', $_->[0], $_->[1], $_->[0])
  foreach [ 'SELECT jobq.wait_for(NULL)', '22004' ], [ "SELECT jobq.wait_for('$done', NULL)", '22004' ],
  [ "SELECT jobq.wait_for('$done', '-1s')", '22023' ],
  [ "SELECT jobq.wait_for('$done', '1000 years')", '00000' ];
is(ended(enqueue('waiter', "{\"id\": \"$done\"}"), '(w).error_code'), '55000', 'not in a handler');
$node->safe_psql('postgres', 'CREATE ROLE nobody LOGIN');
sqlstate_is($node, 'postgres', "SET ROLE nobody; SELECT jobq.wait_for('$done')", '42501', 'not without the right');
$node->safe_psql('postgres', 'GRANT EXECUTE ON FUNCTION jobq.wait_for TO nobody');
is($node->safe_psql('postgres', "SET ROLE nobody; SELECT (jobq.wait_for('$done')).status"), 'completed', 'only that one right');

# ---------- many ----------

my $slow = enqueue('gated', '{"gate": "slow"}');
my @sessions = map { waiter($slow) } 1 .. 70;
wait_for_waiters(70, $slow);
$node->safe_psql('postgres', q{INSERT INTO gate VALUES ('slow')});
is(scalar(grep { heard($_) =~ /^completed\|/ } @sessions), 70, 'more sessions than places in the list: all return');

# ---------- early ends, and the session afterwards ----------

# An error while wait_for reads ends its subtransaction, and no more: the transaction of the
# caller goes on, and commits.
my $due = enqueue('echo', '{"a": 6}', ", delay => '1h'");
$node->safe_psql('postgres', <<"END");
DO \$\$
BEGIN
  ALTER VIEW jobq.jobs RENAME TO elsewhere;
  BEGIN
    PERFORM jobq.wait_for('$due', '20s');
  EXCEPTION WHEN undefined_table THEN
    CREATE TABLE handled ();
  END;
  ALTER VIEW jobq.elsewhere RENAME TO jobs;
END \$\$;
END
is($node->safe_psql('postgres', q{SELECT to_regclass('handled')}), 'handled', 'an error of wait_for can be caught');

my $endless = enqueue('echo', '{"seconds": 600}');
foreach my $round (1 .. 70)
{
	my ($rc, undef, $err) = $node->psql('postgres', "SET statement_timeout = '20ms'; SELECT jobq.wait_for('$endless')");
	$rc == 3 && $err =~ /statement timeout/ or fail("round $round: $err");
}
$session = $node->background_psql('postgres');
$session->query_until(qr/waiting/, "\\echo waiting\n" . "SELECT 'answer ' || (jobq.wait_for('$endless', '20s')).status;\n" x 10);
wait_for_sql($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE '%answer%wait_for%' AND pid <> pg_backend_pid()"
	  . " AND wait_event IN ('Extension', 'JobqWaitFor')", 'a session waits');
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)"
		  . " WHERE a.query LIKE '%answer%wait_for%' AND pid <> pg_backend_pid() AND l.locktype = 'relation'"),
	0, 'and holds no lock on a table');
is(ended(enqueue('echo', '{"a": 4}')), 'completed|{"a": 4}', 'after many cancelled waits others are answered');
$node->safe_psql('postgres', "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%answer%wait_for%' AND pid <> pg_backend_pid()");
eval { $session->quit };
is(ended(enqueue('echo', '{"a": 5}')), 'completed|{"a": 5}', 'a terminated session left no trace');

unlike(slurp_file($node->logfile), qr/PANIC|TRAP|exited with exit code [2-9]|terminated by signal/, 'nothing has crashed');
$node->stop;

done_testing();
