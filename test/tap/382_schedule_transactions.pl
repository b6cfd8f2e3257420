# Transactions of the conductor: at most 1,000 ticks each, and 48 subtransactions when a tick is
# refused; a schedule with more ticks waits for the turns of the others.  pg_waldump shows the
# transactions.  A commit may wait for a standby.

use strict;
use warnings;

use List::Util qw(max sum0);
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('transactions', 'jobq.max_sql_workers = 2', 'fsync = off', 'autovacuum = off', "wal_keep_size = '1GB'");

sub scalar_of { return $node->safe_psql('postgres', $_[0]); }

$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE FUNCTION work(p jsonb) RETURNS void LANGUAGE sql AS 'SELECT';
SELECT jobq.create_job_type('held', 'work(jsonb)', options => '{"events": "all"}');
SELECT jobq.pause_job_type('held');
CREATE VIEW ran AS
  SELECT j.metadata->>'schedule' AS name, (j.metadata->>'tick')::timestamptz AS tick, q.xmin::text::bigint AS xid, j.created_at
    FROM jobq.jobs j JOIN jobq.queue q USING (id);
CREATE VIEW skips AS
  SELECT e.data->>'schedule' AS name, e.data->>'reason' AS reason, (e.data->>'count')::int AS count FROM jobq.events e
   WHERE e.type = 'tick_skipped';
-- Makes a schedule of each second that has missed the ticks of so many seconds, and has no further
-- ones.
CREATE FUNCTION missed(name text, seconds int, catch_up text, tenant text DEFAULT NULL) RETURNS void LANGUAGE sql AS $$
  SELECT jobq.schedule(name, 'every 1s', 'held', catch_up => catch_up, catch_up_limit => 10000, tenant => tenant);
  UPDATE jobq.schedules s SET ticks_after = date_trunc('second', now()) - seconds * interval '1 s', ends_at = date_trunc('second', now())
   WHERE s.name = missed.name;
$$;
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');
wait_partitions($node);   # a tick that meets a lock has a transaction of the small kind

sub wal_position { return scalar_of('SELECT pg_current_wal_insert_lsn()'); }

# Returns the numbers of subtransactions of all commits since a position.
sub subtransactions_since
{
	my ($from) = @_;
	my ($out) = run_command([ 'pg_waldump', '-p', $node->data_dir . '/pg_wal', '-r', 'Transaction', '-s', $from, '-e', wal_position() ]);

	return map { / subxacts: ([\d ]+)/ ? scalar(split ' ', $1) : 0 } grep { /desc: COMMIT / } split /\n/, $out;
}

# ---------- many missed ticks of one schedule ----------

scalar_of(q{SELECT jobq.schedule('beat', 'every 1s', 'held', overlap => 'allow')});
wait_for_sql($node, q{SELECT runs > 0 FROM jobq.schedules WHERE name = 'beat'}, 'a schedule ticks');
$node->safe_psql('postgres', <<'END');
BEGIN;
SELECT missed('heavy', 5000, 'all');
SELECT missed('light ' || i, 20, 'one') FROM generate_series(1, 9) i;
COMMIT;
END
wait_for_sql($node, q{SELECT status = 'finished' FROM jobq.schedules WHERE name = 'heavy'}, '5,000 missed ticks');
is(scalar_of(q{SELECT runs, skipped FROM jobq.schedules WHERE name = 'heavy'}), '5000|0', 'each of them has a job, whatever overlap says');
is(scalar_of(q{SELECT count(*) = count(DISTINCT tick) AND max(tick) - min(tick) = interval '4999 s' FROM ran WHERE name = 'heavy'}), 't', 'none has two');
cmp_ok(scalar_of(q{SELECT max(n) FROM (SELECT count(*) AS n FROM ran GROUP BY xid) x}), '<=', 1000, 'a transaction has at most 1,000 ticks');
cmp_ok(scalar_of(q{SELECT count(DISTINCT xid) FROM ran WHERE name = 'heavy'}), '<=', 10, 'and not much less');
is(scalar_of(q{SELECT count(*) FROM ran WHERE name LIKE 'light %' AND xid <= (SELECT min(xid) FROM ran WHERE name = 'heavy')}), 9,
	'the ticks of others are in the first of them');

# the last transaction has three ticks that are less than five seconds late
scalar_of(q{SELECT jobq.unschedule('beat'), missed('cut', 1003, 'all')});
wait_for_sql($node, q{SELECT status = 'finished' FROM jobq.schedules WHERE name = 'cut'}, '1,003 missed ticks');
is(scalar_of(q{SELECT runs, skipped FROM jobq.schedules WHERE name = 'cut'}), '1003|0', 'the last ones count as missed, too');
scalar_of(q{SELECT jobq.schedule('beat', 'every 1s', 'held', overlap => 'allow')});

# ---------- many schedules with missed ticks ----------

$node->safe_psql('postgres', <<'END');
BEGIN;
SELECT missed('many ' || i, 30, 'all') FROM generate_series(1, 100) i;
SELECT missed('few ' || i, 1, 'all') FROM generate_series(1, 100) i;
COMMIT;
END
wait_for_sql($node, q{SELECT count(*) = 200 FROM jobq.schedules WHERE status = 'finished' AND (name LIKE 'many %' OR name LIKE 'few %')},
	'100 schedules with 30 missed ticks, and 100 with one');
