# Runs of workflows: a server whose job types end as their payloads want, and waits for ends.
package RunTest;

use strict;
use warnings;

use Exporter 'import';
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

our @EXPORT = qw(run_server run_on one workflow start_run ended run_is tasks_of tasks_are claim_one complete_one);

my $node;

# Returns a started server.  Jobs of type act end as the "end" of their payload says: fail, skip,
# once (the first attempt of the first life fails); their result is "result".  Those of type gated
# do the same; one with "gate" waits while the table gate has a row.  Jobs of type pulled are the
# test's.
sub run_server
{
	my ($name, @settings) = @_;

	return run_on(jobq_server($name, 'jobq.max_sql_workers = 2', 'fsync = off', @settings));
}

# The same for a server that is not started.
sub run_on
{
	($node) = @_;
	$node->start;
	$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE TABLE ran (seq int GENERATED ALWAYS AS IDENTITY, run uuid, key text, payload jsonb, at timestamptz DEFAULT clock_timestamp());
CREATE INDEX ON ran (run, key);
CREATE FUNCTION act(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  j jobq.jobs := jobq.current_job();
BEGIN
  INSERT INTO public.ran (run, key, payload) VALUES (j.workflow_id, j.task_key, p);
  CASE p ->> 'end'
    WHEN 'fail' THEN RAISE 'told to';
    WHEN 'once' THEN IF j.runs < 2 THEN RAISE 'once'; END IF;
    WHEN 'skip' THEN PERFORM jobq.skip('no');
    ELSE NULL;
  END CASE;
  RETURN p -> 'result';
END $$;
CREATE TABLE gate ();
CREATE FUNCTION gated(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  WHILE p ? 'gate' AND EXISTS (SELECT FROM public.gate) LOOP
    PERFORM pg_sleep(0.01);
  END LOOP;
  RETURN public.act(p);
END $$;
SELECT jobq.create_job_type('gated', 'gated(jsonb)', max_attempts => 3, backoff_base => '10ms');
SELECT jobq.create_job_type('act', 'act(jsonb)', max_attempts => 1, options => '{"events": "all"}'),
  jobq.create_job_type('pulled', max_attempts => 1);
END
	wait_dispatcher($node, 'postgres', 'the dispatcher runs');
	return $node;
}

sub one { return $node->safe_psql('postgres', $_[0]); }

sub quoted { return "'" . ($_[0] =~ s/'/''/gr) . "'"; }

# Defines a workflow: JSON of steps, other arguments as SQL.  Returns its version.
sub workflow
{
	my ($name, $steps, $arguments) = @_;

	return one("SELECT jobq.create_workflow('$name', " . quoted($steps) . '::jsonb' . (defined $arguments ? ", $arguments" : '') . ')');
}

sub start_run
{
	my ($workflow, $payload, $arguments) = @_;

	return one("SELECT jobq.enqueue('$workflow', " . quoted($payload // '{}') . (defined $arguments ? ", $arguments" : '') . ')');
}

# Waits until the job has ended; returns its status.
sub ended
{
	my ($id) = @_;

	$node->poll_query_until('postgres', "SELECT EXISTS (SELECT FROM jobq.jobs WHERE id = '$id' AND status IN ('completed', 'skipped', 'cancelled', 'error'))")
	  or diag(one("SELECT string_agg(format('%s %s %s %s', task_key, status, error_code, error_msg), E'\\n') FROM jobq.jobs WHERE '$id' IN (id, workflow_id)"));
	return one("SELECT status FROM jobq.jobs WHERE id = '$id'");
}

# Tests how a run ends.
sub run_is
{
	my ($run, $status, $what) = @_;

	return is(ended($run), $status, $what // "the run is $status");
}

# Returns "key:status ..." of a run's tasks, in the order of their keys.
sub tasks_of
{
	my ($run) = @_;

	return one("SELECT string_agg(task_key || ':' || status, ' ' ORDER BY task_key COLLATE \"C\") FROM jobq.jobs WHERE workflow_id = '$run'");
}

# Starts a run, waits for its end, and tests its tasks.
sub tasks_are
{
	my ($workflow, $payload, $status, $tasks, $what) = @_;
	my $run = start_run($workflow, $payload);
	my $is = ended($run);

	is("$is " . tasks_of($run), "$status $tasks", $what);
	return $run;
}

# Claims the next job of type pulled, when there is one; returns its id, token and payload.
sub claim_one
{
	my ($arguments) = @_;
	my $claimed = '';

	foreach (1 .. 5)
	{
		last if $claimed ne '';
		$claimed = one("SELECT c.id, c.lease_token, c.payload FROM jobq.claim('{pulled}', wait => '20s'" . ($arguments // '') . ') c');
	}
	die 'no job to claim' if $claimed eq '';
	return split /\|/, $claimed;
}

sub complete_one
{
	my ($id, $token, $result) = @_;

	return one("SELECT jobq.complete('$id', '$token'" . (defined $result ? ', ' . quoted($result) : '') . ')');
}

1;
