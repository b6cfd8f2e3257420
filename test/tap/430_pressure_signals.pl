# Signals shift the priorities of waiting types, block and unblock them: by hand, by a time limit,
# by a condition, by the state of the machine.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('signals', 'jobq.max_sql_workers = 1', "jobq.sweep_interval = '1h'", 'fsync = off');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE TABLE ledger (seq int GENERATED ALWAYS AS IDENTITY, who text, began timestamptz DEFAULT clock_timestamp());
CREATE FUNCTION note() RETURNS void LANGUAGE sql AS $$
  INSERT INTO public.ledger (who) SELECT job_type FROM jobq.current_job()
$$;
CREATE FUNCTION gated() RETURNS void LANGUAGE sql AS 'SELECT pg_advisory_xact_lock_shared(1)';
CREATE FUNCTION note_slowly() RETURNS void LANGUAGE sql AS 'SELECT public.note(); SELECT pg_sleep(0.002)';
-- Each job's order counts: a run of more than 100 ms in a batch runs again, behind others.
SELECT jobq.create_job_type(t, 'note()', options => '{"batch": false}') FROM unnest('{a,b}'::text[]) t;
SELECT jobq.create_job_type('bulk', 'note_slowly()');
SELECT jobq.create_job_type('gated', 'gated()');
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub scalar_of { return $node->safe_psql('postgres', $_[0]); }

sub all_done { return wait_for_sql($node, 'SELECT NOT EXISTS (SELECT FROM jobq.queue)', $_[0]); }

sub enqueue { return scalar_of("SELECT count(*) FROM jobq.enqueue_many('$_[0]', array_fill('{}'::jsonb, '{$_[1]}'))"); }

# Returns when the dispatcher has read everything committed before.
sub heard { scalar_of('SELECT jobq.health()') for 1 .. 2; return; }

sub order_of
{
	all_done($_[0]);
	return scalar_of("SELECT string_agg(who, ' ' ORDER BY seq) FROM ledger");
}

sub set_to
{
	scalar_of("ALTER SYSTEM SET $_[0] = '$_[1]'");
	$node->reload;
	return;
}

# ---------- priorities ----------

my $gate = $node->background_psql('postgres');

sub close_gate
{
	$gate->query_safe('SELECT pg_advisory_lock(1)');
	enqueue('gated', 1);
	return wait_for_sql($node, "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", 'the only worker blocks');
}

scalar_of("SELECT jobq.set_signal('call', false), jobq.set_signal('night', false)");
scalar_of("SELECT jobq.set_pressure_rule('b', 'call', priority_adj => 5), jobq.set_pressure_rule('a', 'night', priority_adj => 7)");
close_gate();
enqueue('a', 3);
enqueue('b', 3);
my $rows = "SELECT string_agg(xmin::text || ctid::text, ' ' ORDER BY id) FROM jobq.queue";
my $before = scalar_of($rows);
scalar_of("SELECT jobq.set_signal('call', true)");
heard();
is(scalar_of($rows), $before, 'no row is written');
$gate->query_safe('SELECT pg_advisory_unlock(1)');
is(order_of('all have run'), 'b b b a a a', 'while the signal is active, the younger jobs of the other type go first');

scalar_of('TRUNCATE ledger');
close_gate();
enqueue('b', 3);
enqueue('a', 3);
scalar_of("SELECT jobq.set_signal('night', true)");
heard();
$gate->query_safe('SELECT pg_advisory_unlock(1)');
is(order_of('all have run'), 'a a a b b b', 'a second signal adds up to another order');

scalar_of('TRUNCATE ledger');
close_gate();
enqueue('a', 3);
enqueue('b', 3);
scalar_of("SELECT jobq.set_pressure_rule('a', 'night'), jobq.set_signal('night', false)");
scalar_of("SELECT jobq.set_pressure_rule(NULL, 'call', priority_adj => 9)");
scalar_of("BEGIN; SELECT jobq.set_signal('call', false); ROLLBACK");
heard();
$gate->query_safe('SELECT pg_advisory_unlock(1)');
is(order_of('all have run'), 'b b b a a a', 'without that rule, and with one for all, the first order; a rollback has no effect');
$gate->quit;
scalar_of("SELECT jobq.drop_signal('call', force => true), jobq.drop_signal('night', force => true)");
is(scalar_of('SELECT count(*) FROM jobq.pressure_rules'), 0, 'a signal dropped by force takes its rules along');

