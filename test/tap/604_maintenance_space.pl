# The files of the queue: health() names them when they are large and almost empty, and when
# autovacuum does not come; the calls of its message shrink them beside running jobs.

use strict;
use warnings;

use IPC::Run ();
use ClockTest;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my %faked = fake_clock('-DFAKE_MONOTONIC');
my $node = jobq_server('space', 'autovacuum = off', 'autovacuum_naptime = 1d', 'fsync = off', 'max_wal_size = 2GB');
{
	local %ENV = (%ENV, %faked);
	$node->start;
}

sub scalar_of { return $node->safe_psql('postgres', $_[0]); }

sub says
{
	my ($pattern, $what) = @_;

	measure($node);
	return like(scalar_of(q{SELECT coalesce(jobq.health()->'checks'->'horizon'->>'message', 'none')}), $pattern, $what);
}

$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE FUNCTION nothing(p jsonb) RETURNS void LANGUAGE sql AS '';
SELECT jobq.create_job_type('waits', 'nothing(jsonb)'), jobq.create_job_type('runs', 'nothing(jsonb)'), jobq.pause_job_type('waits');
ALTER TABLE jobq.queue SET (fillfactor = 10, autovacuum_vacuum_threshold = 10);
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');
says(qr/^none$/, 'an empty queue is healthy');

# a row takes a page
scalar_of(q{SELECT count(*) FROM generate_series(1, 132) i, jobq.enqueue_many('waits', array_fill(jsonb_build_object('i', i, 'text', repeat('x', 600)), ARRAY[1000]))});
says(qr/^none$/, 'so is a long one');
scalar_of('DELETE FROM jobq.queue');
says(qr/^none$/, 'dead rows may wait for autovacuum');
set_clock(300);
says(qr/^none$/, 'for ten minutes');
set_clock(610);
says(qr/^autovacuum is off/, 'then health() names the reason');
$node->safe_psql('postgres', 'ALTER SYSTEM SET autovacuum = on');
$node->reload;
says(qr/autovacuum does not come/, 'or that there is another one');

scalar_of('VACUUM jobq.queue');
says(qr/VACUUM \(TRUNCATE\) jobq.queue/, 'large files that are almost empty');
my $before = scalar_of(q{SELECT jobq.enqueue('runs')});
wait_status($node, 'postgres', $before, 'completed', 'jobs run beside them');
my $load = IPC::Run::start([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'), '-c', <<'END' ], '<', \undef, '>', '/dev/null', '2>', \my $err);
DO $$ BEGIN
  FOR i IN 1..300 LOOP
    PERFORM jobq.enqueue('runs', keep_completed => '1 day');
    COMMIT;
    PERFORM pg_sleep(0.005);
  END LOOP;
END $$
END
scalar_of('VACUUM (TRUNCATE) jobq.queue');
$node->safe_psql('postgres', qq{SELECT format('REINDEX INDEX CONCURRENTLY %s', indexrelid::regclass) FROM pg_index WHERE indrelid = 'jobq.queue'::regclass\n\\gexec});
cmp_ok(scalar_of(q{SELECT pg_total_relation_size('jobq.queue')}), '<', 10_000_000, 'those calls shrink them');
$load->finish;
is($err, '', 'beside enqueues');
wait_for_sql($node, q{SELECT count(*) = 301 FROM jobq.history WHERE status = 'completed'}, 'whose jobs have run');
says(qr/^none$/, 'and health() is content');
wait_status($node, 'postgres', scalar_of(q{SELECT jobq.enqueue('runs')}), 'completed', 'jobs run');
is(scalar_of('SELECT count(*) FROM jobq.queue'), 0, 'and the queue is empty');

$node->stop;
done_testing();
