# options.min_batch: a claim gets a full batch, or what is there when the
# oldest job has waited long enough.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use Time::HiRes 'time';

my $node = jobq_server('batches', 'max_connections = 40', 'fsync = off', 'jobq.max_concurrent = 500');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
SELECT jobq.create_job_type('embed', options => '{"min_batch": {"jobs": 5, "wait": "1h"}}'),
  jobq.create_job_type('soon', options => '{"min_batch": {"jobs": 5, "wait": "2s"}}'),
  jobq.create_job_type('narrow', max_concurrent => 3, options => '{"min_batch": {"jobs": 5, "wait": "2s"}}'),
  jobq.create_job_type('mail');
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub one { return $node->safe_psql('postgres', $_[0]); }

sub claims { return one("SELECT count(*) FROM jobq.claim('{$_[0]}', $_[1], wait => '" . ($_[2] // '0') . "')"); }

sub enqueue { return one("SELECT count(jobq.enqueue('$_[0]')) FROM generate_series(1, $_[1])"); }

sub end_all { return one(q{SELECT count(jobq.complete(id, lease_token)) FROM jobq.queue WHERE lease_token IS NOT NULL}); }

# ---------- full or not ----------

enqueue('embed', 3);
is(claims('embed', 10), 0, 'three jobs are no batch of five');
is(one(q{SELECT count(*) FROM jobq.queue WHERE status = 'pending' AND attempts = 0 AND runs = 0}), 3, 'they wait, uncharged');
is(claims('embed', 3), 3, 'a claim of three is full with three');
end_all();
enqueue('embed', 4);
is(claims('embed', 10, '1s'), 0, 'a wait that is shorter than the batch takes ends without a job');
enqueue('embed', 1);
is(claims('embed', 10), 5, 'five are one');
enqueue('embed', 2);
is(claims('embed', 10), 0, 'the next two wait');
enqueue('embed', 300);
is(one(q{SELECT count(*), count(DISTINCT id) FROM jobq.claim('{embed}', 1000)}), '302|302', 'a claim of several rounds');
end_all();

# ---------- a waiting claim ----------

my $s = $node->background_psql('postgres', on_error_stop => 0);

sub begin_wait
{
	my ($types) = @_;

	$s->{stdin} .= "SELECT 'got ' || count(*) FROM jobq.claim('{$types}', 10, wait => '20s');\n";
	$s->{run}->pump_nb;
	return wait_for_sql($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE 'SELECT ''got%' AND state = 'active' AND wait_event_type = 'Extension'",
		"a claim of $types waits");
}

# Voluntary switches of the dispatcher: each turn ends with one.
sub turns
{
	my ($pid) = jobq_pids($node, 'dispatcher');

	return slurp_file("/proc/$pid/status") =~ /^voluntary_ctxt_switches:\s+(\d+)/m ? $1 : -1;
}

begin_wait('embed');
enqueue('embed', 1) foreach 1 .. 4;
one(q{SELECT jobq.health()});
my $before = turns();
one(q{SELECT pg_sleep(2)});
cmp_ok(turns() - $before, '<', 40, 'the dispatcher sleeps meanwhile');
is(one(q{SELECT count(*) FROM jobq.queue WHERE status = 'pending'}), 4, 'four jobs wait with it');
enqueue('embed', 1);
like($s->query_until(qr/got \d+/, ''), qr/got 5/, 'the fifth makes the batch');
end_all();

# ---------- by time ----------

begin_wait('soon');
my $begun = time;
enqueue('soon', 2);
like($s->query_until(qr/got \d+/, ''), qr/got 2/, 'after the wait of the oldest job a claim gets those that are there');
cmp_ok(time - $begun, '>', 1.9, 'not before');
end_all();
enqueue('soon', 2);
one(q{SELECT pg_sleep(2.1)});
is(claims('soon', 10), 2, 'a claim that does not wait gets jobs that have waited long enough');
end_all();
enqueue('narrow', 9);
is(claims('narrow', 10), 0, 'a limit below the batch: nothing yet');
is(claims('narrow', 10, '10s'), 3, 'then as many as the limit allows');
end_all();

# ---------- beside other types ----------

enqueue('embed', 3);
begin_wait('embed,mail');
enqueue('mail', 1);
like($s->query_until(qr/got \d+/, ''), qr/got 1/, 'a job of another type does not wait for the batch');
is(one(q{SELECT string_agg(job_type, ',') FROM jobq.jobs WHERE status = 'running'}), 'mail', 'and takes none of its jobs along');
begin_wait('embed');
one(q{SELECT jobq.alter_job_type('embed', options => '{"min_batch": null}')});
like($s->query_until(qr/got \d+/, ''), qr/got 3/, 'without the option they are claimed at once');
end_all();

# ---------- listeners ----------

my $listener = $node->background_psql('postgres', on_error_stop => 0);
$listener->query_safe('LISTEN jobq_soon');

sub heard
{
	my ($what) = @_;
	my $out = '';

	foreach (1 .. 500)
	{
		$out .= $listener->query('SELECT 1');
		last if $out =~ /Asynchronous notification "jobq_soon"/;
		Time::HiRes::usleep(20_000);
	}
	return like($out, qr/Asynchronous notification "jobq_soon"/, $what);
}
# Claims after each notification, until the claim gets that many.
sub claims_when_notified
{
	my ($n, $what) = @_;
	my $got = 0;

	foreach (1 .. 10)
	{
		heard("$what: a notification");
		last if ($got = claims('soon', 10)) > 0;
	}
	return is($got, $n, $what);
}
enqueue('soon', 2);
heard('a notification for the first job');
is(claims('soon', 10), 0, 'which is no batch');
claims_when_notified(2, 'two jobs whose wait is over');
end_all();
one(q{SELECT jobq.alter_job_type('soon', options => '{"min_batch": {"jobs": 5, "wait": "1h"}}')});
enqueue('soon', 2);
heard('a notification for the first job');
is(claims('soon', 10), 0, 'which is no batch');
enqueue('soon', 3);
claims_when_notified(5, 'a full batch');

# ---------- values ----------

sqlstate_is($node, 'postgres', "SELECT jobq.create_job_type('bad', options => '{\"min_batch\": $_->[0]}')", $_->[1], "min_batch $_->[0]") foreach (
	[ '5', '22023' ], [ '{"jobs": 0}', '22003' ], [ '{"jobs": 129}', '54000' ], [ '{"jobs": 1.5}', '22023' ],
	[ '{"wait": "0"}', '22023' ], [ '{"wait": "2 days"}', '22023' ], [ '{"n": 1}', '22023' ]);
done_testing();