# ---------- blocked ----------

sub ran { return scalar_of("SELECT count(*) FROM ledger WHERE who = '$_[0]'"); }

scalar_of('TRUNCATE ledger');
scalar_of("SELECT jobq.set_signal('call', false), jobq.set_pressure_rule('bulk', 'call', block => true)");
enqueue('bulk', 20_000);	# three quarters of a minute's work
wait_for_sql($node, 'SELECT count(*) > 100 FROM ledger', 'jobs run');
scalar_of("SELECT jobq.set_signal('call', true)");
heard();
my $other = scalar_of("SELECT jobq.enqueue('a')");
wait_status($node, 'postgres', $other, 'completed', 'another type runs');
my $ran = ran('bulk');
cmp_ok($ran, '<', 20_000, 'not all have run when the signal is set');
$other = scalar_of("SELECT jobq.enqueue('a')");
wait_status($node, 'postgres', $other, 'completed', 'another type runs');
is(ran('bulk'), $ran, 'no job of the blocked type does, not even those already handed out');
is(scalar_of("SELECT jobq.health()->'checks'->'signals'->'active'"), '["call"]', 'health() names the signal');

my $dispatcher = dispatcher($node, 'postgres');
scalar_of("SELECT pg_terminate_backend($dispatcher)");
wait_dispatcher($node, 'postgres', 'another dispatcher', $dispatcher);
$other = scalar_of("SELECT jobq.enqueue('a')");
wait_status($node, 'postgres', $other, 'completed', 'it works');
is(ran('bulk'), $ran, 'and knows that the type is blocked');

scalar_of("SELECT jobq.set_signal('call', false)");
wait_for_sql($node, "SELECT count(*) > $ran FROM ledger WHERE who = 'bulk'", 'it goes on when the signal is cleared');
note sprintf 'after %s ms', scalar_of("SELECT round(extract(epoch FROM min(began) - changed_at) * 1000, 1) FROM ledger, jobq.signals WHERE began > changed_at AND name = 'call' GROUP BY changed_at");
scalar_of("SELECT jobq.cancel_jobs('bulk', include_running => true)");
all_done('the rest is cancelled');

scalar_of('TRUNCATE ledger');
scalar_of("SELECT jobq.set_signal('call', true, ttl => '1.5s')");
enqueue('bulk', 1);
all_done('a signal with a time limit ends by itself');
is(scalar_of("SELECT began >= active_until FROM ledger, jobq.signals WHERE name = 'call'"), 't', 'and not before');
is(scalar_of("SELECT jobq.health()->'checks'->'signals'->'active'"), '[]', 'health() knows');

scalar_of("SELECT jobq.set_signal('call', true)");
scalar_of("BEGIN; SELECT jobq.set_signal('call', false); PREPARE TRANSACTION 'p'");
enqueue('bulk', 1);
scalar_of("COMMIT PREPARED 'p'");
all_done('a prepared transaction clears it when it commits');

# ---------- weight ----------

my $at_gate = "FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";

set_to('jobq.max_sql_workers', 4);
scalar_of("SELECT jobq.set_signal('call', true), jobq.set_pressure_rule(NULL, 'call', max_weight => 2)");
scalar_of("SELECT jobq.set_pressure_rule('bulk', 'call')");
$gate = $node->background_psql('postgres');
$gate->query_safe('SELECT pg_advisory_lock(1)');
enqueue('gated', 6);
wait_for_sql($node, "SELECT count(*) = 2 $at_gate", 'a lower budget lets two of weight 1 run');
$other = scalar_of("SELECT jobq.enqueue('a')");
heard();
is(scalar_of("SELECT status FROM jobq.jobs WHERE id = '$other'"), 'pending', 'and no third');
scalar_of("SELECT jobq.set_signal('call', false)");
wait_for_sql($node, "SELECT count(*) = 4 $at_gate", 'without the signal all workers run');
$gate->query_safe('SELECT pg_advisory_unlock(1)');
$gate->quit;
all_done('all have run');
scalar_of("SELECT jobq.set_pressure_rule('bulk', 'call', block => true)");

# ---------- conditions ----------

