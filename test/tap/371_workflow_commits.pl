# Ends and edges that commit in every way: savepoints, two-phase commit in both roles, parents that
# keep nothing, more ends than the news hold, a restart with a prepared enqueue, a held snapshot, a
# copy of the database, and sets of awaited jobs that change.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('commits', 'jobq.max_sql_workers = 2', 'fsync = off', "jobq.sweep_interval = '1h'", 'log_min_messages = debug1');
$node->start;
my $setup = <<'END';
CREATE EXTENSION jobq;
CREATE FUNCTION work(p jsonb) RETURNS void LANGUAGE sql AS 'SELECT';
CREATE FUNCTION dies(p jsonb) RETURNS void LANGUAGE plpgsql AS 'BEGIN RAISE ''no''; END';
SELECT jobq.create_job_type('keeps', 'work(jsonb)', options => '{"events": "all"}'), jobq.create_job_type('nothing', 'work(jsonb)', keep_completed => '0'),
  jobq.create_job_type('child', 'work(jsonb)');
CREATE TABLE id (name text PRIMARY KEY, id uuid);
CREATE FUNCTION enq(name text, type text, after text[] DEFAULT NULL, rule text DEFAULT 'success') RETURNS void LANGUAGE sql AS $$
  INSERT INTO id SELECT enq.name, jobq.enqueue(type, after => (SELECT array_agg(id.id) FROM id WHERE id.name = ANY (enq.after)), after_rule => rule)
$$;
CREATE FUNCTION is_now(name text, status text) RETURNS boolean LANGUAGE sql AS $$
  SELECT EXISTS (SELECT FROM jobq.jobs j JOIN id USING (id) WHERE id.name = is_now.name AND j.status::text = is_now.status)
