# Claims that the dispatcher can't answer at once: a locked registry, a stopped dispatcher; and news
# of open claims that the full ring has lost.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('unanswered', 'max_connections = 40', 'fsync = off', 'jobq.max_lanes = 64', "jobq.sweep_interval = '1h'");
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
SELECT jobq.create_job_type(t) FROM unnest('{mail,other,locked}'::text[]) t;
END
my $dispatcher = wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub one { return $node->safe_psql('postgres', $_[0]); }

# A session that has read the registry.
sub session
{
	my $session = $node->background_psql('postgres', on_error_stop => 0);

	$session->query(q{SELECT count(*) FROM jobq.claim('{mail,other,locked}')});
	return $session;
}

# Sends a statement and returns its session's pid when it waits in a claim.
sub waits
{
	my ($session, $sql) = @_;
	my $pid = $session->query('SELECT pg_backend_pid()');

	$session->{stdin} .= "$sql;\n\\echo over\n";
	$session->{run}->pump_nb;
	wait_for_sql($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE pid = $pid AND wait_event_type = 'Extension'", 'a claim waits');
	return $pid;
}

# More transactions than the ring has entries, while the dispatcher reads none.
sub fill_ring
{
	return one(q{DO $$ BEGIN FOR n IN 1 .. 99 LOOP PERFORM jobq.enqueue('other', priority => n); COMMIT; END LOOP; END $$});
}

# ---------- a claim that arrives while the registry is locked ----------

my ($a, $b, $admin) = (session(), session(), session());
one(q{SELECT jobq.enqueue('mail')});
one('SELECT jobq.health()') foreach 1 .. 2;
$admin->query_safe('BEGIN; LOCK TABLE jobq.job_types');
waits($a, q{SELECT 'got' FROM jobq.claim('{mail}', wait => '15s')});
is($b->query(q{SELECT count(*) FROM jobq.claim('{mail}')}), 0, 'the dispatcher has seen it');
$admin->query_safe('COMMIT');
like($a->query_until(qr/over/, ''), qr/^got/m, 'it gets its job when the lock is released');

# ---------- a dispatcher that does not answer ----------

freeze($node, $dispatcher);
sqlstate_is($node, 'postgres', q{SET statement_timeout = '60s'; SELECT FROM jobq.claim('{mail}')}, '55000', 'no answer for some seconds');
kill 'CONT', $dispatcher;
is(one(q{SELECT count(jobq.enqueue('mail')) FROM jobq.claim('{mail}')}), 0, 'then it answers again');

# ---------- jobs that an open transaction has given back ----------

one(q{SELECT jobq.enqueue('mail') FROM generate_series(1, 2)});
is($a->query(q{BEGIN; SAVEPOINT s; SELECT count(*) FROM jobq.claim('{mail}', 3, lease => '10s', wait => '0')}), 2, 'two jobs are claimed');
is($a->query(q{SELECT count(*) FROM jobq.claim('{mail}')}), 0, 'and no more');
freeze($node, $dispatcher);
fill_ring();
$a->query_safe('ROLLBACK TO s');
kill 'CONT', $dispatcher;
is(one(q{SELECT count(*) FROM jobq.claim('{mail}', 3, wait => '5s')}), 2, 'a savepoint gives them back though the ring is full');
$a->query('SELECT pg_sleep(11)');
is($a->query('SELECT 1'), 1, 'its session lives on beyond their lease');
$a->query_safe('ROLLBACK');

# ---------- a claim that finds a locked row ----------

my $pid = waits($b, q{BEGIN; SELECT 'b' FROM jobq.claim('{locked}', 2, wait => '20s', lease => '30s')});
kill 'STOP', $pid;
my $x = one(q{SELECT jobq.enqueue('locked')});
is(one(q{SELECT count(*) FROM jobq.claim('{locked}')}), 0, 'it has an answer');
$admin->query_safe("BEGIN; SELECT FROM jobq.queue WHERE id = '$x' FOR UPDATE");
freeze($node, $dispatcher);
fill_ring();
kill 'CONT', $pid;
wait_for_sql($node, "SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = $pid", 'it asks again');
$admin->query_safe('ROLLBACK');
kill 'CONT', $dispatcher;
like($b->query_until(qr/over/, ''), qr/^b/m, 'the claim gets the job when its row is free');
$_->quit foreach $a, $b, $admin;
done_testing();