is(scalar_of(q{SELECT min(runs), max(runs), sum(skipped) FROM jobq.schedules WHERE name LIKE 'many %'}), '30|30|0', 'all of them have jobs');
cmp_ok(scalar_of(q{SELECT max(n) FROM (SELECT count(*) AS n FROM ran GROUP BY xid) x}), '<=', 1000, 'a transaction has at most 1,000 ticks');
is(scalar_of(q{SELECT count(DISTINCT xid) FROM ran WHERE name LIKE 'few %'}), 1, 'one tick of each schedule is in the first of them');
cmp_ok(scalar_of(q{SELECT max(xid) FROM ran WHERE name LIKE 'few %'}), '<=', scalar_of(q{SELECT min(xid) FROM ran WHERE name LIKE 'many %'}),
	'whatever the others have missed');

# ---------- refused ticks ----------

my $from = wal_position();
$node->safe_psql('postgres', <<'END');
SELECT jobq.set_tenant_quota('acme', max_live => 150), jobq.set_tenant_quota('beta', max_live => 0);
BEGIN;
SELECT missed('refused', 400, 'all', 'acme');
SELECT missed('others ' || i, 3, 'all', 'beta') FROM generate_series(1, 60) i;
COMMIT;
END
wait_for_sql($node, q{SELECT count(*) = 61 FROM jobq.schedules WHERE status = 'finished' AND tenant IS NOT NULL}, 'a quota refuses jobs');
is(scalar_of(q{SELECT runs, skipped FROM jobq.schedules WHERE name = 'refused'}), '150|250', 'each tick has a job or is refused');
is(scalar_of(q{SELECT string_agg(reason || ' ' || n, ', ') FROM (SELECT reason, sum(count) AS n FROM skips WHERE name = 'refused' GROUP BY 1) s}),
	'refused 250', 'with that reason');
is(scalar_of(q{SELECT sum(runs), sum(skipped) FROM jobq.schedules WHERE name LIKE 'others %'}), '0|180', 'also of others');
my @counts = subtransactions_since($from);
cmp_ok(max(@counts), '<=', 48, 'a transaction has at most 48 subtransactions');
cmp_ok(max(@counts), '>=', 40, 'if there is so much to do');
cmp_ok(sum0(@counts), '>=', 400 + 180 - 150, 'each refused tick has had one');

# Transactions of others between a time of beat and its job.
my $between = scalar_of(q{SELECT max(n) FROM (SELECT count(DISTINCT o.xid) AS n FROM ran b LEFT JOIN ran o
  ON o.name <> 'beat' AND o.created_at > b.tick AND o.created_at < b.created_at AND o.xid <> b.xid WHERE b.name = 'beat' GROUP BY b.tick) x});
cmp_ok($between, '<=', 2, "beat waits for at most $between transactions");
is(scalar_of(q{SELECT skipped FROM jobq.schedules WHERE name = 'beat'}), 0, 'at each tick');

# ---------- a synchronous standby that is missing ----------

$node->safe_psql('postgres', <<'END');
SELECT jobq.unschedule(name, tenant) FROM jobq.schedules WHERE name <> 'beat';
CREATE ROLE local_commits LOGIN;
ALTER ROLE local_commits SET synchronous_commit = local;
SELECT jobq.create_job_type('local', 'work(jsonb)', run_as => 'local_commits');
ALTER SYSTEM SET synchronous_standby_names = 'absent';
END
$node->reload;
wait_for_sql($node, q{SELECT current_setting('synchronous_standby_names') = 'absent'}, 'the standby is missing');
$ENV{PGOPTIONS} = '-c synchronous_commit=local';
scalar_of('CHECKPOINT');    # commits wait for it once the checkpointer has read the setting
wait_for_sql($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'jobq conductor' AND wait_event = 'SyncRep'},
	'the conductor waits for it');
my $conductor = (jobq_pids($node, 'conductor'))[0];
my $held = scalar_of(q{SELECT ticks_after FROM jobq.schedules});
foreach (1 .. 3)
{
	my $job = scalar_of(q{SELECT jobq.enqueue('local')});

	wait_status($node, 'postgres', $job, 'completed', 'the dispatcher does not: a job runs');
}
is(scalar_of(q{SELECT jobq.health()->'checks'->'dispatcher'->>'status'}), 'healthy', 'and it answers');
wait_for_sql($node, q{SELECT (jobq.health()->'checks'->'schedules'->>'late_s')::float8 > 3}, 'health() shows how late ticks are');
is(scalar_of(q{SELECT ticks_after FROM jobq.schedules}), $held, 'none is committed');
scalar_of('ALTER SYSTEM RESET synchronous_standby_names');
$node->reload;
delete $ENV{PGOPTIONS};
wait_for_sql($node, q{SELECT ticks_after > clock_timestamp() - interval '2 s' FROM jobq.schedules}, 'without the standby they go on');
is((jobq_pids($node, 'conductor'))[0], $conductor, 'by the same conductor');
is(scalar_of(<<'END'), 't', 'each has a job or a reason');
SELECT s.runs + s.skipped = extract(epoch FROM s.ticks_after - date_trunc('second', s.created_at))::int FROM jobq.schedules s
END

unlike(slurp_file($node->logfile), qr/PANIC|TRAP:|could not take its turn/, 'no process failed');
$node->stop;
done_testing();
