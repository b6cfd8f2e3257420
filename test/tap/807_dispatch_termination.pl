# Work pending in a terminated process: reports and requests in a dispatcher, recent results of a
# session that is stopped right after its commit.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('words', 'jobq.max_sql_workers = 2', "jobq.sweep_interval = '1h'", 'fsync = off');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE TABLE begun (n int);
CREATE FUNCTION stubborn(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM nextval('public.begun_seq');
  LOOP
    BEGIN
      PERFORM pg_sleep(600);
    EXCEPTION WHEN query_canceled THEN NULL;
    END;
  END LOOP;
END $$;
CREATE SEQUENCE begun_seq;
CREATE FUNCTION gated(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM nextval('public.begun_seq');
  PERFORM pg_advisory_xact_lock_shared(1);
END $$;
CREATE FUNCTION noop(p jsonb) RETURNS void LANGUAGE sql AS 'SELECT';
SELECT jobq.create_job_type('stubborn', 'stubborn(jsonb)', max_attempts => 1, timeout => '5s');
SELECT jobq.create_job_type('gated', 'gated(jsonb)', max_attempts => 1);
SELECT jobq.create_job_type('noop', 'noop(jsonb)', keep_completed => '0');
SELECT jobq.create_job_type('waits', 'noop(jsonb)', keep_completed => '0'), jobq.pause_job_type('waits');
END

sub scalar_of { return $node->safe_psql('postgres', $_[0]); }

sub terminate
{
	my ($pid) = @_;

	scalar_of("SELECT pg_terminate_backend($pid)");
	return wait_for_sql($node, "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $pid)", 'it has left');
}

wait_dispatcher($node, 'postgres', 'the dispatcher runs');

# ---------- a report: the handler ignored its timeout, and its process was terminated ----------

my $id = scalar_of(q{SELECT jobq.enqueue('stubborn', '{}')});
wait_status($node, 'postgres', $id, 'running', 'a handler runs');
scalar_of(q{SELECT jobq.stop_all('nothing is settled meanwhile')});
wait_for_sql($node, "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'jobq sql worker')",
	'its process was ended');
wait_status($node, 'postgres', $id, 'pending', 'the dispatcher has the report');
my $victim = dispatcher($node, 'postgres');
terminate($victim);
wait_dispatcher($node, 'postgres', 'another dispatcher', $victim);
scalar_of('SELECT jobq.start_all()');
wait_status($node, 'postgres', $id, 'error', 'the job has failed');
is(scalar_of("SELECT error_code || ' ' || attempts FROM jobq.jobs WHERE id = '$id'"), 'timeout 1', 'by its timeout');
is(scalar_of('SELECT last_value FROM begun_seq'), 1, '!and was not run again');

# ---------- a request: taken, and not carried out yet ----------

my $gate = $node->background_psql('postgres');
$gate->query_safe('SELECT pg_advisory_lock(1)');
$id = scalar_of(q{SELECT jobq.enqueue('gated', '{}')});
wait_for_sql($node, "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", 'a handler waits');
my ($worker) = jobq_pids($node, 'sql worker');
$victim = dispatcher($node, 'postgres');
freeze($node, $victim);
is(scalar_of("SELECT jobq.cancel_job('$id')"), 't', 'a cancel of it');
terminate($worker);
my $locker = $node->background_psql('postgres');
$locker->query_safe('BEGIN');
$locker->query_safe('LOCK TABLE jobq.queue IN ACCESS EXCLUSIVE MODE');
my $before = scalar_of('SELECT clock_timestamp()');
kill 'CONT', $victim;
foreach (1 .. 2)
{
	wait_for_sql($node, "SELECT state_change > '$before' FROM pg_stat_activity WHERE pid = $victim AND state = 'idle'",
		'the dispatcher has taken it, and cannot read the queue');
	$before = scalar_of('SELECT clock_timestamp()');
}
terminate($victim);
wait_dispatcher($node, 'postgres', 'another dispatcher', $victim);
$locker->query_safe('COMMIT');
wait_status($node, 'postgres', $id, 'cancelled', 'the job is cancelled');
is(scalar_of('SELECT last_value FROM begun_seq'), 2, '!and was not run again');
$gate->quit;
$locker->quit;

# ---------- a recent result: the session that cancels is stopped right after its commit ----------

my $stall = PostgreSQL::Test::Utils::tempdir();
append_to_file("$stall/stall.c", <<'END');
#include "postgres.h"
#include "access/xact.h"
#include "fmgr.h"
PG_MODULE_MAGIC;
void _PG_init(void);
static void
stall(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT)
		pg_usleep(5000000L);
}
void
_PG_init(void)
{
	RegisterXactCallback(stall, NULL);
}
END
my $headers = $node->config_data('--includedir-server');
$headers =~ s{^.*/server(?=/)}{} unless -e "$headers/postgres.h";	# the private server has no headers
system_or_bail('gcc', '-shared', '-fPIC', "-I$headers", '-o', "$stall/stall.so", "$stall/stall.c");
my @ids = map { scalar_of(q{SELECT jobq.enqueue('waits', '{}')}) } 1 .. 2;
my $session = $node->background_psql('postgres');
$session->query_safe("SELECT jobq.cancel_job('$ids[0]')");
$session->query_safe("LOAD '$stall/stall.so'");
$session->{stdin} .= "SELECT jobq.cancel_job('$ids[1]');\n";
$session->{run}->pump_nb;
wait_for_sql($node, "SELECT NOT EXISTS (SELECT FROM jobq.queue WHERE id = '$ids[1]')", 'the job is gone');
is(scalar_of("SELECT status FROM jobq.wait_for('$ids[1]', '3s')"), 'cancelled', 'wait_for knows how it has ended');
is(scalar_of("SELECT status FROM jobq.wait_for('$ids[0]', '0s')"), 'cancelled', 'and of one before');
$session->query_safe('SELECT 1');
is(scalar_of("SELECT status FROM jobq.wait_for('$ids[1]', '0s')"), 'cancelled', 'it still knows when the session goes on');
$session->query_safe('BEGIN');
my $third = scalar_of(q{SELECT jobq.enqueue('waits', '{}')});
$session->query_safe("SELECT jobq.cancel_job('$third')");
$session->query_safe('ROLLBACK');
is(scalar_of("SELECT status IS NULL FROM jobq.wait_for('$third', '0s')"), 't', 'an end rolled back does not count');
$session->quit;
$node->stop;
done_testing();
