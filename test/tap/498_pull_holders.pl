# Transactions that have a claimed job locked when its lease or deadline is over: the session that
# called a function about the job is terminated after a while, other lockers are not.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('holders', 'max_connections = 40', 'fsync = off');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
SELECT jobq.create_job_type('mail', max_attempts => 1, options => '{"alert": false}'),
  jobq.create_job_type('short', timeout => '4s', max_attempts => 1, options => '{"alert": false}');
CREATE TABLE held (name text PRIMARY KEY, id uuid, token uuid);
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub one { return $node->safe_psql('postgres', $_[0]); }

my (%session, %pid);

# Claims a job of the type in a session of that name.
sub take
{
	my ($name, $type, $lease) = @_;

	$session{$name} = $node->background_psql('postgres', on_error_stop => 0);
	$pid{$name} = $session{$name}->query('SELECT pg_backend_pid()');
	$session{$name}->query("SELECT jobq.enqueue('$type')");
	return $session{$name}->query("INSERT INTO held SELECT '$name', id, lease_token FROM jobq.claim('{$type}', lease => '$lease', wait => '10s')");
}

sub call
{
	my ($function, $name) = @_;

	return "SELECT jobq.$function(id, token) FROM held WHERE name = '$name'";
}

sub is_terminated { return wait_for_sql($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid{$_[0]}", "$_[0]: its session is terminated"); }

sub lives { return is($session{$_[0]}->query('SELECT 1'), 1, "$_[0]: its session lives"); }

sub ends
{
	my ($name, $code) = @_;

	return wait_for_sql($node, "SELECT status = 'error' AND error_code = '$code' FROM jobq.jobs JOIN held USING (id) WHERE name = '$name'", "$name: the attempt ends with $code");
}

# ---------- within the lease and for a while after it nothing happens ----------

take('late', 'mail', '3s');
is($session{late}->query('BEGIN; ' . call('heartbeat', 'late')), 'ok', 'a heartbeat that is committed soon after the lease');
take('patient', 'mail', '3s');
is($session{patient}->query('BEGIN; ' . call('complete', 'patient')), 't', 'and a completion');
one('SELECT pg_sleep(5)');
lives($_) foreach qw(late patient);
$session{$_}->query_safe('COMMIT') foreach qw(late patient);
is(one(q{SELECT status FROM jobq.jobs JOIN held USING (id) WHERE name = 'patient'}), 'completed', 'a completion that commits counts');

# ---------- open transactions, beyond that ----------

take('other', 'mail', '5min');
is($session{other}->query('BEGIN; ' . call('heartbeat', 'other')), 'ok', 'other: within the lease');
foreach (qw(heartbeat deadline))
{
	take($_, $_ eq 'deadline' ? 'short' : 'mail', '5s');
	is($session{$_}->query('BEGIN; ' . call('heartbeat', $_)), 'ok', "$_: an open heartbeat");
}
take('complete', 'mail', '5s');
is($session{complete}->query('BEGIN; ' . call('complete', 'complete')), 't', 'an open completion');
take('fail', 'mail', '5s');
is($session{fail}->query(q{BEGIN; SELECT jobq.fail(id, token, 'no') FROM held WHERE name = 'fail'}), 'error', 'an open failure');
take('busy', 'mail', '5s');
$session{busy}->{stdin} .= 'BEGIN; ' . call('heartbeat', 'busy') . "; SELECT pg_sleep(300);\n";
$session{busy}->{run}->pump_nb;
take('locker', 'mail', '5s');
$session{locker}->query_safe(q{BEGIN; SELECT FROM jobq.queue JOIN held USING (id) WHERE name = 'locker' FOR UPDATE OF queue});
take('canceller', 'mail', '5s');
$session{canceller}->query_safe(q{BEGIN; SELECT jobq.cancel_job(id) FROM held WHERE name = 'canceller'});
take('saved', 'mail', '5s');
is($session{saved}->query('BEGIN; SAVEPOINT s; ' . call('heartbeat', 'saved') . '; ROLLBACK TO s'), 'ok', 'a heartbeat that a savepoint takes back');
take('prepared', 'mail', '5s');
$session{prepared}->query_safe('BEGIN; ' . call('complete', 'prepared') . q{; PREPARE TRANSACTION 'p'});
is($session{locker}->query(call('complete', 'other') =~ s/'other'/'none'/r), '', 'the locker calls a function in vain');
is_terminated($_) foreach qw(heartbeat complete fail busy deadline);
ends($_, 'lease_expired') foreach qw(heartbeat complete fail busy saved);
ends('deadline', 'timeout');
lives($_) foreach qw(locker canceller saved other);
is($session{other}->query_safe('COMMIT; ' . call('complete', 'other')), 't', 'another lease goes on');
like(slurp_file($node->logfile), qr/jobq: session $pid{complete} is terminated/, 'the log says so');
wait_for_text($node->logfile, qr/jobq: the lease of job \S+ is over, but another transaction has its row locked/);
like(slurp_file($node->logfile), qr/but another transaction has its row locked/, 'and names a job that another transaction has');

# ---------- a commit that waits for a standby ----------

one(q{ALTER SYSTEM SET synchronous_commit = local});
one(q{SELECT pg_reload_conf()});
wait_for_sql($node, q{SELECT current_setting('synchronous_commit') = 'local'}, 'sessions do not wait for a standby');
one(q{ALTER SYSTEM SET synchronous_standby_names = 'none'});
one(q{SELECT pg_reload_conf()});
take('claimed', 'mail', '5s');
take('synced', 'mail', '5s');
one(q{SELECT jobq.enqueue('mail')});
foreach (qw(synced claimed))
{
	$session{$_}->query_safe('SET synchronous_commit = on; BEGIN');
	is($session{$_}->query($_ eq 'synced' ? call('complete', 'synced') : q{SELECT true FROM jobq.claim('{mail}', lease => '3s', wait => '0')}), 't', "$_: called");
	$session{$_}->{stdin} .= "COMMIT;\n\\echo over\n";
	$session{$_}->{run}->pump_nb;
	wait_for_sql($node, "SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = $pid{$_}", "$_: its commit waits for a standby");
}
one('SELECT pg_sleep(17)');
is(one("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND pid IN ($pid{synced}, $pid{claimed})"), 2, 'beyond the lease, too');
one(q{ALTER SYSTEM RESET synchronous_standby_names});
one(q{SELECT pg_reload_conf()});
$session{$_}->query_until(qr/over/, '') foreach qw(synced claimed);
lives($_) foreach qw(synced claimed);
is(one(q{SELECT status FROM jobq.jobs JOIN held USING (id) WHERE name = 'synced'}), 'completed', 'the completion counts');

# ---------- others end by themselves ----------

is(one(q{SELECT status FROM jobq.jobs JOIN held USING (id) WHERE name = 'prepared'}), 'running', 'a prepared completion holds the lease');
one(q{COMMIT PREPARED 'p'});
is(one(q{SELECT status FROM jobq.jobs JOIN held USING (id) WHERE name = 'prepared'}), 'completed', 'and counts');
$session{$_}->query_safe('ROLLBACK') foreach qw(locker canceller);
ends($_, 'lease_expired') foreach qw(locker canceller);
eval { $session{$_}->quit } foreach keys %session;
done_testing();
