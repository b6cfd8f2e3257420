# A crash of the server: only the job that caused it is charged; all processes of jobq come back.
# This test crashes its server.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('crash', 'restart_after_crash = on', 'jobq.max_sql_workers = 4');
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION jobq');
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

# Handlers that end their process as a bug in C would; waiter waits in its
# transaction for a row of gate.
my $dir = PostgreSQL::Test::Utils::tempdir();
$node->safe_psql('postgres', <<"END");
CREATE TABLE ledger (job uuid, what text);
CREATE TABLE gate (name text);
CREATE FUNCTION note(what text) RETURNS void LANGUAGE sql AS
  'INSERT INTO public.ledger SELECT id, what FROM jobq.current_job()';
CREATE FUNCTION crash_now() RETURNS int LANGUAGE plpgsql PARALLEL SAFE AS \$\$
BEGIN
  EXECUTE 'COPY (SELECT 1) TO PROGRAM ''kill -SEGV \$PPID''';
  PERFORM pg_sleep(60);
  RETURN 1;
END \$\$;
CREATE FUNCTION crasher(p jsonb) RETURNS void LANGUAGE plpgsql AS \$\$
BEGIN
  PERFORM public.note('crasher');
  IF p ? 'crash' THEN PERFORM public.crash_now(); END IF;
END \$\$;
CREATE FUNCTION parallel_crasher(p jsonb) RETURNS void LANGUAGE plpgsql AS \$\$
BEGIN
  PERFORM set_config(name, 'on', true) FROM pg_settings
    WHERE name IN ('force_parallel_mode', 'debug_parallel_query');
  EXECUTE 'SELECT public.crash_now() FROM pg_class LIMIT 1';
END \$\$;
CREATE FUNCTION waiter(p jsonb) RETURNS void LANGUAGE plpgsql AS \$\$
BEGIN
  PERFORM public.note('waiter');
  WHILE NOT EXISTS (SELECT FROM public.gate WHERE name = p->>'gate') LOOP
    PERFORM pg_sleep(0.01);
  END LOOP;
END \$\$;
SELECT jobq.create_job_type('crasher', 'crasher(jsonb)', max_attempts => 5, backoff => 'fixed', backoff_base => '10ms');
SELECT jobq.create_job_type('parallel', 'parallel_crasher(jsonb)', max_attempts => 1);
SELECT jobq.create_job_type('waiter', 'waiter(jsonb)', max_attempts => 1);
SELECT jobq.create_job_type('tool', command => ARRAY['/bin/sh', '$dir/tool', '{gate}'], backoff => 'fixed',
  backoff_base => '10ms', options => '{"output": "none"}');
END
append_to_file("$dir/tool", "echo run >>$dir/runs; while [ ! -e $dir/\$1 ]; do sleep 0.05; done\n");

sub enqueue
{
	my ($type, $payload) = @_;

	return $node->safe_psql('postgres', "SELECT jobq.enqueue('$type', '$payload')");
}

# Of a paused type: the crash may end the session that resumes it, not the session that enqueues.
sub enqueue_crash
{
	my ($type, $call) = @_;

	$node->safe_psql('postgres', "SELECT jobq.pause_job_type('$type')");
	my $id = $node->safe_psql('postgres', "SELECT $call");
	$node->psql('postgres', "SELECT jobq.resume_job_type('$type')");
	return $id;
}

sub fate
{
	my ($id) = @_;

	return $node->safe_psql('postgres',
		"SELECT concat_ws(' ', status, attempts, error_code) FROM jobq.jobs WHERE id = '$id'");
}

sub crashes
{
	my @lines = slurp_file($node->logfile) =~ /(all server processes terminated; reinitializing)/g;

	return scalar @lines;
}

sub running
{
	my (@ids) = @_;
	my $list = join ', ', map { "'$_'" } @ids;

	return wait_for_sql($node, "SELECT count(*) = " . @ids . " FROM jobq.jobs WHERE id IN ($list) AND status = 'running'",
		@ids . ' in flight');
}

# Kills a session without relation to jobq, and waits until the server is back.
sub kill_client
{
	my $offset = -s $node->logfile;
	my $victim = $node->background_psql('postgres', on_error_stop => 0);

	kill 'KILL', scalar $victim->query('SELECT pg_backend_pid()');
	$node->wait_for_log(qr/reinitializing.*database system is ready to accept connections/s, $offset);
	$victim->quit;
	return;
}

