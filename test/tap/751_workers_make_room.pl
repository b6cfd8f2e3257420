# Workers of one role make room for another role: one busy worker is dismissed, and
# no second one while it ends.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('make_room', 'jobq.max_sql_workers = 3');
$node->start;
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION jobq;
CREATE ROLE one LOGIN;
CREATE ROLE two LOGIN;
CREATE ROLE late LOGIN;
CREATE FUNCTION pid(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  IF p ? 'gate' THEN PERFORM pg_advisory_lock((p->>'gate')::int); END IF;
  RETURN to_jsonb(pg_backend_pid());
END $$;
SELECT jobq.create_job_type(r::text, 'pid(jsonb)', run_as => r) FROM unnest('{one,two,late}'::regrole[]) r;
SQL
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub value { return $node->safe_psql('postgres', $_[0]); }

sub gated
{
	my ($type, $gate) = @_;
	my $id = value("SELECT jobq.enqueue('$type', '{\"gate\": $gate}')");

	wait_for_sql($node, "SELECT status = 'running' FROM jobq.jobs WHERE id = '$id'", "a job of role $type runs");
	return $id;
}

my $gate = $node->background_psql('postgres');
$gate->query_safe('SELECT pg_advisory_lock(n) FROM generate_series(1, 3) n');
my @busy = (gated('one', 1), gated('two', 2), gated('two', 3));
my $worker = value("SELECT pid FROM pg_stat_activity WHERE backend_type = 'jobq sql worker' AND usename = 'one'");

# role two has most workers: one of them is dismissed, and ends with its job
my $next = value("SELECT jobq.enqueue('one')");
my $late = value("SELECT jobq.enqueue('late')");
my $since = value('SELECT clock_timestamp()');
wait_for_sql($node, "SELECT jobq.health() IS NOT NULL AND clock_timestamp() > '$since'::timestamptz + interval '1 s'",
	'the dispatcher has taken turns while the third role waited');
is(value("SELECT status FROM jobq.jobs WHERE id = '$late'"), 'pending', 'all workers are still busy');
$gate->query_safe('SELECT pg_advisory_unlock(1)');
wait_status($node, 'postgres', $_, 'completed', 'completed') foreach $busy[0], $next;
is(value("SELECT result #>> '{}' FROM jobq.jobs WHERE id = '$next'"), $worker, 'the only worker of role one was not dismissed, too');
wait_status($node, 'postgres', $late, 'completed', 'the third role gets a worker');
$gate->query_safe('SELECT pg_advisory_unlock(n) FROM generate_series(2, 3) n');
wait_status($node, 'postgres', $_, 'completed', 'completed') foreach @busy;
is(value('SELECT max(runs) FROM jobq.jobs'), 1, '!nothing ran twice');
$gate->quit;
$node->stop;

done_testing();
