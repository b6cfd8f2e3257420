# Claims of tools: durable before the tool starts, and handled after any wait of the exec worker.

use strict;
use warnings;

use ExecTest;
use PostgreSQL::Test::Utils;
use ServerTest qw(wait_dispatcher wait_for_text);
use Test::More;

# No other process writes the WAL of a commit that needn't be durable.
my $node = jobq_node('exec_claims', 'synchronous_commit = off', "wal_writer_delay = '10s'", 'restart_after_crash = on');
my $dir = tools();
my $note = tool('note', <<"END");
#!/bin/sh
echo "\$JOBQ_ATTEMPT" >>$dir/ran
while [ ! -e $dir/gate ]; do sleep 0.05; done
END

define_tool($node, 'note', [$note], options => q('{"output": "none"}'), max_attempts => 2, backoff => "'fixed'", backoff_base => "'10ms'");
define_tool($node, 'quick', ['/bin/true'], options => q('{"output": "none"}'));
define_tool($node, 'bad', ['/bin/true']);

# ---------- a lock that the exec worker waits for ----------

finished($node, enqueue($node, 'quick'));
my $bad = enqueue($node, 'bad', '{}', delay => "'1h'");
$node->safe_psql('postgres', q(SELECT jobq.alter_job_type('bad', command => '{/bin/true,"{missing}"}')));
$node->safe_psql('postgres', q{SELECT jobq_internal._ensure_partition('jobq.events', now())});
my $events = $node->safe_psql('postgres',
	"SELECT partition FROM jobq_internal._partitions('jobq.events') WHERE now() >= low AND now() < high");
my $locker = $node->background_psql('postgres', on_error_die => 1);
$locker->query_safe("BEGIN; LOCK $events IN ACCESS EXCLUSIVE MODE");
$node->safe_psql('postgres', "SELECT jobq.alter_job('$bad', scheduled_for => now())");
ok($node->poll_query_until('postgres',
	"SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'jobq exec worker' AND wait_event_type = 'Lock')"),
	'the exec worker waits for a lock');
my $quick = enqueue($node, 'quick');
ok($node->poll_query_until('postgres', "SELECT jobq.health()->'checks'->'dispatcher'->>'status' = 'healthy'"),
	'the dispatcher has had its turn');
$locker->query_safe('COMMIT');
$locker->quit;
is(finished($node, $quick)->{status}, 'completed', 'jobs handed to it meanwhile run');
is(finished($node, $bad)->{status}, 'error', 'and the job that it waited for is settled');

# ---------- a crash after the start ----------

my $id = enqueue($node, 'note');
my $started = 0;
for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
{
	last if $started = -s "$dir/ran";
	select undef, undef, undef, 0.1;
}
ok($started, 'the tool runs');
$node->stop('immediate');
append_to_file("$dir/gate", '');
$node->start;
is(finished($node, $id)->{status}, 'completed', 'it runs again after the crash');
is(slurp_file("$dir/ran"), "1\n2\n", 'as its second attempt: the first start was not forgotten');

# ---------- a cancel of a job that the crash has left running ----------

unlink "$dir/gate";
$id = enqueue($node, 'note');
ok(wait_for_text("$dir/ran", qr/2\n1\n/), 'another tool runs');
$node->safe_psql('postgres', q(SET synchronous_commit = on; SELECT jobq.stop_all('crash')));	# nobody settles it
$node->stop('immediate');
$node->start;
wait_dispatcher($node, 'postgres', 'the dispatcher runs');
is($node->safe_psql('postgres', "SELECT jobq.cancel_job('$id')"), 't', 'a cancel is taken');
ok(wait_status($node, $id, 'cancelled'), 'and the job is cancelled');
$node->stop;
done_testing();