$node->safe_psql('postgres', <<'END');
CREATE ROLE watcher LOGIN;
GRANT CREATE ON SCHEMA public TO watcher;
SELECT jobq.grant_access('watcher', 'admin');
CREATE TABLE flag (up boolean);
INSERT INTO flag VALUES (true);
GRANT SELECT ON flag TO watcher;
SET ROLE watcher;
SELECT jobq.create_signal('flagged', 'SELECT up AND current_user = ''watcher'' FROM flag', '100ms');
SELECT jobq.set_pressure_rule('bulk', 'flagged', block => true);
END

sub active { return "SELECT active FROM jobq.signals WHERE name = '$_[0]'"; }
sub problem { return "SELECT problem FROM jobq.signals WHERE name = '$_[0]'"; }

wait_for_sql($node, active('flagged'), 'a condition sets a signal, run as its definer, with the definer\'s search_path');
heard();
enqueue('bulk', 1);
$other = scalar_of("SELECT jobq.enqueue('a')");
wait_status($node, 'postgres', $other, 'completed', 'another type runs');
is(scalar_of('SELECT count(*) FROM jobq.queue'), 1, 'the blocked one waits');
scalar_of('UPDATE flag SET up = NULL');
wait_for_sql($node, "SELECT problem = 'it is NULL' FROM jobq.signals WHERE name = 'flagged'", 'a condition that is NULL is reported');
is(scalar_of(active('flagged')), 't', 'and leaves the signal as it is');
scalar_of('UPDATE flag SET up = false');
all_done('it clears the signal, and the job runs');
is(scalar_of(problem('flagged')), '', 'the problem is over');
scalar_of('INSERT INTO flag VALUES (true)');
wait_for_sql($node, "SELECT problem = 'it has more than one row' FROM jobq.signals WHERE name = 'flagged'", 'more than one row is a problem');
scalar_of('DROP TABLE flag');
wait_for_sql($node, "SELECT problem LIKE 'relation \"flag\" does not exist (42P01)' FROM jobq.signals WHERE name = 'flagged'", 'so is an error');
is(scalar_of(active('flagged')), 'f', 'the signal stays');
is(scalar_of("SELECT string_agg(message, '; ' ORDER BY id) FROM jobq.events WHERE type = 'signal_failed'"),
	join('; ', map { "the condition of signal \"flagged\": $_" } 'it is NULL', 'it has more than one row', 'relation "flag" does not exist (42P01)'),
	'an event when a problem begins, and one only');
scalar_of("CREATE ROLE untenanted; SELECT jobq.grant_access('untenanted', 'read', tenant => '')");
is(scalar_of("SET ROLE untenanted; SELECT count(*) FROM jobq.events WHERE type = 'signal_failed'"), '0', 'not for readers of jobs without a tenant');
is(scalar_of("SELECT s->>'status' || ' ' || (s->>'message') FROM (SELECT jobq.health()->'checks'->'signals') h(s)"),
	'degraded the condition of signal "flagged": relation "flag" does not exist (42P01)', 'health() is degraded');
scalar_of("SELECT jobq.drop_signal('flagged', force => true)");

$node->safe_psql('postgres', <<'END');
CREATE TABLE written (n int);
GRANT ALL ON written TO watcher;
SET ROLE watcher;
CREATE FUNCTION slow() RETURNS boolean LANGUAGE sql AS 'SELECT pg_sleep(3600) IS NOT NULL';
CREATE FUNCTION stubborn() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  LOOP
    BEGIN
      PERFORM pg_sleep(3600);
    EXCEPTION WHEN query_canceled THEN NULL;
    END;
  END LOOP;
END $$;
CREATE FUNCTION writes() RETURNS boolean LANGUAGE plpgsql AS 'BEGIN INSERT INTO written VALUES (1); RETURN true; END';
CREATE FUNCTION climbs() RETURNS boolean LANGUAGE plpgsql AS 'BEGIN EXECUTE ''RESET ROLE''; RETURN true; END';
CREATE FUNCTION becomes() RETURNS boolean LANGUAGE plpgsql AS 'BEGIN EXECUTE ''SET SESSION AUTHORIZATION postgres''; RETURN true; END';
CREATE FUNCTION leaves() RETURNS boolean LANGUAGE plpgsql AS
  'BEGIN PERFORM set_config(''search_path'', ''nowhere'', false); RETURN false; END';
