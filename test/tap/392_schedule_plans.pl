# The plans of the conductor: they are made while the queue is empty, and kept.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use RunTest;
use ServerTest;
use Test::More;

my $node = run_server('plans', 'autovacuum = off');

workflow('two', '[{"key": "a", "job_type": "act"}, {"key": "b", "job_type": "act", "after": ["a"], "payload": {"result": {"$": "$.tasks.a.result", "default": 1}}}]');
run_is(start_run('two'), 'completed') for 1 .. 12;

# Returns the rows of the queue that whole scans of it have read.
sub read_by_scans { return one(q{SELECT seq_tup_read FROM pg_stat_all_tables WHERE relid = 'jobq.queue'::regclass}); }

sub conductor { return one(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'jobq conductor'}); }

my $pid = conductor();
# The rows are counted once after a start, by a scan of the whole queue: while it is empty.
is(one(q{SELECT sum(pending) FROM jobq.stat_job_types}), 0, 'the rows are counted');
one(q{SELECT jobq.pause_job_type('pulled') FROM jobq.enqueue_many('pulled', ARRAY(SELECT '{}'::jsonb FROM generate_series(1, 5000))) LIMIT 1});
run_is(start_run('two'), 'completed');
# A process writes its statistics at most once a second, and while it works.
sub fetched { return one(q{SELECT idx_tup_fetch FROM pg_stat_all_tables WHERE relid = 'jobq.queue'::regclass}); }

my ($found, $before) = (fetched(), read_by_scans());
for (1 .. 1000)
{
	last if ended(start_run('two')) ne 'completed' || fetched() > $found + 100;
}
cmp_ok(fetched(), '>', $found + 100, 'statistics of runs are written');
cmp_ok(read_by_scans() - $before, '<', 5000, 'runs start and end without a scan of the whole queue');
is(conductor(), $pid, 'by one conductor');

$node->stop;
done_testing();
