# Jobs and the identity of a database where transaction ids pass 2^32.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('epoch', 'autovacuum = off', 'fsync = off');
my $setup = q{CREATE EXTENSION jobq; CREATE FUNCTION nothing(p jsonb) RETURNS void LANGUAGE sql AS '';
  SELECT jobq.create_job_type('nothing', 'nothing(jsonb)'), jobq.create_job_type('waits', 'nothing(jsonb)'), jobq.pause_job_type('waits')};
$node->start;
$node->safe_psql('postgres', $setup);
$node->safe_psql('postgres', <<'END');
ALTER DATABASE template0 ALLOW_CONNECTIONS true;
CREATE TABLE other (n int);
CREATE FUNCTION subtransactions(n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  FOR i IN 1 .. n LOOP
    BEGIN
      INSERT INTO public.other VALUES (i);
    EXCEPTION WHEN division_by_zero THEN NULL;
    END;
  END LOOP;
END $$;
END

sub value { return $node->safe_psql('postgres', $_[0]); }

sub next_xid { return value('SELECT pg_snapshot_xmax(pg_current_snapshot())'); }

sub jobs_run
{
	my ($what, $db) = @_;
	my $id = $node->safe_psql($db // 'postgres', "SELECT jobq.enqueue('nothing')");

	return wait_status($node, $db // 'postgres', $id, 'completed', "$what: a job runs");
}

# Freezes all rows, then sets the server's next xid and creates its page of the commit log.
sub advance_to
{
	my ($xid) = @_;
	my $segment = sprintf '%s/pg_xact/%04X', $node->data_dir, $xid / (32 * 8192 * 4);

	$node->safe_psql($_, 'VACUUM FREEZE') foreach qw(template0 template1 postgres);
	$node->stop;
	append_to_file($segment, "\0" x (32 * 8192)) unless -e $segment;
	command_ok([ 'pg_resetwal', "--next-transaction-id=$xid", '--pgdata=' . $node->data_dir ], "the next xid is $xid");
	$node->start;
	return wait_dispatcher($node, 'postgres', "at $xid the dispatcher runs");
}

wait_dispatcher($node, 'postgres', 'the dispatcher runs');
jobs_run('at first');
advance_to(2_000_000_000);
advance_to(4_000_000_000);
jobs_run('after half of the ids');
advance_to(2**32 - 3000);
jobs_run('before 2^32');

# A transaction that enqueues, a snapshot and a prepared transaction, all from this side
my $open = $node->background_psql('postgres');
$open->query_safe(q{BEGIN; SELECT jobq.enqueue('nothing', '{"open": 1}')});
my $reader = $node->background_psql('postgres');
$reader->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM jobq.queue');
value(q{BEGIN; SELECT jobq.enqueue('nothing', '{"prepared": 1}'); PREPARE TRANSACTION 'held'});
my $waits = value(q{SELECT jobq.enqueue('waits', unique_key => 'k')});
cmp_ok(next_xid(), '<', 2**32, 'all of them have ids before 2^32');
value('SELECT subtransactions(4000)');
cmp_ok(next_xid(), '>', 2**32, 'the ids pass 2^32');
jobs_run('after 2^32');
is(value(q{SELECT jobq.enqueue('waits', unique_key => 'k')}), $waits, 'a unique key from before is held');
is($reader->query_safe('SELECT count(*) FROM jobq.queue'), 0, 'an old snapshot sees its rows');
$open->query_safe('COMMIT');
value(q{COMMIT PREPARED 'held'});
wait_for_sql($node, q{SELECT count(*) = 2 FROM jobq.history WHERE payload ?| '{open,prepared}'}, 'jobs that were open meanwhile run');
$_->quit foreach $open, $reader;
value(q{SELECT jobq.resume_job_type('waits')});
wait_status($node, 'postgres', $waits, 'completed', 'and those that waited');

# Identity: homes from both sides
is(value("SELECT jobq.health() #>> '{checks,identity,status}'"), 'healthy', 'the home from before 2^32 is known');
value('CREATE DATABASE later');
$node->safe_psql('later', $setup);
wait_dispatcher($node, 'later', 'a dispatcher in a database from after 2^32');
jobs_run('there', 'later');
cmp_ok($node->safe_psql('later', 'SELECT max(self_xid::text::bigint) FROM jobq.home'), '>', 2**32, 'and its home row is from after 2^32');
$node->restart;
wait_dispatcher($node, $_, "$_: the dispatcher runs again") foreach qw(postgres later);
jobs_run('after a restart');
jobs_run('after a restart there', 'later');
is($node->safe_psql('later', "SELECT jobq.health() #>> '{checks,identity,status}'"), 'healthy', 'both homes are known');
unlike(slurp_file($node->logfile), qr/jobq \w+ (ERROR|FATAL|PANIC):  (?!terminating)/, 'no errors of our own');
$node->stop;
done_testing();