SELECT jobq.create_signal(f, f || '()', '1s') FROM unnest('{slow,writes,climbs,becomes,leaves}'::text[]) f;
SELECT jobq.create_signal('path', 'current_setting(''search_path'') <> ''nowhere''', '1s');
RESET ROLE;
END
wait_for_sql($node, "SELECT count(*) = 4 FROM jobq.signals WHERE problem IS NOT NULL", 'four conditions are refused');
is(scalar_of(problem('slow')), 'it takes longer than 5 seconds', 'one that takes its time');
is(scalar_of(problem('writes')), 'cannot execute INSERT in a read-only transaction (25006)', 'one that writes');
is(scalar_of(problem('climbs')), 'cannot set parameter "role" within security-definer function (42501)', 'a condition that sets its role to the session user');
is(scalar_of(problem('becomes')), 'cannot set parameter "session_authorization" within security-definer function (42501)', 'or to another role');
wait_for_sql($node, active('path'), 'a setting that one leaves behind does not reach the next');
is(scalar_of('SELECT count(*) FROM jobq.signals WHERE active'), 1, 'none of the others is active');
scalar_of("SELECT jobq.drop_signal(name) FROM jobq.signals WHERE name <> 'call'");
$node->safe_psql('postgres', "SET ROLE watcher; SELECT jobq.create_signal('stubborn', 'stubborn()', '1s')");
my $worker;
foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
{
	last if $worker = scalar_of("SELECT pid FROM pg_stat_activity WHERE backend_type = 'jobq maintenance' AND query LIKE '%stubborn%'");
	select undef, undef, undef, 0.1;
}
ok($worker, 'one that does not obey its limit');
wait_for_sql($node, "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $worker)", 'has its process ended');
wait_for_sql($node, "SELECT problem = 'it takes longer than 5 seconds' FROM jobq.signals WHERE name = 'stubborn'", 'which is written down');
scalar_of("SELECT jobq.drop_signal('stubborn')");

# a dropped definer
$node->safe_psql('postgres', "SET ROLE watcher; SELECT jobq.create_signal('orphan', 'true', '1s')");
wait_for_sql($node, active('orphan'), 'a condition of a role');
scalar_of('DROP OWNED BY watcher; DROP ROLE watcher');
wait_for_sql($node, "SELECT problem = 'role \"watcher\" does not exist (42704)' FROM jobq.signals WHERE name = 'orphan'", 'that is dropped');
scalar_of("SELECT jobq.drop_signal('orphan')");

# ---------- built-in signals ----------

my $active = "SELECT jobq.health()->'checks'->'signals'->'active'";
set_to('jobq.sweep_interval', '100ms');
my $sweeping = dispatcher($node, 'postgres');
scalar_of('SELECT jobq.reload()');
wait_dispatcher($node, 'postgres', 'a dispatcher that sweeps', $sweeping);
set_to('jobq.load_threshold', 0.01);
scalar_of("SELECT jobq.set_pressure_rule('bulk', 'load', block => true)");
wait_for_sql($node, "$active = '[\"load\"]'", 'load is above its threshold: this test makes some');
heard();
enqueue('bulk', 1);
$other = scalar_of("SELECT jobq.enqueue('a')");
wait_status($node, 'postgres', $other, 'completed', 'another type runs');
is(scalar_of('SELECT count(*) FROM jobq.queue'), 1, 'the blocked one waits');
set_to('jobq.load_threshold', 1000);
all_done('it goes when the load is below');
scalar_of("SELECT jobq.set_pressure_rule('bulk', 'load')");
set_to('jobq.load_threshold', 0.01);

$node->backup('b');
my $standby = PostgreSQL::Test::Cluster->new('signals_standby');
$standby->init_from_backup($node, 'b', has_streaming => 1);
$standby->start;
set_to('jobq.lag_threshold', '500ms');
scalar_of("SELECT jobq.set_pressure_rule('bulk', 'replication_lag', block => true)");
$node->wait_for_catchup($standby);
$standby->safe_psql('postgres', 'SELECT pg_wal_replay_pause()');
scalar_of("SELECT jobq.set_signal('call', false)");
wait_for_sql($node, "$active = '[\"replication_lag\"]'", 'a standby is stopped');
is(scalar_of($active), '["replication_lag"]', 'and load is not watched without a rule');
$standby->safe_psql('postgres', 'SELECT pg_wal_replay_resume()');
wait_for_sql($node, "$active = '[]'", 'it has caught up');
scalar_of("SELECT jobq.set_pressure_rule('bulk', 'replication_lag')");
$standby->stop;

