# Short jobs are handed out in advance, but only a few milliseconds of work to one
# worker while another may start.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

use constant { JOBS => 200, FEW => 20 };

my $node = jobq_server('ramp', 'jobq.max_sql_workers = 1', 'fsync = off', 'autovacuum = off');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE FUNCTION busy(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE until timestamptz := clock_timestamp() + (p->>'us')::int * interval '1 us';
BEGIN
  WHILE clock_timestamp() < until LOOP END LOOP;
END $$;
SELECT jobq.create_job_type(t, 'busy(jsonb)') FROM unnest('{busy,other}'::text[]) t;
SELECT jobq.create_job_type('one', 'busy(jsonb)', max_concurrent => 1);
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub scalar_of { return $node->safe_psql('postgres', $_[0]); }

sub enqueue_many
{
	my ($type, $n, $us) = @_;

	return scalar_of("SELECT count(*) FROM jobq.enqueue_many('$type',
	  (SELECT array_agg(jsonb_build_object('us', $us)) FROM generate_series(1, $n)))");
}

# One after another, so that the average is known.
sub learn
{
	my ($type) = @_;

	foreach (1 .. 6)
	{
		my $id = scalar_of("SELECT jobq.enqueue('$type', '{\"us\": 1000}')");

		$node->poll_query_until('postgres', "SELECT status = 'completed' FROM jobq.jobs WHERE id = '$id'")
		  or fail("job of type $type");
	}
	return;
}

sub ended
{
	my ($type, $more) = @_;

	return "SELECT count(*) >= $more FROM jobq.jobs WHERE job_type = '$type' AND status = 'completed'";
}

# ---------- the only worker is stopped before it has begun any of them ----------

learn($_) foreach qw(busy other one);
my @workers = jobq_pids($node, 'sql worker');
is(scalar @workers, 1, 'one worker');
$node->safe_psql('postgres', 'ALTER SYSTEM SET jobq.max_sql_workers = 2');
my $needed = scalar_of(q{SELECT jobq.health() #>> '{checks,slots,needed}'});
$node->reload;
wait_for_sql($node, "SELECT (jobq.health() #>> '{checks,slots,needed}')::int = $needed + 1", 'and there may be two');
kill 'STOP', $workers[0];
enqueue_many('busy', JOBS, 1000);
wait_for_sql($node, ended('busy', 6 + JOBS / 4), 'it has not been handed all: another worker comes and runs others');
is(scalar(jobq_pids($node, 'sql worker')), 2, 'that one and no more');
kill 'CONT', $workers[0];
wait_for_sql($node, ended('busy', 6 + JOBS), 'all of them run');

# ---------- no further connection is allowed ----------

@workers = jobq_pids($node, 'sql worker');
scalar_of("SELECT pg_terminate_backend($workers[1])");
wait_for_sql($node, "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $workers[1])", 'one worker is left');
enqueue_many('one', JOBS, 100);
wait_for_sql($node, ended('one', 6 + JOBS), 'a type that may run in one worker runs there');
is(scalar(jobq_pids($node, 'sql worker')), 1, 'none was started for it');
enqueue_many('other', FEW, 1);
wait_for_sql($node, ended('other', 6 + FEW), 'a few of some microseconds run there, too');
$node->stop;
done_testing();
