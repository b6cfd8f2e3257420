# Leases over a promotion, steps of the wall clock, a dropped type and a dropped extension.

use strict;
use warnings;

use ClockTest;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my %faked = fake_clock();
my $node = jobq_server('faults', 'fsync = off', 'jobq.max_lanes = 64');
my $where = $node;

sub one { return $where->safe_psql('postgres', $_[0]); }

# A job of the type is claimed under a name, with that lease.
sub take
{
	my ($name, $type, $lease) = @_;

	one("SELECT jobq.enqueue('$type')");
	one("INSERT INTO held SELECT '$name', id, lease_token FROM jobq.claim('{$type}', lease => '$lease', wait => '20s')");
	return is(one("SELECT count(*) FROM held WHERE name = '$name'"), 1, "$name is claimed");
}

sub call
{
	my ($function, $name, $more) = @_;

	return one("SELECT jobq.$function(id, token" . ($more // '') . ") FROM held WHERE name = '$name'");
}

sub expires
{
	my ($name, $what) = @_;

	wait_for_sql($where, "SELECT error_code = 'lease_expired' FROM jobq.jobs JOIN held USING (id) WHERE name = '$name'", $what);
	return is(call('complete', $name), 'f', "the token of $name is lost");
}

{
	local %ENV = (%ENV, %faked);
	$node->start;
}
one(<<'END');
CREATE EXTENSION jobq;
SELECT jobq.create_job_type(t, max_attempts => 5, timeout => '3h') FROM unnest('{mail,gone}'::text[]) t;
SELECT jobq.create_job_type('filler'), jobq.create_job_type('once', max_attempts => 1, timeout => '3h', options => '{"alert": false}'), jobq.create_job_type('dead', max_attempts => 1, timeout => '9s', options => '{"alert": false}'),
  jobq.create_job_type('stalled', max_attempts => 1, options => '{"stall": "9s", "alert": false}'), jobq.create_job_type('patient', options => '{"stall": "50min"}');
CREATE TABLE held (name text, id uuid, token uuid);
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

# --- steps of the wall clock, with two leases of an hour and one of some seconds

foreach my $step ([ 2 * 3600, 'forward' ], [ 0, 'back' ])
{
	my ($offset, $way) = @$step;

	take("long $way", 'mail', '1h');
	take("short $way", 'mail', '6s');
	my $began = time;
	set_clock($offset);
	expires("short $way", "a step $way: the short lease ends");
	my $took = time - $began;
	ok($took >= 4 && $took < 60, "a step $way: after $took s, neither at once nor after hours");
	is(one("SELECT status FROM jobq.jobs JOIN held USING (id) WHERE name = 'long $way'"), 'running', "a step $way: the long lease goes on");
	is(call('heartbeat', "long $way"), 'ok', "a step $way: its heartbeat");
	is(call('complete', "long $way"), 't', "a step $way: its end");
}

# --- rows that are read again after a step: it changes no lease, no deadline and no stall

sub new_dispatcher
{
	my $former = dispatcher($node, 'postgres');

	one("SELECT pg_terminate_backend($former)");
	return wait_dispatcher($node, 'postgres', 'another dispatcher', $former);
}

# Fills the ring of publications while the dispatcher sleeps.
sub lose_news
{
	my $pid = dispatcher($node, 'postgres');

	freeze($node, $pid);
	one(q{DO $$ BEGIN FOR n IN 1 .. 99 LOOP PERFORM jobq.enqueue('filler', priority => n); COMMIT; END LOOP; END $$});
	kill 'CONT', $pid;
	return;
}

sub status_of { return one("SELECT status FROM jobq.jobs JOIN held USING (id) WHERE name = '$_[0]'"); }

foreach my $step ([ 3 * 3600, 'forward again' ], [ -3 * 3600, 'far back' ], [ 0, 'home' ])
{
	my ($offset, $way) = @$step;
	my %short = ("lease $way" => 'once', "deadline $way" => 'dead', "stall $way" => 'stalled');
	my @long = ("undone $way", "cancelled $way", "kept $way");

	take($_, 'mail', '1h') foreach @long;
	take("patient $way", 'patient', '1h');
	take($_, $short{$_}, $_ =~ /lease/ ? '9s' : '1h') foreach keys %short;
	my $began = time;
	call('heartbeat', "kept $way");
	set_clock($offset);
	is(one("BEGIN; SELECT jobq.complete(id, token) FROM held WHERE name = 'undone $way'; ROLLBACK"), 't', "a completion that is rolled back after a step $way");
	is(one("SELECT jobq.cancel_job(id) FROM held WHERE name = 'cancelled $way'"), 't', 'a cancel');
	one('SELECT jobq.health()') foreach 1 .. 2;
	lose_news();
	one('SELECT jobq.health()') foreach 1 .. 2;
	new_dispatcher();
	one('SELECT jobq.health()') foreach 1 .. 2;
	if (time - $began < 6)
	{
		is(status_of($_), 'running', "$_: it has not ended") foreach keys %short;
	}
	wait_for_sql($node, "SELECT count(*) = 3 FROM jobq.jobs JOIN held USING (id) WHERE status = 'error' AND name IN ('" . join("', '", keys %short) . "')", "$way: short times end");
	cmp_ok(time - $began, '>=', 7, "$way: not before their time");
	cmp_ok(time - $began, '<', 75, "$way: and not long after it");
	is(one("SELECT string_agg(error_code, ' ' ORDER BY name) FROM jobq.jobs JOIN held USING (id) WHERE status = 'error' AND name LIKE '% $way'"),
		'timeout lease_expired stalled', "$way: with their codes");
	is(call('heartbeat', "cancelled $way"), 'cancel', "$way: a lease with a cancel goes on");
	is(call('heartbeat', $_), 'ok', "$_: it goes on") foreach "undone $way", "kept $way", "patient $way";
	is(call('complete', $_), 't', "$_: its end") foreach "undone $way", "kept $way", "patient $way";
	call('fail', "cancelled $way", q{, 'stopped'});
}

# --- a batch of tasks: they have the position of their run, two hours ago

one(q{SELECT jobq.create_job_type('embed', options => '{"min_batch": {"jobs": 5, "wait": "1h"}}');
	SELECT jobq.create_workflow('flow', '[{"key": "first", "job_type": "mail"}, {"key": "each", "job_type": "embed", "after": ["first"], "map": "$.input.all"}]')});
one(q{SELECT jobq.enqueue('flow', '{"all": [1, 2, 3]}')});
one(q{INSERT INTO held SELECT 'first', id, lease_token FROM jobq.claim('{mail}', lease => '1h', wait => '20s')});
set_clock(2 * 3600);
is(call('complete', 'first'), 't', 'a run goes on after two hours');
wait_for_sql($node, q{SELECT count(*) = 3 FROM jobq.queue WHERE task_key LIKE 'each.%'}, 'with a map of three');
is(one(q{SELECT count(*) FROM jobq.claim('{embed}', 10)}), 0, 'they wait for a batch');
one(q{SELECT jobq.enqueue('embed') FROM generate_series(1, 2)});
is(one(q{SELECT count(jobq.complete(id, lease_token)) FROM jobq.claim('{embed}', 10)}), 5, 'which others fill');
set_clock(0);

# --- a dropped type

take('dropped', 'gone', '1h');
sqlstate_is($node, 'postgres', q{SELECT jobq.drop_job_type('gone')}, '55006', 'a type with a claimed job is not dropped');
is(call('heartbeat', 'dropped'), 'ok', 'the refused drop does nothing to the job');
one(q{SELECT jobq.drop_job_type('gone', force => true)});
is(call('heartbeat', 'dropped'), 'cancel', 'force: the client hears of a cancel');
is(call('fail', 'dropped', q{, 'stopped'}), 'error', 'and ends the attempt');
is(one(q{SELECT status FROM jobq.jobs JOIN held USING (id) WHERE name = 'dropped'}), 'cancelled', 'the job is cancelled');

# --- promotion

$node->append_conf('postgresql.conf', 'jobq.sweep_interval = 1s');
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
my ($open, $waits) = map { $node->background_psql('postgres', on_error_stop => 0) } 1 .. 2;
one(q{SELECT jobq.enqueue('mail', '{"open": true}')});
is($open->query_safe(q{BEGIN; SELECT count(*) FROM jobq.claim('{mail}', lease => '1h')}), 1, 'an open claim');
$waits->{stdin} .= "SELECT count(*) FROM jobq.claim('{patient}', wait => '20s');\n";
$waits->{run}->pump_nb;
wait_for_sql($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE '%jobq.claim%' AND wait_event_type = 'Extension'}, 'a waiting claim');
take('lasting', 'mail', '1h');
take('lapsing', 'mail', '5s');
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
$node->stop('immediate');
$standby->promote;
$where = $standby;
wait_dispatcher($standby, 'postgres', 'the dispatcher runs on the promoted server');
eval { $_->quit } foreach $open, $waits;
is(one(q{SELECT status, attempts, runs FROM jobq.jobs WHERE payload ? 'open'}), 'pending|0|0', 'the job of the open claim waits, uncharged');
is(one(q{SELECT count(*) FROM jobq.claim('{mail}', wait => '20s') WHERE payload ? 'open'}), 1, 'and is claimed on the promoted server');
one(q{SELECT jobq.complete(id, lease_token) FROM jobq.queue WHERE payload ? 'open'});
expires('lapsing', 'after a promotion a lease ends');
is(call('heartbeat', 'lasting'), 'ok', 'after a promotion a lease goes on');
is(call('complete', 'lasting'), 't', 'and its job ends');

# --- DROP EXTENSION, with a claimed job and a waiting claim

take('last', 'mail', '1h');
one(q{SELECT jobq.cancel_jobs('mail')});
my $waiting = $standby->background_psql('postgres', on_error_stop => 0);
$waiting->{stdin} .= "SELECT count(*) FROM jobq.claim('{mail}', wait => '20s');\n\\echo SQLSTATE :SQLSTATE\n";
$waiting->{run}->pump_nb;
wait_for_sql($standby, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE '%jobq.claim%' AND wait_event_type = 'Extension'}, 'a claim waits');
my $pid = one('SELECT pid FROM pg_stat_activity WHERE query LIKE $$%jobq.claim%$$ AND pid <> pg_backend_pid()');
one('DROP EXTENSION jobq');
like($waiting->query_until(qr/SQLSTATE \w+/, ''), qr/SQLSTATE 55000/, 'the waiting claim ends');
note $waiting->{stderr};
is($waiting->query('SELECT pg_backend_pid()'), $pid, 'its session lives');
one(q{CREATE EXTENSION jobq; SELECT jobq.create_job_type('mail')});
wait_dispatcher($standby, 'postgres', 'the dispatcher of a new extension');
one('TRUNCATE held');
take('new', 'mail', '1h');
is(call('complete', 'new'), 't', 'jobs run');
is(one('SELECT count(*) FROM held'), 1, 'once');
unlike(slurp_file($_->logfile), qr/PANIC|TRAP|signal 11/, $_->name . ': no crash') foreach $node, $standby;
done_testing();
