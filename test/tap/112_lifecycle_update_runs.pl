# ALTER EXTENSION UPDATE beside jobs that wait for jobs and live runs of workflows, to an artificial
# next version and back, with a restart of the server between. While the library and the SQL differ
# nothing goes on and nothing is lost; then each goes on from its rows, and runs each task once.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use RunTest;
use ServerTest;
use Test::More;
use UpgradeTest;

my $stage = stage_release();
my $now = new_version();
my $next = $now =~ s/(\d+)$/$1 + 1/er;
install_new($stage);

# As the script of a release: it locks the tables and replaces functions whose plans are kept.
my $scripts = (directories_of($stage))[1] . '/extension';
my $script = slurp_file("$scripts/jobq--$now.sql");
my @replaced = $script =~ /^(CREATE FUNCTION jobq_internal\._(?:ready|look|start_run|look_at_map)\(.*?^END \$\$;)/msg;
is(scalar @replaced, 4, 'the functions that the script replaces');
foreach my $way ("$now--$next", "$next--$now")
{
	append_to_file("$scripts/jobq--$way.sql", join "\n", 'LOCK TABLE jobq.queue, jobq.runs, jobq.dependencies, jobq.history;',
		map { s/^CREATE FUNCTION/CREATE OR REPLACE FUNCTION/r } @replaced);
}

my $node = upgrade_server('runs', $stage, 'fsync = off');
run_on($node);
one(<<'END');
CREATE TABLE gates (name text);
CREATE FUNCTION wait_gate(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  WHILE NOT EXISTS (SELECT FROM public.gates g WHERE g.name = p->>'gate') LOOP PERFORM pg_sleep(0.01); END LOOP;
  RETURN public.act(p);
END $$;
SELECT jobq.create_job_type('through_gate', 'wait_gate(jsonb)', max_attempts => 1), jobq.create_job_type('held', 'act(jsonb)'), jobq.pause_job_type('held');
END

# ---------- one of each kind ----------

my %job;

# Jobs: a parent that runs, one that waits, a dead letter; a fan.
$job{runs} = one(q{SELECT jobq.enqueue('through_gate', '{"gate": "open"}')});
$job{waits} = one(q{SELECT jobq.enqueue('held')});
$job{dead} = one(q{SELECT jobq.enqueue('act', '{"end": "fail"}')});
is(ended($job{dead}), 'error', 'a parent is dead');
$job{"after $_"} = one("SELECT jobq.enqueue('act', after => '{$job{$_}}')") foreach qw(runs waits dead);
$job{fan} = one(qq{SELECT id FROM jobq.enqueue_jobs((SELECT jsonb_agg(j ORDER BY n) FROM (
  SELECT n, jsonb_build_object('job_type', 'act', 'after', to_jsonb(ARRAY['$job{waits}'])) AS j FROM generate_series(1, 50) n
   UNION ALL SELECT 51, jsonb_build_object('job_type', 'act', 'after', (SELECT jsonb_agg(i) FROM generate_series(1, 50) i))) f)) WHERE ordinal = 51});

# Runs.
my $undo = '"compensate": {"job_type": "held"}';
my %steps = (
	running => '[{"key": "a", "job_type": "through_gate", "payload": {"gate": "open"}}, {"key": "b", "job_type": "act", "after": ["a"]}]',
	event => '[{"key": "e", "event": "go"}, {"key": "b", "job_type": "act", "after": ["e"]}]',
	delay => '[{"key": "d", "delay": "1 s"}, {"key": "b", "job_type": "act", "after": ["d"]}]',
	map => '[{"key": "m", "job_type": "held", "map": "$.input.list", "max_parallel": 2}, {"key": "b", "job_type": "act", "after": ["m"]}]',
	paused => '[{"key": "a", "event": "go"}, {"key": "b", "job_type": "act", "after": ["a"]}]',
	undone => qq([{"key": "a", "job_type": "act", $undo}, {"key": "b", "job_type": "act", "after": ["a"], "payload": {"end": "fail"}}]),
	queued => '[{"key": "a", "job_type": "act"}, {"key": "b", "job_type": "act", "after": ["a"]}]',
	nested => '[{"key": "r", "job_type": "event"}, {"key": "b", "job_type": "act", "after": ["r"]}]');
my %run;
foreach my $name (sort keys %steps)
{
	workflow($name, $steps{$name}, $name eq 'undone' ? q{on_failure => 'compensate'} : undef);
	one("SELECT jobq.pause_job_type('$name')") if $name eq 'queued';
	$run{$name} = start_run($name, '{"list": [1, 2, 3, 4, 5]}');
}
wait_for_sql($node, qq{SELECT count(*) = 2 FROM jobq.jobs WHERE job_type = 'through_gate' AND status = 'running'}, 'tasks and jobs run');
wait_for_sql($node, qq{SELECT phase = 'compensating' FROM jobq.runs WHERE id = '$run{undone}'}, 'a run is undone');
wait_for_sql($node, qq{SELECT count(*) = 2 FROM jobq.jobs WHERE workflow_id = '$run{map}' AND task_key LIKE 'm.%'}, 'members wait');
wait_for_sql($node, q{SELECT count(*) = 3 FROM jobq.queue WHERE status = 'blocked' AND after_state = 4}, 'tasks wait for events');
is(one("SELECT jobq.pause_workflow('$run{paused}')"), 't', 'a run is paused');

# ---------- the update, and a restart ----------

one("ALTER EXTENSION jobq UPDATE TO '$next'");
is(one('SELECT jobq.version()'), $next, "the extension is $next");

sub stands_still
{
	sqlstate_is($node, 'postgres', $_, '55000', "refused: $_")
	  foreach "SELECT jobq.send_event('$run{event}', 'go')", "SELECT jobq.cancel_job('$run{map}')", "SELECT jobq.enqueue('act', after => '{$job{waits}}')";
	wait_for_sql($node, q{SELECT jobq.health() #>> '{checks,queues,message}' LIKE 'no job runs: the library is jobq%'}, 'no job runs');
	return;
}

# Rows of all that waits: the delay is over meanwhile.
my $state = q{SELECT string_agg(concat_ws(' ', id, status, position, waiting_for, after_state), E'\n' ORDER BY id) FROM jobq.queue};
stands_still();
one(q{INSERT INTO gates VALUES ('open')});    # the handlers were rolled back
my $waiting = one($state);
$node->restart;
stands_still();
wait_for_sql($node, qq{SELECT NOT EXISTS (SELECT FROM jobq.run_timers WHERE id <> ALL (ARRAY(SELECT r.id FROM jobq.runs r)) AND due > now())}, 'a delay is over');
is(one($state), $waiting, 'all rows are as they were');

one("ALTER EXTENSION jobq UPDATE TO '$now'");
is(one('SELECT jobq.version()'), $now, "the extension is $now");

# ---------- each goes on ----------

run_is($run{$_}, 'completed', "the run $_ goes on") foreach qw(running delay);
is(ended($job{'after runs'}), 'completed', 'a job behind one that ran');
my ($event) = one("SELECT id FROM jobq.jobs WHERE workflow_id = '$run{nested}' AND task_key = 'r'");
is(one("SELECT jobq.send_event('$_', 'go')"), 't', 'an event') foreach $run{event}, $event, $run{paused};
run_is($run{$_}, 'completed', "the run $_ ends") foreach qw(event nested);
is(one("SELECT status FROM jobq.jobs WHERE workflow_id = '$run{paused}' AND task_key = 'b'"), 'blocked', 'the paused run waits');
one("SELECT jobq.resume_workflow('$run{paused}'); SELECT jobq.resume_job_type('held'); SELECT jobq.resume_job_type('queued')");
run_is($run{$_}, $_ eq 'undone' ? 'error' : 'completed', "the run $_ ends") foreach qw(paused map queued undone);
is(ended($job{$_}), 'completed', "the job $_") foreach 'after waits', 'fan';
is(one("SELECT status FROM jobq.jobs WHERE id = '$job{'after dead'}'"), 'blocked', 'a dead letter holds its child');
is(one("SELECT jobq.purge_dead_letters('act')"), 2, 'it is purged, with the task that failed');
is(ended($job{'after dead'}), 'cancelled', 'the child is cancelled');
is(one('SELECT count(*) FROM (SELECT FROM ran WHERE run IS NOT NULL GROUP BY run, key HAVING count(*) > 1) twice'), 0, '!no task ran twice');
is(one("SELECT string_agg(key, ' ' ORDER BY key) FROM ran WHERE run = '$run{undone}'"), 'a a.undo', 'a task and its compensation, the failure rolled back');
is(one('SELECT count(*) FROM ran WHERE run IS NULL'), 1 + 1 + 1 + 1 + 50 + 1, 'each job ran once');
wait_for_sql($node, 'SELECT NOT EXISTS (SELECT FROM jobq.dependencies) AND NOT EXISTS (SELECT FROM jobq.queue)', 'nothing is left');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|signal 11/, 'no crash');
$node->stop;
done_testing();
