# A claim that waits holds no lock; commands on the extension, the drop of its type and a shutdown
# end it at once, with an error that says so.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use Time::HiRes 'time';

my $node = jobq_server('ends', 'fsync = off');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
SELECT jobq.create_job_type('mail'), jobq.create_job_type('other'), jobq.create_job_type('gone');
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub one { return $node->safe_psql('postgres', $_[0]); }

my $waits = "state = 'active' AND wait_event_type = 'Extension' AND query LIKE 'SELECT % FROM jobq.claim(%' AND pid <> pg_backend_pid()";

# Returns a session whose claim waits, when it began, and its server process.
sub waiting
{
	my ($types) = @_;
	my $session = $node->background_psql('postgres', on_error_stop => 0);
	my $pid = $session->query('SELECT pg_backend_pid()');

	$session->{stdin} .= "\\set VERBOSITY verbose\nSELECT 'got ' || count(*) FROM jobq.claim($types, wait => '20s');\n\\echo over :SQLSTATE\n";
	$session->{run}->pump_nb;
	wait_for_sql($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE pid = $pid AND $waits", "claim($types) waits");
	return { session => $session, pid => $pid, began => time };
}

# Tests how the wait has ended, long before its time.
sub ends
{
	my ($claim, $state, $message, $what) = @_;
	my $out = $claim->{session}->query_until(qr/over \w+/, '');

	cmp_ok(time - $claim->{began}, '<', 15, "$what: at once");
	like($out, qr/over $state/, "$what: $state");
	like($claim->{session}{stderr}, $message, "$what: the reason");
	$claim->{session}{stderr} = '';
	return $claim->{session}->quit;
}

my $extension = qr/jobq\.claim no longer waits: the extension jobq is being updated or dropped/;

# --- locks

foreach my $types ('NULL', q('{mail,other}'))
{
	my $claim = waiting($types);

	is(one("SELECT string_agg(locktype, ' ') FROM pg_locks WHERE pid = $claim->{pid} AND locktype <> 'virtualxid'"), '', "claim($types) holds no lock");
	one('BEGIN; DROP EXTENSION jobq; ROLLBACK');
	ends($claim, '55000', $extension, 'a DROP EXTENSION that is rolled back');
}
is(one('SELECT count(*) FROM jobq.job_types'), 3, 'nothing has changed');

# --- a command that waits for a lock: claims that begin meanwhile end at its commit

my $holder = $node->background_psql('postgres');
$holder->query_safe('BEGIN; SELECT FROM jobq.queue');
my $before = waiting('NULL');
my $update = $node->background_psql('postgres', on_error_stop => 0);
$update->{stdin} .= "BEGIN; ALTER EXTENSION jobq UPDATE; LOCK jobq.queue; COMMIT;\n\\echo updated\n";
$update->{run}->pump_nb;
ends($before, '55000', $extension, 'ALTER EXTENSION UPDATE');
wait_for_sql($node, "SELECT count(*) = 1 FROM pg_locks WHERE relation = 'jobq.queue'::regclass AND NOT granted", 'the update waits');
my $meanwhile = waiting('NULL');
$holder->query_safe('COMMIT');
$update->query_until(qr/updated/, '');
ends($meanwhile, '55000', $extension, 'its commit');
$_->quit foreach $holder, $update;
one(q{SELECT jobq.enqueue('mail', '{"n": 1}')});
is(one(q{SELECT payload->>'n' FROM jobq.claim(NULL, wait => '10s')}), 1, 'the next claim gets a job');
one('SELECT jobq.complete(id, lease_token) FROM jobq.queue');

# --- a dropped type

my ($named, $all, $others) = map { waiting($_) } q('{mail,gone}'), 'NULL', q('{mail,other}');
one(q{SELECT jobq.drop_job_type('gone')});
ends($named, '42704', qr/argument "job_types": job type "gone" does not exist/, 'a named type is dropped');
my $out = $all->{session}->query_until(qr/over \w+/, '');
cmp_ok(time - $all->{began}, '<', 15, 'a claim of every type ends, too');
like($out, qr/got 0\s+over 00000/, 'without a job');
$all->{session}->quit;
is(one("SELECT count(*) FROM pg_stat_activity WHERE pid = $others->{pid} AND $waits"), 1, 'a claim of other types goes on');
one(q{SELECT jobq.enqueue('other')});
like($others->{session}->query_until(qr/over \w+/, ''), qr/got 1\s+over 00000/, 'and gets a job');
$others->{session}->quit;

# A claim that the dispatcher sees after the drop.
one(q{SELECT jobq.create_job_type('late')});
my $late = $node->background_psql('postgres', on_error_stop => 0);
my $pid = $late->query('SELECT pg_backend_pid()');
$late->query_safe(q{SELECT count(*) FROM jobq.claim('{late}')});
my ($dispatcher) = jobq_pids($node, 'dispatcher');
freeze($node, $dispatcher);
$late->{stdin} .= "\\set VERBOSITY verbose\nSELECT 'got ' || count(*) FROM jobq.claim('{late}', wait => '20s');\n\\echo over :SQLSTATE\n";
$late->{run}->pump_nb;
wait_for_sql($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE pid = $pid AND $waits", 'a claim that is not served yet');
my $began = time;
one(q{SELECT jobq.drop_job_type('late')});
kill 'CONT', $dispatcher;
ends({ session => $late, began => $began }, '42704', qr/job type "late" does not exist/, 'its type is dropped');

# --- DROP EXTENSION

my ($dropped, $too) = (waiting('NULL'), waiting(q('{other}')));
$began = time;
one('DROP EXTENSION jobq');
cmp_ok(time - $began, '<', 15, 'DROP EXTENSION does not wait for them');
ends($_, '55000', $extension, 'DROP EXTENSION') foreach $dropped, $too;

# --- shutdown

one(q{CREATE EXTENSION jobq; SELECT jobq.create_job_type('mail')});
wait_dispatcher($node, 'postgres', 'the dispatcher of a new extension', $dispatcher);
my $last = waiting('NULL');
$began = time;
$node->stop('fast');
cmp_ok(time - $began, '<', 15, 'a fast shutdown does not wait for it');
$last->{session}{run}->pump until $last->{session}{stderr} =~ /terminating|closed/ || !$last->{session}{run}->pumpable;
like($last->{session}{stderr}, qr/57P01: terminating connection due to administrator command/, 'the client is told');
eval { $last->{session}->quit };
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|signal 11/, 'no crash');
done_testing();