# ---------- a job that crashes the server ----------

my @innocent = map { enqueue('waiter', '{"gate": "first"}') } 1 .. 2;
running(@innocent);
my ($launcher) = jobq_pids($node, 'launcher');
my $dispatcher = dispatcher($node, 'postgres');
my $crasher = enqueue_crash('crasher', q{jobq.enqueue('crasher', '{"crash": true}')});
wait_status($node, 'postgres', $crasher, 'error', 'a job that crashes the server ends as a dead letter');
is(fate($crasher), 'error 2 server_crash', 'after two crashes, with attempts left');
like($node->safe_psql('postgres', "SELECT error_msg FROM jobq.jobs WHERE id = '$crasher'"), qr/crash/, 'it says why');
is(crashes(), 2, 'it has crashed the server twice');
is($node->safe_psql('postgres', "SELECT string_agg(type || ' ' || coalesce(data->>'code', ''), ', ' ORDER BY id)"
		  . " FROM jobq.events WHERE job_id = '$crasher'"),
	'failed server_crash, failed server_crash, dead ', 'its events tell the story');
running(@innocent);
$node->safe_psql('postgres', q{INSERT INTO gate VALUES ('first')});
wait_status($node, 'postgres', $_, 'completed', 'an innocent job in flight completes') foreach @innocent;
is(fate($_), 'completed 1', 'and was not charged') foreach @innocent;
is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT job) FROM ledger'), '2|2', '!its effects are there once');

wait_dispatcher($node, 'postgres', 'the dispatcher is another one', $dispatcher);
my ($new_launcher) = jobq_pids($node, 'launcher');
isnt($new_launcher, $launcher, 'so is the launcher');

# ---------- in a batch of short jobs ----------

$node->safe_psql('postgres', q{TRUNCATE ledger});
$node->safe_psql('postgres', q{SELECT jobq.enqueue_many('crasher', array_fill('{}'::jsonb, ARRAY[200]))});
wait_for_sql($node, 'SELECT count(*) = 200 FROM ledger', 'short jobs have run');
enqueue_crash('crasher', q{jobq.enqueue_many('crasher',
  array_fill('{}'::jsonb, ARRAY[20]) || '{"crash": true}'::jsonb || array_fill('{}'::jsonb, ARRAY[20]))});
wait_for_sql($node, q{SELECT count(*) = 0 FROM jobq.queue}, 'nothing is left');
is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT job) FROM ledger'), '240|240', '!each of its company has run once');
is($node->safe_psql('postgres', q{SELECT max(attempts) FROM jobq.jobs WHERE job_type = 'crasher' AND status = 'completed'}),
	'1', 'and none was charged');
is($node->safe_psql('postgres', q{SELECT count(*), min(attempts), min(error_code) FROM jobq.jobs
  WHERE job_type = 'crasher' AND status = 'error' AND id <> '} . $crasher . q{'}), '1|2|server_crash', 'the crasher was');
is(crashes(), 4, 'two more crashes');

# ---------- a crash that no job has caused ----------

$node->safe_psql('postgres', q{TRUNCATE ledger});
@innocent = map { enqueue('waiter', '{"gate": "second"}') } 1 .. 3;
running(@innocent);
kill_client();
running(@innocent);
$node->safe_psql('postgres', q{INSERT INTO gate VALUES ('second')});
wait_status($node, 'postgres', $_, 'completed', 'a job in flight when a client was killed completes') foreach @innocent;
is(fate($_), 'completed 1', 'and was not charged') foreach @innocent;
is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT job) FROM ledger'), '3|3', '!its effects are there once');

# ---------- a running job with a full concurrency key when the server is back ----------

my $most_together = 'SELECT max(n) FROM (SELECT count(*) AS n FROM ledger GROUP BY what) t';

