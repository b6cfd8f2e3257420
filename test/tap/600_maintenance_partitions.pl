# The maintenance process: it makes partitions ahead of need, and never waits
# for a lock holder.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('maintenance', 'log_min_messages = debug1');
$node->start;
my $partitions = "SELECT count(*) FROM jobq_internal._partitions('jobq.history')";
is($node->safe_psql('postgres', "BEGIN; CREATE EXTENSION jobq; $partitions; ROLLBACK"), 0,
	'the install script makes no partition but the default one');
$node->safe_psql('postgres', 'CREATE EXTENSION jobq');
sleeper_types($node, 'postgres');
my $id = $node->safe_psql('postgres', "SELECT jobq.enqueue('sleeper')");
wait_status($node, 'postgres', $id, 'completed', 'the first job ends');
wait_for_sql($node, 'SELECT NOT EXISTS (SELECT FROM jobq_internal._missing_partitions())', 'partitions are made');
cmp_ok($node->safe_psql('postgres', $partitions), '>', 0, 'there they are');
wait_for_sql($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'jobq maintenance'",
	'its creator has left');
is($node->safe_psql('postgres', "SELECT DISTINCT pg_get_userbyid(relowner) FROM pg_class"
		  . " WHERE oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = 'jobq.history'::regclass)"),
	$node->safe_psql('postgres', "SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = 'jobq.queue'::regclass"),
	'it belongs to the owner of the tables');

# A session locks the parent: no job waits, and the partitions come once the lock is free.
my $holder = $node->background_psql('postgres');
$holder->query_safe('BEGIN; LOCK TABLE jobq.history IN SHARE UPDATE EXCLUSIVE MODE');
$node->safe_psql('postgres', q{SELECT jobq.create_job_type('rare', 'sleeper(jsonb)', keep_completed => '1000 days')});
my $rare = $node->safe_psql('postgres', "SELECT jobq.enqueue('rare')");
wait_status($node, 'postgres', $rare, 'completed', 'a job without a partition ends');
is($node->safe_psql('postgres', "SELECT attempts, error_msg IS NULL, (SELECT tableoid::regclass FROM jobq.history h WHERE h.id = j.id) FROM jobq.jobs j WHERE id = '$rare'"),
	'1|t|jobq.history_default', 'in the default one');
$holder->query_safe('COMMIT');
$holder->quit;
my $made = q{SELECT EXISTS (SELECT FROM jobq_internal._partitions('jobq.history') WHERE now() + interval '1000 days' >= low AND now() + interval '1000 days' < high)};
wait_for_sql($node, $made, 'its partition is made when the lock is gone');
$rare = $node->safe_psql('postgres', "SELECT jobq.enqueue('rare')");
wait_status($node, 'postgres', $rare, 'completed', 'the next job');
isnt($node->safe_psql('postgres', "SELECT tableoid::regclass FROM jobq.history WHERE id = '$rare'"), 'jobq.history_default', 'has it');
unlike(slurp_file($node->logfile), qr/jobq maintenance\S* (ERROR|FATAL|WARNING|LOG)/, 'a lock that is taken is no error');