# ---------- no blocking ----------

scalar_of('CREATE DATABASE other');
$node->safe_psql('other', "CREATE EXTENSION jobq; SELECT jobq.create_signal('slow', 'pg_sleep(4) IS NULL', '1s')");
wait_for_sql($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'jobq maintenance' AND datname = 'other' AND query LIKE '%pg_sleep(4)%'", 'a condition is asked');
$node->safe_psql('other', 'DROP EXTENSION jobq; CREATE EXTENSION jobq');
pass('the extension can be dropped meanwhile');
$node->safe_psql('other', "SELECT jobq.create_signal('slow', 'pg_sleep(4) IS NULL', '1s')");
wait_for_sql($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'jobq maintenance' AND datname = 'other' AND query LIKE '%pg_sleep(4)%'", 'a condition is asked');
scalar_of('DROP DATABASE other');
pass('so can the database');

# A process that has begun to write a result leaves before the command takes its
# locks: a deadlock was possible.
scalar_of('CREATE DATABASE other');
$node->safe_psql('other', <<'END');
CREATE EXTENSION jobq;
CREATE TABLE gate AS SELECT 1 AS n;
SELECT jobq.create_signal('divides', '(SELECT 1 / n = 1 FROM public.gate)', '1s');
END
ok($node->poll_query_until('other', "SELECT active FROM jobq.signals WHERE name = 'divides'"), 'a condition is asked');
my $holder = $node->background_psql('other');
my $dropper = $node->background_psql('other', on_error_stop => 0);
my $log_size = -s $node->logfile;
my $workers = "FROM pg_stat_activity WHERE backend_type = 'jobq maintenance' AND datname = 'other'";
$holder->query_safe("BEGIN; SELECT FROM jobq.signals WHERE name = 'divides' FOR UPDATE");
$node->safe_psql('other', 'UPDATE gate SET n = 0');
wait_for_sql($node, "SELECT count(*) = 1 $workers AND wait_event_type = 'Lock'", 'its answer waits for a lock');
$dropper->query_until(qr/drops/, "\\echo drops\nDROP EXTENSION jobq;\n");
wait_for_sql($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE 'DROP%' AND wait_event_type = 'Lock'", 'DROP EXTENSION waits for one, too');
is(scalar_of("SELECT count(*) $workers"), 0, 'and the pending result does not block it');
$holder->query_safe('COMMIT');
is($dropper->query("SELECT count(*) FROM pg_extension WHERE extname = 'jobq'"), 0, 'the extension is gone');
unlike(slurp_file($node->logfile, $log_size), qr/deadlock detected/, 'without a deadlock');
$_->quit foreach $holder, $dropper;

# ---------- a condition that is replaced ----------

sub replace_condition { return scalar_of("SELECT jobq.create_signal('replaced', \$\$$_[0]\$\$, '1 day', on_conflict => 'replace')"); }

replace_condition('true');
wait_for_sql($node, q{SELECT active FROM jobq.signals WHERE name = 'replaced'}, 'a new signal is asked');
replace_condition('false');
wait_for_sql($node, q{SELECT NOT active FROM jobq.signals WHERE name = 'replaced'}, 'a condition that is replaced is asked at once, not in a day');

# the former condition runs while it is replaced
$holder = $node->background_psql('postgres');
$holder->query_safe('SELECT pg_advisory_lock(1)');
replace_condition('SELECT true FROM pg_advisory_xact_lock_shared(1)');
wait_for_sql($node, "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", 'a condition waits');
replace_condition('1 / (SELECT count(*) FROM pg_class WHERE false) > 0');
$holder->query_safe('SELECT pg_advisory_unlock(1)');
$holder->quit;
wait_for_sql($node, q{SELECT problem LIKE 'division by zero%' FROM jobq.signals WHERE name = 'replaced'}, 'the one in its place is asked after it');
is(scalar_of(q{SELECT active FROM jobq.signals WHERE name = 'replaced'}), 'f', 'and the result of the former one is not written');

$node->stop;
done_testing();
