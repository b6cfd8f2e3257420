# Which of the ready jobs goes first when it isn't plainly the priority: aging lets a job pass an endless stream
# of higher ones.  One worker, and the sweep is off.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('order', 'jobq.max_sql_workers = 1', "jobq.sweep_interval = '1h'", 'synchronous_commit = off', 'fsync = off');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE TABLE ended (stream boolean);
CREATE FUNCTION stream(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM public.ended) THEN
    PERFORM jobq.enqueue('stream', priority => 10);
  END IF;
END $$;
CREATE FUNCTION noop(p jsonb) RETURNS void LANGUAGE sql AS '';
SELECT jobq.create_job_type('stream', 'stream(jsonb)'), jobq.create_job_type('low', 'noop(jsonb)');
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub scalar_of { return $node->safe_psql('postgres', $_[0]); }

sub status_of { return scalar_of("SELECT status FROM jobq.jobs WHERE id = '$_[0]'"); }

# Until so many more jobs of the stream have run.
sub stream_goes_on
{
	my ($jobs, $what) = @_;
	my $done = scalar_of("SELECT count(*) FROM jobq.history");

	return wait_for_sql($node, "SELECT count(*) >= $done + $jobs FROM jobq.history", $what);
}

# ---------- aging ----------

# a thousand jobs that each enqueue another: more than a worker is handed ahead
scalar_of("SELECT count(*) FROM jobq.enqueue_many('stream', array_fill('{}'::jsonb, '{1000}'), priority => 10)");
stream_goes_on(1000, 'a stream of jobs of priority 10');
my $low = scalar_of("SELECT jobq.enqueue('low')");
stream_goes_on(3000, 'it goes on');
is(status_of($low), 'pending', 'nobody else has a chance');

scalar_of(q{SELECT jobq.alter_job_type('low', options => '{"aging": {"per": "1ms", "max": 9}}')});
stream_goes_on(3000, 'it goes on');
is(status_of($low), 'pending', 'nor has a job that has aged by nine and no further');

scalar_of(q{SELECT jobq.alter_job_type('low', options => '{"aging": {"per": "1ms", "max": 10}}')});
wait_status($node, 'postgres', $low, 'completed', 'aged by ten it goes, because it is older');

scalar_of(q{SELECT jobq.alter_job_type('low', options => '{"aging": {"per": "100ms", "max": 20}}')});
$low = scalar_of("SELECT jobq.enqueue('low')");
wait_status($node, 'postgres', $low, 'completed', 'a new one goes once it has aged');
cmp_ok(scalar_of("SELECT started_at - created_at >= '1s' FROM jobq.jobs WHERE id = '$low'"), 'eq', 't', 'not before');

scalar_of(q{SELECT jobq.alter_job_type('low', options => '{"aging": null}')});
$low = scalar_of("SELECT jobq.enqueue('low')");
stream_goes_on(3000, 'the stream goes on');
is(status_of($low), 'pending', 'without the option it waits');
scalar_of('INSERT INTO ended VALUES (true)');
wait_status($node, 'postgres', $low, 'completed', 'until the stream has ended');
wait_for_sql($node, 'SELECT NOT EXISTS (SELECT FROM jobq.queue)', 'nothing is left');
is(scalar_of('SELECT count(*) FROM jobq.jobs WHERE attempts <> 1'), 0, 'no job was tried twice');

$node->stop;
done_testing();