# A change of types has maintenance run once, not for ever.
my $log = -s $node->logfile;
$node->safe_psql('postgres', q{SELECT jobq.create_job_type('once', 'sleeper(jsonb)')});
$node->wait_for_log(qr/starting background worker process "jobq maintenance/, $log);
my $loops = $node->safe_psql('postgres', 'SELECT loops FROM jobq.stat_dispatcher');
wait_for_sql($node, "SELECT loops >= $loops + 5 FROM jobq.stat_dispatcher", 'a few turns later');
wait_for_sql($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'jobq maintenance'", 'it has left');
my $starts = () = slurp_file($node->logfile, $log) =~ /starting background worker process "jobq maintenance/g;
cmp_ok($starts, '<=', 3, 'it has run thrice at most');

# Expired partitions are dropped before others are made: no job that ends waits for the rest.
$node->safe_psql('postgres', <<'END');
SELECT jobq_internal._home_id();
SELECT jobq_internal._ensure_partition('jobq.history', day, day) FROM CAST('2001-01-04 12:00+00' AS timestamptz) day;
CREATE FUNCTION hold() RETURNS event_trigger LANGUAGE plpgsql SET lock_timeout = 0 AS 'BEGIN PERFORM pg_advisory_xact_lock(77); END';
CREATE EVENT TRIGGER hold ON ddl_command_start WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION hold();
END
$holder = $node->background_psql('postgres');
$holder->query_safe('SELECT pg_advisory_lock(77)');
$node->safe_psql('postgres', q{SELECT jobq.create_job_type('kept', 'sleeper(jsonb)', keep_completed => '3000 days')});
wait_for_sql($node, q{SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)}, 'a partition is being made');
is($node->safe_psql('postgres', q{SELECT to_regclass('jobq.history_20010104') IS NULL, count(*) FROM pg_locks
  WHERE relation IN ('jobq.history'::regclass, 'jobq.history_default'::regclass) AND mode = 'AccessExclusiveLock'}), 't|0', 'the expired one is gone, and its locks');
wait_status($node, 'postgres', $node->safe_psql('postgres', "SELECT jobq.enqueue('sleeper')"), 'completed', 'a job ends meanwhile');
$holder->query_safe('SELECT pg_advisory_unlock(77)');
$holder->quit;
wait_for_sql($node, $made =~ s/1000/3000/gr, 'the partition is there');
$node->safe_psql('postgres', 'DROP EVENT TRIGGER hold; DROP FUNCTION hold');
wait_for_sql($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'jobq maintenance'", 'maintenance has left');

# A row comes into an empty partition between the look at its size and its lock: it is not dropped.
$node->safe_psql('postgres', <<'END');
SELECT jobq_internal._home_id();
SELECT jobq_internal._ensure_partition('jobq.history', day, day) FROM unnest('{2001-01-05 12:00+00,2001-01-06 12:00+00}'::timestamptz[]) day;
CREATE FUNCTION hold() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(77); END';
CREATE EVENT TRIGGER hold ON sql_drop EXECUTE FUNCTION hold();
END
(my ($expirer, $writer), $holder) = map { $node->background_psql('postgres', on_error_stop => 1) } 1 .. 3;
$holder->query_safe('SELECT pg_advisory_lock(77)');
$writer->query_safe(q{SET constraint_exclusion = on; SELECT FROM jobq.history_20010106 WHERE expires_at < '2000-01-01'});	# has read its bounds
$expirer->query_until(qr/begun/, "\\echo begun\nSELECT jobq_internal._expire_partitions('jobq.history');\n\\echo ended\n");
wait_for_sql($node, q{SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)}, 'the first of two is being dropped');
$writer->query_safe(q{INSERT INTO jobq.history_20010106 (id, expires_at, scheduled_for, created_at, completed_at, type_id, status, attempts, max_attempts, runs, depth, priority, payload)
  VALUES (gen_random_uuid(), '2001-01-06 12:00+00', now(), now(), now(), 0, 'completed', 1, 1, 1, 0, 0, '{}')});
$holder->query_safe('SELECT pg_advisory_unlock(77)');
$expirer->query_until(qr/ended/, '');
is($node->safe_psql('postgres', q{SELECT to_regclass('jobq.history_20010105') IS NULL, (SELECT count(*) FROM jobq.history WHERE type_id = 0)}), 't|1', 'the other one stays with its row');
$_->quit foreach $holder, $expirer, $writer;
$node->safe_psql('postgres', 'DROP EVENT TRIGGER hold; DELETE FROM jobq.history WHERE type_id = 0');

# Settings of the database and of the role don't reach it.
$node->safe_psql('postgres', <<'END');
ALTER DATABASE postgres SET default_transaction_read_only = on;
ALTER DATABASE postgres SET statement_timeout = '1ms';
ALTER DATABASE postgres SET search_path = 'nowhere';
ALTER DATABASE postgres SET default_transaction_isolation = 'serializable';
END
$ENV{PGOPTIONS} = '-c statement_timeout=0 -c default_transaction_read_only=off';
$node->safe_psql('postgres', q{SELECT jobq.create_job_type('long', 'public.sleeper(jsonb)', keep_completed => '2000 days')});
wait_for_sql($node, $made =~ s/1000/2000/gr, 'odd settings of the database are no obstacle');
$id = $node->safe_psql('postgres', "SELECT jobq.enqueue('long')");
wait_status($node, 'postgres', $id, 'completed', 'nor for a job');

$node->stop;
done_testing();