$$;
END
$node->safe_psql('postgres', $setup);
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub one { return $node->safe_psql('postgres', $_[0]); }
sub is_now { my ($name, $status, $what) = @_; return wait_for_sql($node, "SELECT is_now('$name', '$status')", $what // "$name is $status"); }
sub pause { one("SELECT jobq.pause_job_type('$_')") foreach @_; return; }
sub resume { one("SELECT jobq.resume_job_type('$_')") foreach @_; return; }

# ---------- savepoints ----------

pause('keeps');
one(q{BEGIN; SELECT enq('p1', 'keeps'); SAVEPOINT a; SELECT enq('c1', 'child', '{p1}'); ROLLBACK TO a; SELECT enq('c2', 'child', '{p1}'); COMMIT});
is(one('SELECT count(*) FROM jobq.dependencies'), '1', 'edges of a savepoint are rolled back');
one(q{BEGIN; SAVEPOINT a; SELECT jobq.cancel_job(id) FROM id WHERE name = 'p1'; ROLLBACK TO a; COMMIT});
one(q{BEGIN; SELECT jobq.cancel_job(id) FROM id WHERE name = 'p1'; ROLLBACK});
is(one(q{SELECT is_now('c2', 'blocked')}), 't', 'a cancel that is rolled back ends nothing');
resume('keeps');
is_now('c2', 'completed');

# ---------- retention ----------

# A parent that had ended expires before the enqueue commits.
one(q{SELECT enq('old', 'keeps')});
is_now('old', 'completed');
pause('keeps');
one(q{SELECT enq('live', 'keeps')});
one(q{BEGIN; SELECT enq('late', 'child', '{old,live}'); DELETE FROM jobq.history WHERE id = (SELECT id FROM id WHERE name = 'old'); COMMIT});
is(one(q{SELECT array_length(after, 1) FROM jobq.jobs JOIN id USING (id) WHERE name = 'late'}), '2', 'both parents are shown');
resume('keeps');
is_now('late', 'completed', 'what has completed counts, though its row has expired');

# Retention does not remove a parent whose edge is not visible yet.
one(<<'SQL');
SELECT jobq.create_job_type('few', 'work(jsonb)', options => '{"keep_completed_count": 1}');
SELECT jobq.create_job_type('dies', 'dies(jsonb)', options => '{"keep_dead_count": 0}', max_attempts => 1);
-- a partition of many years in place of the days'
BEGIN;
LOCK TABLE ONLY jobq.history IN SHARE UPDATE EXCLUSIVE MODE;
CREATE OR REPLACE FUNCTION jobq_internal._maintain(drops boolean DEFAULT true, makes boolean DEFAULT true) RETURNS int LANGUAGE sql AS 'SELECT 0';
DO $$ DECLARE p regclass; BEGIN
  FOR p IN SELECT partition FROM jobq_internal._partitions('jobq.history') LOOP EXECUTE format('DROP TABLE %s', p); END LOOP;
END $$;
SELECT jobq_internal._ensure_partition('jobq.history', clock_timestamp(), clock_timestamp() - interval '100 years');
COMMIT;
SQL
my $waiter = $node->background_psql('postgres');
my %removal = (
	number => q{SELECT enq('after %s', 'few')},
	partition => q{SELECT jobq_internal._ensure_partition('jobq.history', clock_timestamp() - interval '2 days', clock_timestamp() - interval '2 days'); UPDATE jobq.history SET expires_at = clock_timestamp() - interval '2 days' WHERE id = (SELECT id FROM id WHERE name = '%s')},
	age => q{UPDATE jobq.history SET expires_at = clock_timestamp() - interval '1 minute' WHERE id = (SELECT id FROM id WHERE name = '%s')});
my $retain = q{SELECT jobq_internal._retain(); SELECT jobq_internal._expire_partitions('jobq.history')};
# Waits until the job is not blocked any more; returns its status.
sub end_of
{
	my ($name) = @_;
	my $is = "SELECT j.status FROM jobq.jobs j JOIN id USING (id) WHERE id.name = '$name'";

	wait_for_sql($node, "SELECT ($is) IN ('completed', 'skipped', 'cancelled')", "$name ends");
	return one($is);
}
foreach my $way (sort keys %removal)
{
	foreach my $prepared (0, 1)
	{
		my ($p, $c) = map { "$_-$way-$prepared" } qw(p c);

		pause('few');
		one("SELECT enq('$p', 'few')");
		$waiter->query_safe("BEGIN; SELECT enq('$c', 'child', '{$p}')");
		$waiter->query_safe("PREPARE TRANSACTION 'unseen'") if $prepared;
		resume('few');
		is_now($p, 'completed');
		one(sprintf $removal{$way}, $p);
		is_now("after $p", 'completed') if $way eq 'number';
		one($retain);
		is(one("SELECT is_now('$p', 'completed')"), 't', "$p stays");
		if ($prepared && $way ne 'number')
		{
			$node->restart;
			wait_dispatcher($node, 'postgres', 'the server starts again');
			$waiter = $node->background_psql('postgres');
			one($retain);
		}
		$waiter->query_safe($prepared ? q{COMMIT PREPARED 'unseen'} : 'COMMIT');
		is(end_of($c), 'completed', "$c: its parent was not removed");
		wait_for_sql($node, 'SELECT NOT EXISTS (SELECT FROM jobq.dependencies)', 'the edge has counted');
		one(sprintf $removal{$way}, $p) if $way ne 'number';
		one($retain);
		is(one("SELECT is_now('$p', 'completed')"), 'f', "then $p goes");
	}
}
# a dead letter, for a job that wants failures
pause('dies');
one(q{SELECT enq('dead', 'dies')});
$waiter->query_safe(q{BEGIN; SELECT enq('cure', 'child', '{dead}', 'failed')});
resume('dies');
is_now('dead', 'error');
one($retain);
$waiter->query_safe('COMMIT');
is(end_of('cure'), 'completed', 'a dead letter stays, too');
wait_for_sql($node, 'SELECT NOT EXISTS (SELECT FROM jobq.dependencies)', 'the edge has counted');
one($retain);
is(one(q{SELECT is_now('dead', 'error')}), 'f', 'and goes then');
# a transaction that only reads keeps nothing
$waiter->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*), pg_current_xact_id() FROM jobq.queue');
foreach my $job ('read', 'newer')
{
	one("SELECT enq('$job', 'few')");
	is_now($job, 'completed');
}
one($retain);
is(one(q{SELECT is_now('read', 'completed')}), 'f', 'a transaction that waits for no job keeps none');
$waiter->query_safe('COMMIT');
$waiter->quit;

# ---------- two-phase commit ----------

pause('keeps');
one(q{SELECT enq('p3', 'keeps')});
one(q{BEGIN; SELECT enq('c3', 'child', '{p3}'); PREPARE TRANSACTION 'edge'});
resume('keeps');
is_now('p3', 'completed', 'the parent of a prepared edge ends');
one(q{COMMIT PREPARED 'edge'});
is_now('c3', 'completed', 'its child runs');
pause('keeps');
one(q{SELECT enq('p4', 'keeps'), enq('c4', 'child', '{p4}', 'failed')});
one(q{BEGIN; SELECT jobq.cancel_job(id) FROM id WHERE name = 'p4'; PREPARE TRANSACTION 'end'});
is(one(q{SELECT is_now('c4', 'blocked')}), 't', 'a prepared cancel ends nothing');
one(q{COMMIT PREPARED 'end'});
is_now('c4', 'completed');

# prepared before a restart, by a parent that keeps nothing
pause('nothing');
one(q{BEGIN; SELECT enq('p5', 'nothing'), enq('c5', 'child', '{p5}'); PREPARE TRANSACTION 'both'});
one(q{SELECT enq('p6', 'nothing')});
one(q{BEGIN; SELECT enq('c6', 'child', '{p6}'); PREPARE TRANSACTION 'one'});
$node->restart;
wait_dispatcher($node, 'postgres', 'the server starts again');
resume('nothing');
wait_for_sql($node, q{SELECT NOT EXISTS (SELECT FROM jobq.queue JOIN id USING (id) WHERE name = 'p6')}, 'a parent ends before the edge is committed');
one(q{COMMIT PREPARED 'one'});
is_now('c6', 'completed');
one(q{COMMIT PREPARED 'both'});
is_now('c5', 'completed');

# ---------- parents that keep nothing ----------

one(q{BEGIN; SELECT enq('p7', 'nothing'), enq('c7', 'child', '{p7}'), enq('d7', 'child', '{p7}', 'done'), enq('f7', 'child', '{p7}', 'failed'); COMMIT});
is_now('c7', 'completed');
is_now('d7', 'completed');
is_now('f7', 'skipped');
one(q{SELECT enq('p8', 'nothing')});
wait_for_sql($node, q{SELECT NOT EXISTS (SELECT FROM jobq.jobs JOIN id USING (id) WHERE name = 'p8')}, 'a job that no job waits for keeps nothing');
sqlstate_is($node, 'postgres', q{SELECT enq('c8', 'child', '{p8}')}, 'P0002', 'a job that is gone is no parent');

# the end commits after the enqueue has seen the parent, before the edge is visible
pause('nothing');
my $session = $node->background_psql('postgres');
one(q{SELECT enq('p9', 'nothing')});
$session->query_safe(q{BEGIN; SELECT enq('c9', 'child', '{p9}')});
resume('nothing');
wait_for_sql($node, q{SELECT NOT EXISTS (SELECT FROM jobq.queue JOIN id USING (id) WHERE name = 'p9')}, 'the parent ends');
$session->query_safe('COMMIT');
is_now('c9', 'completed');

# ---------- parents that die and are not kept ----------

# Children of each rule, of a parent that is dead and gone: by keep_dead '0' of its type or of the
# job, by retention, by a purge.  Until it is gone, the first one is held.
one(<<'SQL');
SELECT jobq.create_job_type('lost', 'dies(jsonb)', max_attempts => 1, keep_dead => '0'),
  jobq.create_job_type('mourned', 'dies(jsonb)', max_attempts => 1, keep_dead => '1 hour');
CREATE FUNCTION children(parent text) RETURNS text LANGUAGE sql AS $$
  SELECT string_agg(concat_ws(' ', id.name, j.status, j.error_code, j.attempts), ', ' ORDER BY id.name)
    FROM jobq.jobs j JOIN id USING (id) WHERE id.name LIKE '%-' || parent
$$;
CREATE FUNCTION family(parent text, type text, keep interval DEFAULT NULL) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO id VALUES (parent, jobq.enqueue(type, keep_dead => keep));
  PERFORM enq(rule || '-' || parent, 'child', ARRAY[parent], rule) FROM unnest('{any,done,failed,success}'::text[]) rule;
END $$;
SQL
sub children_are { my ($parent, $expected, $what) = @_; return wait_for_sql($node, "SELECT children('$parent') = '$expected'", $what) || diag one("SELECT children('$parent')"); }

sub family_of_dead
{
	my ($parent, $success, $any) = @_;

	return "any-$parent " . ($any // 'skipped dependency 0') . ", done-$parent completed 1, failed-$parent completed 1, success-$parent $success";
}
one(q{SELECT family('gone', 'lost')});
children_are('gone', family_of_dead('gone', 'cancelled dependency 0'), 'the type keeps no dead letter: its death is its end');
one(q{SELECT family('left', 'mourned', '0')});
children_are('left', family_of_dead('left', 'cancelled dependency 0'), 'nor the job');
is(one(q{SELECT count(*) FROM jobq.dead_letters JOIN id USING (id) WHERE name IN ('gone', 'left')}), 0, 'neither is kept');
foreach my $way ([ 'expires', q{UPDATE jobq.dead_letters SET expires_at = clock_timestamp() - interval '1 minute' WHERE id = (SELECT id FROM id WHERE name = 'expires'); SELECT jobq_internal._retain()} ],
	[ 'purged', q{SELECT jobq.purge_dead_letters('mourned')} ])
{
	my ($parent, $goes) = @$way;

	one("SELECT family('$parent', 'mourned')");
	children_are($parent, family_of_dead($parent, 'blocked 0'), 'a dead letter holds a child');
	one($goes);
	is(one("SELECT count(*) FROM jobq.dead_letters JOIN id USING (id) WHERE name = '$parent'"), 0, 'it is gone');
	children_are($parent, family_of_dead($parent, 'cancelled dependency 0'), 'and cancels it');
}
# a dead letter that is retried completes before it would expire
one(q{SELECT family('cured', 'mourned')});
children_are('cured', family_of_dead('cured', 'blocked 0'), 'a dead letter holds a child');
one(q{CREATE OR REPLACE FUNCTION dies(p jsonb) RETURNS void LANGUAGE sql AS 'SELECT'; SELECT jobq.retry_job(id) FROM id WHERE name = 'cured'});
children_are('cured', family_of_dead('cured', 'completed 1'), 'and a retry releases it');
# a parent that completed or was cancelled expires while the child waits for another one
resume('keeps');
one(q{SELECT enq('first', 'keeps')});
is_now('first', 'completed');
pause('keeps');
one(q{SELECT enq('second', 'keeps'), enq('both', 'child', '{first,second}'), enq('third', 'keeps'), enq('bad', 'child', '{third,second}', 'done')});
one(q{SELECT jobq.cancel_job(id) FROM id WHERE name = 'third'});
wait_for_sql($node, q{SELECT count(*) = 2 AND bool_and(waiting_for = 1) FROM jobq.queue JOIN id USING (id) WHERE name IN ('both', 'bad')}, 'the ends have counted');
one(q{UPDATE jobq.history SET expires_at = clock_timestamp() - interval '1 minute' WHERE id IN (SELECT id FROM id WHERE name IN ('first', 'third')); SELECT jobq_internal._retain()});
is(one(q{SELECT count(*) FROM jobq.jobs JOIN id USING (id) WHERE name IN ('first', 'third')}), 0, 'parents expire');
is(one(q{SELECT count(*) FROM jobq.jobs JOIN id USING (id) WHERE name IN ('both', 'bad') AND status = 'blocked'}), 2, 'children wait on');
resume('keeps');
is_now($_, 'completed', "$_ runs: the end of the expired parent counts") foreach qw(both bad);

# ---------- isolation levels ----------

one(q{SELECT enq('p10', 'keeps'), jobq.pause_job_type('keeps')});
$session->query_safe(q{BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM jobq.jobs});
resume('keeps');
is_now('p10', 'completed');
$session->query_safe(q{SELECT enq('c10', 'child', (SELECT '{p10}'::text[]))});
$session->query_safe('COMMIT');
is_now('c10', 'completed', 'a parent that ended after the snapshot');

# ---------- more ends than the news hold, and one huge transaction ----------

pause('child');
one(q{SELECT enq('p11', 'child')});
one(q{CREATE TABLE many AS SELECT e.id FROM jobq.enqueue_jobs((SELECT jsonb_agg('{"job_type": "child"}'::jsonb) FROM generate_series(1, 6000))) e;
  CREATE TABLE kids AS SELECT jobq.enqueue('child', after => ARRAY[id], after_rule => 'done') AS id FROM many;
  INSERT INTO id SELECT 'all', jobq.enqueue('child', after => (SELECT array_agg(id) FROM many), after_rule => 'done')});
my ($conductor) = jobq_pids($node, 'conductor');
freeze($node, $conductor);
one(q{SELECT count(jobq.cancel_job(id)) FROM many});
kill 'CONT', $conductor;
wait_for_sql($node, q{SELECT count(*) = 0 FROM jobq.queue WHERE status = 'blocked'}, 'all children of 6,000 parents are released');
resume('child');
wait_for_sql($node, q{SELECT count(*) = 6000 FROM jobq.jobs JOIN kids USING (id) WHERE status = 'completed'}, 'and run');
is_now('all', 'completed');
one(q{TRUNCATE many, kids});

# ---------- a held snapshot, a locked child, DDL ----------

$session->query_safe(q{BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM jobq.queue});
one(q{BEGIN; SELECT enq('h' || n, 'keeps', CASE WHEN n > 1 THEN ARRAY['h' || n - 1] END) FROM generate_series(1, 300) n; COMMIT});
is_now('h300', 'completed', 'a chain of 300 under a held snapshot');
$session->query_safe('COMMIT');
pause('keeps');
one(q{SELECT enq('p12', 'keeps'), enq('c12', 'child', '{p12}'), enq('d12', 'child', '{p12}')});
$session->query_safe(q{BEGIN; SELECT FROM jobq.queue JOIN id USING (id) WHERE name = 'c12' FOR UPDATE OF queue});
resume('keeps');
is_now('d12', 'completed', 'a locked child holds no other one');
$session->query_safe('COMMIT');
is_now('c12', 'completed');
pause('keeps');
one(q{SELECT enq('p13', 'keeps'), enq('c13', 'child', '{p13}')});
$session->query_safe(q{BEGIN; LOCK TABLE jobq.dependencies IN ACCESS EXCLUSIVE MODE});
resume('keeps');
is_now('p13', 'completed', 'an end does not wait for the lock of the edges');
$session->query_safe('COMMIT');
is_now('c13', 'completed');
one(q{DROP INDEX jobq.dependencies_parent});
one(q{BEGIN; SELECT enq('p14', 'keeps'), enq('c14', 'child', '{p14}'); COMMIT});
is_now('c14', 'completed', 'without the index');
one(q{CREATE INDEX dependencies_parent ON jobq.dependencies (parent_id)});

# ---------- sets that forget ----------

pause('child', 'keeps');
one(q{INSERT INTO many SELECT e.id FROM generate_series(1, 15) n, jobq.enqueue_many('child', array_fill(jsonb_build_object('n', n), ARRAY[10000])) WITH ORDINALITY e(id)});

# An enqueue that is older than the change commits when the conductor begins to read the edges: it
# waits for a lock then, 50 ms at most.
one(q{SELECT enq('p18', 'keeps')});
$session->query_safe(q{BEGIN; SELECT enq('c18', 'keeps', '{p18}')});
my $log = -s $node->logfile;
one(q{BEGIN; SELECT jobq.enqueue('child', after => array_agg(id)) FROM (SELECT id, row_number() OVER (ORDER BY id) / 10000 AS part FROM many) m GROUP BY part; ROLLBACK});
my $locker = $node->background_psql('postgres');
$locker->query_safe('BEGIN; LOCK TABLE jobq.home IN ACCESS EXCLUSIVE MODE');
$session->query_safe(<<'END');
DO $$ BEGIN
  WHILE NOT EXISTS (SELECT FROM pg_locks l WHERE NOT l.granted AND l.relation = 'jobq.home'::regclass) LOOP PERFORM pg_sleep(0.001); END LOOP;
END $$;
COMMIT;
END
$locker->query_safe('COMMIT');
$locker->quit;
ok($node->wait_for_log(qr/cleared a set of awaited jobs/, $log), 'the sets change while an enqueue commits');
is(one(q{SELECT jobq_internal._may_be_awaited(id, NULL) FROM id WHERE name = 'p18'}), 't', 'the new one has its parent');

$log = -s $node->logfile;
one(q{INSERT INTO kids SELECT jobq.enqueue('child', after => array_agg(id), after_rule => 'done') FROM (SELECT id, row_number() OVER (ORDER BY id) / 10000 AS part FROM many) m GROUP BY part});
ok($node->wait_for_log(qr/cleared a set of awaited jobs/, $log), 'the sets change');
is(one(q{SELECT count(*) FROM jobq.dependencies}), '150001', 'with all edges');
one(q{SELECT enq('p15', 'keeps'), enq('c15', 'keeps', '{p15}')});
resume('keeps');
is_now($_, 'completed', "$_ runs") foreach qw(c18 c15);
one(q{DELETE FROM jobq.queue WHERE id IN (SELECT id FROM many)});
wait_for_sql($node, q{SELECT count(*) = 0 FROM jobq.queue WHERE status = 'blocked'}, 'the end of each parent finds its child');
resume('child');
wait_for_sql($node, q{SELECT count(*) >= 15 AND bool_and(status = 'completed') FROM jobq.jobs JOIN kids USING (id)}, 'and all run');

# ---------- restored copies ----------

pause('keeps', 'child');
one(q{SELECT enq('p16', 'keeps'), enq('c16', 'child', '{p16}'), enq('p17', 'keeps'), enq('c17', 'child', '{p17}', 'done')});
$node->command_ok([ 'pg_dump', '-f', $node->basedir . '/dump', $node->connstr('postgres') ], 'pg_dump');
$node->safe_psql('postgres', 'CREATE DATABASE copy');
$node->command_ok([ 'psql', '-qX', '-f', $node->basedir . '/dump', '-d', $node->connstr('copy') ], 'restored');
$node->safe_psql('copy', q{DELETE FROM jobq.queue WHERE id = (SELECT id FROM id WHERE name = 'p17')});
is($node->safe_psql('copy', q{SELECT count(*) FROM jobq.queue WHERE status = 'blocked'}), '2', 'the copy has blocked jobs');
$node->safe_psql('copy', q{SELECT jobq.adopt(); SELECT jobq.resume_job_type('keeps'), jobq.resume_job_type('child')});
foreach my $name (qw(c16 c17))
{
	ok($node->poll_query_until('copy', "SELECT is_now('$name', 'completed')"), "$name runs in the adopted copy");
}
is(one(q{SELECT is_now('c16', 'blocked')}), 't', 'the original waits on');

$session->quit;
$node->stop;
my $errors = join "\n", grep { /could not be released|terminated by signal/ } split /\n/, slurp_file($node->logfile);
is($errors, '', 'no error of the conductor');
done_testing();
