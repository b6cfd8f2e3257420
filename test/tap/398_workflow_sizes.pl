# Large maps, results and events of runs: how much work a look is, and what is over a limit ends.
# JOBQ_FULL: other jobs run while a wide map is retried.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use RunTest;
use ServerTest;
use Test::More;

my $node = run_server('sizes', 'synchronous_commit = off', "jobq.max_payload = '32MB'", "shared_buffers = '256MB'");

workflow('marker', '[{"key": "x"}]');
sub is_up_to_date { return run_is(start_run('marker'), 'completed', $_[0]); }

# ---------- a retry of a map ----------

# Members of odd elements fail until the table repaired has a row.
one(q{CREATE TABLE repaired ();
CREATE FUNCTION half(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF p::int % 2 = 1 AND NOT EXISTS (SELECT FROM public.repaired) THEN RAISE 'odd'; END IF;
END $$;
SELECT jobq.create_job_type('half', 'half(jsonb)', max_attempts => 1), jobq.create_job_type('other', 'act(jsonb)')});
workflow('again', '[{"key": "m", "job_type": "half", "map": "$.input"}]');

# Returns a run half of whose members have failed.
sub half_done
{
	my ($width) = @_;

	one('TRUNCATE repaired');
	my $run = start_run('again', one("SELECT jsonb_agg(i) FROM generate_series(1, $width) i"));
	run_is($run, 'error', 'a map half of whose members fail');
	one(q{INSERT INTO repaired DEFAULT VALUES});
	return $run;
}

# The read of the members that are done may take all of a turn.
my $run = half_done(500);
one(q{SELECT jobq.pause_job_type('half');
ALTER FUNCTION jobq_internal._turn_is_over() RENAME TO _turn_is_over_before;
CREATE FUNCTION jobq_internal._turn_is_over() RETURNS boolean LANGUAGE sql AS 'SELECT true'});
is(one("SELECT jobq.retry_workflow('$run')"), 't', 'it is retried, and each turn is over at once');
wait_for_sql($node, "SELECT count(*) = 250 FROM jobq.queue WHERE workflow_id = '$run' AND parent_id <> '$run'", 'members wait');
is(one("SELECT string_agg(n::text, ' ' ORDER BY n) FROM (SELECT count(*) AS n FROM jobq.queue WHERE workflow_id = '$run' AND parent_id <> '$run' GROUP BY xmin::text) t"),
	'50 100 100', 'transactions add 100 each');
one(q{DROP FUNCTION jobq_internal._turn_is_over(); ALTER FUNCTION jobq_internal._turn_is_over_before() RENAME TO _turn_is_over;
SELECT jobq.resume_job_type('half')});
run_is($run, 'completed');
is(one("SELECT count(*), count(DISTINCT task_key) FROM jobq.history WHERE workflow_id = '$run' AND parent_id <> '$run'"), '500|500', '!each member has completed once');

if ($ENV{JOBQ_FULL})
{
	$run = half_done(60000);
	is(one("SELECT jobq.retry_workflow('$run')"), 't', 'a wide one is retried');
	my ($n, $longest) = (0, 0);
	until (one("SELECT status IN ('completed', 'error', 'cancelled') FROM jobq.jobs WHERE id = '$run'") eq 't')
	{
		my $waited = seconds_of { one("SELECT status FROM jobq.wait_for('" . start_run('marker') . "')") };

		$longest = $waited if $waited > $longest;
		last if $n++ > 5000;
	}
	note sprintf '%d runs meanwhile, the longest wait %.2f s', $n, $longest;
	cmp_ok($longest, '<', 10, 'other runs do not wait for it');
	run_is($run, 'completed');
}

# ---------- rows that a look reads ----------

unlike(one("SET enable_seqscan = off; EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off) SELECT FROM jobq.history h WHERE h.workflow_id = '$run' AND h.parent_id = '$run'"),
	qr/Rows Removed/, 'a look at a run reads no members that have ended');

# A large array of a map is read for several members at once.
workflow('window', '[{"key": "m", "job_type": "pulled", "map": "$.input", "max_parallel": 16}]');
$run = start_run('window', one(q{SELECT jsonb_agg((SELECT string_agg(md5(i || '.' || k), '') FROM generate_series(1, 150) k)) FROM generate_series(1, 20) i}));
wait_for_sql($node, "SELECT count(*) = 16 FROM jobq.queue WHERE workflow_id = '$run' AND parent_id <> '$run'", 'a window is full');
my $live = "SELECT count(*) FROM jobq.queue WHERE workflow_id = '$run' AND parent_id <> '$run'";
complete_one((claim_one())[0, 1]);
is_up_to_date('a member has ended');
is(one($live), 15, 'the window has room for one');
complete_one((claim_one())[0, 1]);
wait_for_sql($node, "SELECT ($live) = 16", 'after another one two are added');
complete_one((claim_one())[0, 1]) foreach 3 .. 20;
run_is($run, 'completed');
$run = start_run('window', one('SELECT jsonb_agg(i) FROM generate_series(1, 20) i'));
$live = "SELECT count(*) FROM jobq.queue WHERE workflow_id = '$run' AND parent_id <> '$run'";
wait_for_sql($node, "SELECT ($live) = 16", 'a window of a small one is full');
complete_one((claim_one())[0, 1]);
wait_for_sql($node, "SELECT ($live) = 16", 'and stays full');
complete_one((claim_one())[0, 1]) foreach 2 .. 20;
run_is($run, 'completed');

# ---------- results that are too large ----------

# Makes results of ended tasks so large that two are too much for an object or an array.
sub make_large
{
	my ($of, $number) = @_;

	wait_for_sql($node, "SELECT count(*) = $number FROM jobq.history WHERE workflow_id = '$of'", 'tasks have ended');
	return one("UPDATE jobq.history SET result = to_jsonb(repeat('x', 140000000)) WHERE workflow_id = '$of'");
}

workflow('sum', '[{"key": "m", "job_type": "pulled", "map": "$.input"}]');
foreach my $cancel (0, 1)
{
	$run = start_run('sum', '[0, 1, 2]');
	complete_one((claim_one())[0, 1]) foreach 1, 2;
	my ($id, $token) = claim_one();
	make_large($run, 2);
	if ($cancel)
	{
		one("SELECT jobq.cancel_job('$run')");
		wait_for_sql($node, "SELECT cancel_requested FROM jobq.queue WHERE id = '$id'", 'a run is cancelled');
	}
	complete_one($id, $token);
	run_is($run, $cancel ? 'cancelled' : 'error', 'a map whose results are too large together ends, and its run');
	is(one("SELECT status, error_code FROM jobq.jobs WHERE workflow_id = '$run' AND task_key = 'm'"), 'error|54000', 'the map with 54000');
}
workflow('outputs', '[{"key": "a", "job_type": "pulled"}, {"key": "b", "job_type": "pulled"}, {"key": "c", "job_type": "pulled"}]');
$run = start_run('outputs');
complete_one((claim_one())[0, 1]) foreach 1, 2;
my ($id, $token) = claim_one();
make_large($run, 2);
complete_one($id, $token);
run_is($run, 'error', 'a run whose result is too large');
like(one("SELECT error_code || ' ' || error_msg FROM jobq.jobs WHERE id = '$run'"), qr/^54000 output: /, 'ends with 54000');

# ---------- more members at once than a turn adds ----------

one(q{SELECT jobq.pause_job_type('pulled')});
workflow('crowd', '[{"key": "m", "job_type": "pulled", "map": "$.input", "max_parallel": 3500}]');
$run = start_run('crowd', one('SELECT jsonb_agg(i) FROM generate_series(1, 3600) i'));
wait_for_sql($node, "SELECT count(*) = 3500 FROM jobq.queue WHERE workflow_id = '$run' AND task_key LIKE 'm.%'", 'max_parallel above 1,000');
one("SELECT jobq.cancel_job('$run')");
run_is($run, 'cancelled');
one(q{SELECT jobq.resume_job_type('pulled')});

# ---------- events ----------

workflow('wait', '[{"key": "e", "event": "go"}]');
$run = start_run('wait');
wait_for_sql($node, "SELECT after_state = 4 FROM jobq.queue WHERE workflow_id = '$run'", 'a run waits');
is(one("SET jobq.max_payload = '1kB'; SELECT jobq.send_event('$run', 'a', to_jsonb(repeat('x', 1000)))"), 't', 'an event as large as a payload may be');
sqlstate_is($node, 'postgres', "SET jobq.max_payload = '1kB'; SELECT jobq.send_event('$run', 'b', to_jsonb(repeat('x', 50)))", '54000', 'with another one it is too large');
is(one("SELECT count(*) FILTER (WHERE jobq.send_event('$run', 'n' || i)) FROM generate_series(1, 999) i"), 999, 'a run has 1,000 events');
sqlstate_is($node, 'postgres', "SELECT jobq.send_event('$run', 'go')", '54000', 'and no more');
is(one("SELECT (SELECT count(*) FROM jsonb_object_keys(events)) FROM jobq.runs WHERE id = '$run'"), 1000, 'they are kept');
one("SELECT jobq.cancel_job('$run')");
run_is($run, 'cancelled');

is(one('SELECT count(*) FROM jobq.queue'), '0', 'no row is left');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|WARNING:  jobq|terminated by/, 'no process failed');
done_testing();