# A suspect of the crash and, within or beyond the rows that its lane remembers,
# another job that holds its key.
sub stays_a_suspect
{
	my ($what, $before) = @_;

	$node->safe_psql('postgres', 'TRUNCATE ledger, gate');
	my $suspect = $node->safe_psql('postgres', q{SELECT jobq.enqueue('quick', '{"gate": "suspect"}', concurrency_key => 'k')});
	running($suspect);
	my $holder = $node->safe_psql('postgres', q{SELECT jobq.enqueue('waiter', '{"gate": "holder"}', concurrency_key => 'k', priority => 10)});
	$node->safe_psql('postgres', "SELECT jobq.pause_job_type('quick');"
		  . " SELECT jobq.enqueue('quick') FROM generate_series(1, $before);"
		  . " UPDATE jobq.queue SET position = position - interval '1 hour' WHERE id NOT IN ('$suspect', '$holder')");
	kill_client();
	running($holder);
	$node->safe_psql('postgres', "SELECT jobq.resume_job_type('quick'); INSERT INTO gate VALUES ('suspect')");
	# again if one of them was slow: all of them then run alone for a while
	foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		$node->safe_psql('postgres', q{SELECT count(jobq.enqueue('quick')) FROM generate_series(1, 50)});
		wait_for_sql($node, 'SELECT count(*) = 2 FROM jobq.queue', "$what: quick ones run");
		last if $node->safe_psql('postgres', $most_together) > 1;
	}
	# all at once, so that they would share a transaction
	$node->safe_psql('postgres', q{SELECT jobq.pause_job_type('quick'); INSERT INTO gate VALUES ('holder')});
	wait_status($node, 'postgres', $holder, 'completed', "$what: the key is free");
	$node->safe_psql('postgres', q{SELECT count(jobq.enqueue('quick')) FROM generate_series(1, 100)});
	$node->safe_psql('postgres', q{SELECT jobq.resume_job_type('quick')});
	wait_for_sql($node, 'SELECT count(*) = 0 FROM jobq.queue', "$what: all have run");
	is(fate($suspect), 'completed 1', "$what: it was not charged");
	cmp_ok($node->safe_psql('postgres', $most_together), '>', 1, "$what: some share a transaction");
	is($node->safe_psql('postgres', "SELECT count(*) FROM ledger WHERE what = (SELECT what FROM ledger WHERE job = '$suspect')"), 1, "$what: it has run alone");
	return;
}
$node->safe_psql('postgres', <<'END');
CREATE FUNCTION quick(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM public.note('tx ' || pg_current_xact_id());
  WHILE p ? 'gate' AND NOT EXISTS (SELECT FROM public.gate WHERE name = p->>'gate') LOOP
    PERFORM pg_sleep(0.01);
  END LOOP;
END $$;
SELECT jobq.create_job_type('quick', 'quick(jsonb)');
END
stays_a_suspect('in memory', 0);
stays_a_suspect('behind others', 30);

# ---------- a crash of a handler's parallel worker ----------

my $offset = crashes();
my $parallel = enqueue_crash('parallel', q{jobq.enqueue('parallel')});
wait_status($node, 'postgres', $parallel, 'error', 'the crash of a parallel worker is charged to its job');
is(fate($parallel), 'error 1 server_crash', 'and charged');
is(crashes() - $offset, 3, 'when it was alone in flight three times');

# ---------- immediate stop ----------

$node->safe_psql('postgres', q{TRUNCATE ledger});
my $waiter = enqueue('waiter', '{"gate": "third"}');
my $tool = enqueue('tool', '{"gate": "open"}');
running($waiter, $tool);
ok(wait_for_text("$dir/runs", qr/run/), 'the tool runs');
$node->stop('immediate');
append_to_file("$dir/open", '');
$node->start;
wait_status($node, 'postgres', $tool, 'completed', 'a tool that was running at an immediate stop runs again');
is(fate($tool), 'completed 2', 'its attempt was charged');
is($node->safe_psql('postgres', "SELECT string_agg(data->>'code', ' ') FROM jobq.events WHERE job_id = '$tool' AND type = 'failed'"),
	'server_crash', 'as a server crash');
is(scalar(() = slurp_file("$dir/runs") =~ /run/g), 2, 'it has started twice');
running($waiter);
$node->safe_psql('postgres', q{INSERT INTO gate VALUES ('third')});
wait_status($node, 'postgres', $waiter, 'completed', 'a SQL job runs again');
is(fate($waiter), 'completed 1', 'at no charge');
is($node->safe_psql('postgres', 'SELECT count(*) FROM ledger'), '1', '!its effects are there once');

$node->stop;
done_testing();
