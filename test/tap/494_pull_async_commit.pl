# synchronous_commit = off: a crash of the server loses the claim, the job waits again; or the
# completion, the job runs again.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('async', 'fsync = off', "wal_writer_delay = '10s'");
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
SELECT jobq.create_job_type('mail', max_attempts => 9, backoff_base => '0');
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub one { return $node->safe_psql('postgres', $_[0]); }

sub job { return one('SELECT status, attempts, runs FROM jobq.jobs'); }

# Runs a statement with synchronous_commit = off while the WAL writer stands still, then crashes the
# server.  Returns the answer, and whether the commit was flushed all the same.  If another process
# may have flushed it just before the crash, the job says so: it has this status then.
sub crash_after
{
	my ($sql, $status) = @_;
	wait_partitions($node);   # maintenance flushes its commits
	my $writer = one(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'});

	kill 'STOP', $writer;
	my $answer = one("SET synchronous_commit = off; $sql");
	my $flushed = one('SELECT pg_current_wal_flush_lsn() = pg_current_wal_insert_lsn()');
	$node->stop('immediate');	# the postmaster kills a process that stands still
	$node->start;
	wait_dispatcher($node, 'postgres', 'the dispatcher runs after the crash');
	return ($answer, $flushed eq 't' || one('SELECT status FROM jobq.jobs') eq $status);
}

my $claim = q{SELECT id, lease_token FROM jobq.claim('{mail}', lease => '12s', wait => '20s')};

# ---------- a claim ----------

one(q{SELECT jobq.enqueue('mail')});
my ($answer, $flushed) = crash_after($claim, 'running');
my ($id, $token) = split /\|/, $answer;
is(length($token // ''), 36, 'the client had the job');
is(job(), $flushed ? 'running|1|1' : 'pending|0|0', $flushed ? 'the claim is there after the crash' : 'the crash has lost the claim: the job waits, uncharged');
is(one("SELECT jobq.heartbeat('$id', '$token')"), $flushed ? 'ok' : 'lost', 'its token is as valid as the claim');
$flushed || is(one("SELECT jobq.complete('$id', '$token')"), 'f', 'a completion with it changes nothing');
my $runs = $flushed ? 2 : 1;
(my $again, $token) = split /\|/, one($claim);
is($again, $id, $flushed ? 'after its lease the job is claimed again' : 'the job is claimed again');
is(job(), "running|$runs|$runs", 'as the next attempt');

# ---------- a completion ----------

($answer, $flushed) = crash_after("SELECT jobq.complete('$id', '$token')", 'completed');
is($answer, 't', 'the client has completed the job');
my $status = $flushed ? 'completed' : 'running|retry';	# retry: on a slow machine its lease has ended meanwhile
like(job(), qr/^($status)\|$runs\|$runs$/, $flushed ? 'the completion is there after the crash' : 'the crash has lost the completion');
if (!$flushed)
{
	($again, $token) = split /\|/, one($claim);
	is($again, $id, 'after its lease the job is claimed again');
	is(one("SELECT jobq.complete('$id', '$token')"), 't', 'and completed');
}
is(one('SELECT count(*), min(status::text) FROM jobq.jobs'), '1|completed', 'no job is lost, none is there twice');
is(one('SELECT count(*) FROM jobq.queue'), 0, 'nothing is left');
done_testing();
