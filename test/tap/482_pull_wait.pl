# Long polls: a claim that waits gets the next job at once; one that is
# cancelled gives nothing away.

use strict;
use warnings;

use IPC::Run ();
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use Time::HiRes 'time';

my $node = jobq_server('waits', 'max_connections = 260', 'fsync = off', 'jobq.max_concurrent = 400', "jobq.sweep_interval = '1h'");
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
SELECT jobq.create_job_type('mail'), jobq.create_job_type('other');
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub one { return $node->safe_psql('postgres', $_[0]); }

sub waits_for_claims
{
	my ($n) = @_;

	return wait_for_sql($node, "SELECT count(*) = $n FROM pg_stat_activity WHERE query LIKE 'SELECT % FROM jobq.claim(%' AND state = 'active' AND wait_event_type = 'Extension'",
		"$n claims wait");
}

my $begun = time;
is(one(q{SELECT count(*) FROM jobq.claim('{mail}', wait => '1s')}), 0, 'a wait that ends without a job');
cmp_ok(time - $begun, '>', 0.9, 'has waited');

my $a = $node->background_psql('postgres', on_error_stop => 0);
my $b = $node->background_psql('postgres', on_error_stop => 0);
$a->{stdin} .= "SELECT 'a ' || (payload->>'n') FROM jobq.claim('{mail}', wait => '20s') c;\n";
$a->{run}->pump_nb;
waits_for_claims(1);
$b->{stdin} .= "SELECT 'b ' || (payload->>'n') FROM jobq.claim('{mail,other}', wait => '20s') c;\n";
$b->{run}->pump_nb;
waits_for_claims(2);
is(one(q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT % FROM jobq.claim(%' AND state = 'active' AND backend_xmin IS NOT NULL AND pid <> pg_backend_pid()}),
	0, 'they hold no snapshot');
one(q{SELECT jobq.enqueue('other', '{"n": 1}')});
like($b->query_until(qr/b \d/, ''), qr/b 1/, 'the claim that names the type gets the job');
one(q{SELECT jobq.enqueue('mail', '{"n": 2}')});
like($a->query_until(qr/a \d/, ''), qr/a 2/, 'the other one gets its own');

# a cancelled wait gives nothing away
$a->{stdin} .= "SELECT 'a ' || (payload->>'n') FROM jobq.claim('{mail}', wait => '20s') c;\n";
$a->{run}->pump_nb;
waits_for_claims(1);
one(q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT % FROM jobq.claim(%' AND state = 'active' AND pid <> pg_backend_pid()});
wait_for_sql($node, q{SELECT count(*) = 0 FROM pg_stat_activity WHERE query LIKE 'SELECT % FROM jobq.claim(%' AND state = 'active' AND pid <> pg_backend_pid()}, 'the wait is over');
one(q{SELECT jobq.enqueue('mail', '{"n": 3}')});
is(one(q{SELECT payload->>'n' FROM jobq.claim('{mail}')}), 3, 'the job goes to the next claim');
$a->{stderr} = '';

# many wait; a dispatcher that is replaced finds them
my @many = map { $node->background_psql('postgres', on_error_stop => 0) } 1 .. 40;
foreach my $s (@many)
{
	$s->{stdin} .= "SELECT 'got ' || (payload->>'n') FROM jobq.claim('{mail}', wait => '20s') c;\n\\echo over\n";
	$s->{run}->pump_nb;
}
waits_for_claims(40);
my ($pid) = jobq_pids($node, 'dispatcher');
one("SELECT pg_terminate_backend($pid)");
wait_for_sql($node, "SELECT count(*) = 1 AND min(pid) <> $pid FROM pg_stat_activity WHERE backend_type = 'jobq dispatcher'", 'another dispatcher');
one(q{SELECT jobq.enqueue('mail', jsonb_build_object('n', n)) FROM generate_series(1, 40) n});
my %got;
foreach my $s (@many)
{
	$got{$1}++ if $s->query_until(qr/over/, '') =~ /got (\d+)/;
}
is(scalar(keys %got), 40, 'each of 40 waiting claims gets a job');
is(one(q{SELECT count(*) FROM jobq.queue WHERE status = 'running'}), 43, 'and has it');
foreach (@many)
{
	$_->quit;
}
is(one(q{BEGIN; DECLARE c CURSOR FOR SELECT FROM pg_class; SELECT count(*) FROM jobq.claim('{mail}'); COMMIT}), 0, 'a claim beside a cursor');
sqlstate_is($node, 'postgres', q{BEGIN; DECLARE c CURSOR FOR SELECT FROM pg_class; SELECT FROM jobq.claim('{mail}', wait => '1s')}, '25001',
	'no wait beside a cursor');

# ---------- notifications ----------

my $listener = $node->background_psql('postgres', on_error_stop => 0);
$listener->query_safe('LISTEN jobq_other');

# The notifications that have come until a job of the type is claimed or cancelled.
sub heard
{
	my ($what) = @_;
	my $out = '';

	foreach (1 .. 50 * $PostgreSQL::Test::Utils::timeout_default)
	{
		$out .= $listener->query('SELECT 1');
		last if $out =~ /Asynchronous notification "jobq_other"/;
		Time::HiRes::usleep(20_000);
	}
	return like($out, qr/Asynchronous notification "jobq_other"/, $what);
}
one(q{SELECT jobq.complete_many(array_agg(id), array_agg(lease_token)) FROM jobq.queue});
one(q{SELECT jobq.enqueue('other')});
heard('a job that no claim waits for');
is(one(q{SELECT count(*) FROM jobq.claim('{other}')}), 1, 'it is claimed');
one(q{SELECT jobq.cancel_job(id) FROM jobq.queue});
heard('a cancel');
is(one(q{SELECT jobq.heartbeat(id, lease_token) FROM jobq.queue}), 'cancel', 'which the heartbeat shows');
one(q{SELECT jobq.fail(id, lease_token, 'stopped') FROM jobq.queue});
$a->{stdin} .= "SELECT 'a ' || count(*) FROM jobq.claim('{other}', wait => '20s') c;\n";
$a->{run}->pump_nb;
waits_for_claims(1);
one(q{SELECT jobq.enqueue('other')});
like($a->query_until(qr/a \d/, ''), qr/a 1/, 'a waiting claim gets the next job');
one(q{SELECT jobq.health()}) for 1 .. 2;
unlike($listener->query('SELECT 1'), qr/Asynchronous/, 'nothing is notified then');

# ---------- an idle wait ----------

$a->{stdin} .= "SELECT 'a ' || (payload->>'n') FROM jobq.claim('{mail}', wait => '20s') c;\n";
$a->{run}->pump_nb;
waits_for_claims(1);
my $idle = one(q{SELECT pid FROM pg_stat_activity WHERE query LIKE 'SELECT % FROM jobq.claim(%' AND state = 'active' AND pid <> pg_backend_pid()});

sub wakes { return slurp_file("/proc/$_[0]/status") =~ /^voluntary_ctxt_switches:\s+(\d+)/m ? $1 : -1; }
my $before = wakes($idle);
one(q{SELECT pg_sleep(6)});
cmp_ok(wakes($idle) - $before, '<', 3, 'a waiting claim sleeps');
($pid) = jobq_pids($node, 'dispatcher');
one("SELECT pg_terminate_backend($pid)");
wait_for_sql($node, "SELECT count(*) = 1 AND min(pid) <> $pid FROM pg_stat_activity WHERE backend_type = 'jobq dispatcher'", 'another dispatcher');
one(q{SELECT jobq.enqueue('mail', '{"n": 9}')});
like($a->query_until(qr/a \d/, ''), qr/a 9/, 'it outlives a dispatcher');

# ---------- many idle waits ----------

my $file = PostgreSQL::Test::Utils::tempdir() . '/wait.sql';
append_to_file($file, "SELECT count(*) FROM jobq.claim('{mail}', wait => '20s');\n");

# Clock ticks of CPU time that the processes have used.
sub ticks
{
	my $sum = 0;

	foreach (@_)
	{
		my @stat = split / /, slurp_file("/proc/$_/stat") =~ s/.*\) //sr;
		$sum += $stat[11] + $stat[12];
	}
	return $sum;
}
my $crowd = IPC::Run::start([ 'pgbench', '--no-vacuum', '--client=200', '--transactions=1000000', "--file=$file", '--host', $node->host,
		'--port', $node->port, 'postgres' ], '<', \undef, '>', '/dev/null', '2>', '/dev/null');
waits_for_claims(200);
my @idle = split /\n/, one(q{SELECT pid FROM pg_stat_activity WHERE query LIKE 'SELECT % FROM jobq.claim(%' AND state = 'active' AND pid <> pg_backend_pid()});
my $wakeups = q{SELECT (SELECT sum(value::bigint) FROM jsonb_each_text(wakeups) WHERE key <> 'timer') FROM jobq.stat_dispatcher};
my ($cpu, $others);
foreach (1 .. 4)	# the claims may end and begin anew meanwhile
{
	($cpu, $others) = (ticks(@idle), one($wakeups));
	one(q{SELECT pg_sleep(4)});
	($cpu, $others) = (ticks(@idle) - $cpu, one($wakeups) - $others);
	last if $others < 20;
}
cmp_ok($cpu, '<', 20, "200 waiting claims use no CPU in 4 s: $cpu ticks of 10 ms");
cmp_ok($others, '<', 20, "nor do they wake the dispatcher: $others");
my $running = one(q{SELECT count(*) FROM jobq.queue WHERE status = 'running'});
one(q{SELECT count(jobq.enqueue('mail')) FROM generate_series(1, 200)});
wait_for_sql($node, "SELECT count(*) = 200 + $running FROM jobq.queue WHERE status = 'running'", 'they get 200 jobs');
$crowd->kill_kill;
wait_for_sql($node, q{SELECT count(*) = 0 FROM pg_stat_activity WHERE query LIKE 'SELECT count(*) FROM jobq.claim(%' AND pid <> pg_backend_pid()}, 'the sessions of the crowd have ended');
one(q{SELECT jobq.complete_many(array_agg(id), array_agg(lease_token)) FROM jobq.queue WHERE status = 'running'});

# ---------- wake-ups of the dispatcher ----------

one(<<'END');
CREATE PROCEDURE work(jobs int) LANGUAGE plpgsql AS $$
DECLARE
  job record;
BEGIN
  FOR i IN 1 .. jobs LOOP
    SELECT id, lease_token INTO STRICT job FROM jobq.claim('{mail}');
    COMMIT;
    PERFORM jobq.complete(job.id, job.lease_token);
    COMMIT;
  END LOOP;
END $$;
SELECT count(*) FROM jobq.enqueue_many('mail', array_fill('{}'::jsonb, '{200}'));
END
($pid) = jobq_pids($node, 'dispatcher');
$before = wakes($pid);
one('CALL work(200)');
my $woken = wakes($pid) - $before;
cmp_ok($woken, '<', 300, "200 jobs claimed and completed: $woken wake-ups of the dispatcher, one for each claim");

# ---------- a client that is gone ----------

my $dead = $node->background_psql('postgres', on_error_stop => 0);
$dead->{stdin} .= "SELECT 'dead ' || count(*) FROM jobq.claim('{mail}', wait => '20s') c;\n";
$dead->{run}->pump_nb;
waits_for_claims(1);
$dead->{run}->kill_kill;
one(q{SELECT jobq.enqueue('mail', '{"n": "alive"}')});
is(one(q{SELECT payload->>'n', attempts FROM jobq.claim('{mail}', wait => '10s')}), 'alive|1', 'a waiting claim whose client was killed gets no job');
wait_for_sql($node, q{SELECT count(*) = 0 FROM pg_stat_activity WHERE query LIKE '%dead%' AND pid <> pg_backend_pid()}, 'its session has ended');

# The answer and the end of the connection meet: the session is stopped while both happen.
$dead = $node->background_psql('postgres', on_error_stop => 0);
$dead->{stdin} .= "SELECT 'dead ' || count(*) FROM jobq.claim('{mail}', wait => '20s') c;\n";
$dead->{run}->pump_nb;
waits_for_claims(1);
my $backend = one(q{SELECT pid FROM pg_stat_activity WHERE query LIKE '%dead%' AND pid <> pg_backend_pid()});
kill 'STOP', $backend;
one(q{SELECT jobq.enqueue('mail', '{"n": "met"}')});
is(one(q{SELECT count(*) FROM jobq.claim('{mail}')}), 0, 'the stopped session has an answer');
$dead->{run}->kill_kill;
kill 'CONT', $backend;
is(one(q{SELECT payload->>'n', attempts FROM jobq.claim('{mail}', wait => '10s')}), 'met|1', 'an answer for a client that is gone goes back, uncharged');
is(one(q{SELECT runs FROM jobq.jobs WHERE payload->>'n' = 'met'}), 1, 'its row was not written');

# ---------- an open claim beyond its lease ----------

one(q{SELECT jobq.enqueue('mail', '{"n": "late"}')});
$b->query_safe(q{BEGIN; SELECT FROM jobq.claim('{mail}', lease => '1s')});
wait_for_sql($node, q{SELECT count(*) = 0 FROM pg_stat_activity WHERE state = 'idle in transaction'}, 'a session that stays idle beyond the lease is terminated');
is(one(q{SELECT payload->>'n', attempts FROM jobq.claim('{mail}', wait => '10s')}), 'late|1', 'its job is claimed by another one, uncharged');
done_testing();
