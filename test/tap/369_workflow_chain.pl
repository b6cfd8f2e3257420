# The end of a parent releases its children by its own commit, for SQL and exec workers, while the
# conductor is stopped; then every race of such a transaction: a locked, cancelled, altered or
# replaced child, an edge that it does not see, two parents that end at once, an error.  A worker is
# held between its release and the moment when it is visible by a standby that does not exist.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('chain', 'jobq.max_sql_workers = 2', 'fsync = off', "jobq.sweep_interval = '1h'");
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE TABLE ran (seq int GENERATED ALWAYS AS IDENTITY, what text);
CREATE TABLE id (name text PRIMARY KEY, id uuid);
CREATE FUNCTION work(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO public.ran (what) VALUES (p->>'what');
  CASE p->>'end'
    WHEN 'dead' THEN RAISE 'dead';
    WHEN 'skipped' THEN PERFORM jobq.skip('no');
    WHEN 'spawn' THEN
      INSERT INTO public.id VALUES (p->>'what' || '.child', jobq.enqueue('child', jsonb_build_object('what', p->>'what' || '.child'), after => ARRAY[(jobq.current_job()).id]));
    ELSE NULL;
  END CASE;
END $$;
CREATE FUNCTION sleeps(p jsonb) RETURNS void LANGUAGE sql AS 'SELECT pg_sleep(600)';
SELECT jobq.create_job_type('sleeper', 'sleeps(jsonb)', max_attempts => 1);
SELECT jobq.create_job_type('parent', 'work(jsonb)', max_attempts => 1, options => '{"alert": false}'),
  jobq.create_job_type('other', 'work(jsonb)', max_attempts => 1), jobq.create_job_type('child', 'work(jsonb)', options => '{"events": "all"}'),
  jobq.create_job_type('ordered', 'work(jsonb)', options => '{"key_order": "fifo"}'), jobq.create_job_type('pulled'),
  jobq.create_job_type('tool', command => ARRAY['/bin/true'], options => '{"output": "none"}');
CREATE FUNCTION id(name text) RETURNS uuid LANGUAGE sql AS 'SELECT i.id FROM public.id i WHERE i.name = $1';
CREATE FUNCTION status(name text) RETURNS text LANGUAGE sql AS 'SELECT j.status::text FROM jobq.jobs j WHERE j.id = public.id($1)';
CREATE FUNCTION enq(name text, type text, after text[] DEFAULT NULL, rule text DEFAULT 'success', ends text DEFAULT NULL, key text DEFAULT NULL) RETURNS void LANGUAGE sql AS $$
  INSERT INTO id SELECT enq.name, jobq.enqueue(type, jsonb_build_object('what', name, 'end', ends), after => (SELECT array_agg(id(a)) FROM unnest(enq.after) a),
    after_rule => rule, concurrency_key => key)
$$;
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

# the sessions of this test wait for no standby
$ENV{PGOPTIONS} = '-c synchronous_commit=local';
sub one { return $node->safe_psql('postgres', $_[0]); }
sub is_now { my ($name, $status, $what) = @_; return wait_for_sql($node, "SELECT status('$name') = '$status'", $what // "$name is $status"); }
sub status_is { my ($name, $status, $what) = @_; return is(one("SELECT status('$name')"), $status, $what // "$name is $status"); }
sub pause { one("SELECT jobq.pause_job_type('$_')") foreach @_; return; }
sub resume { one("SELECT jobq.resume_job_type('$_')") foreach @_; return; }
sub no_edge { return wait_for_sql($node, 'SELECT count(*) = 0 FROM jobq.dependencies', 'no edge is left'); }

# ---------- without the conductor ----------

one(q{SELECT enq('p0', 'pulled'), enq('c0', 'child', '{p0}')});
one(q{SELECT jobq.complete(id, lease_token) FROM jobq.claim('{pulled}', wait => '10s')});
is_now('c0', 'completed', 'the end by a client is the conductor\'s');
no_edge();
my ($conductor) = jobq_pids($node, 'conductor');
freeze($node, $conductor);

one(q{BEGIN; SELECT enq('n' || n, CASE WHEN n % 2 = 0 THEN 'child' ELSE 'parent' END, CASE WHEN n > 1 THEN ARRAY['n' || n - 1] END) FROM generate_series(1, 300) n; COMMIT});
is_now('n300', 'completed', 'a chain of 300 needs no conductor');
is(one(q{SELECT count(*), count(DISTINCT what) FROM ran WHERE what LIKE 'n%'}), '300|300', '!each has run once');
is(one(q{SELECT count(*) FROM jobq.dependencies}), '0', 'and no edge is left');
is(one(q{SELECT string_agg(type, ' ' ORDER BY e.id) FROM jobq.events e WHERE job_id = id('n2')}), 'enqueued blocked released started completed', 'the events of a release')
  or diag(one(q{SELECT string_agg(type, ' ' ORDER BY e.id) FROM jobq.events e WHERE job_id = id('n2')}));
one(q{BEGIN; SELECT enq('t' || n, 'tool', CASE WHEN n > 1 THEN ARRAY['t' || n - 1] END) FROM generate_series(1, 10) n; SELECT enq('t11', 'child', '{t10}'); COMMIT});
is_now('t11', 'completed', 'a chain of tools neither');

# what the rules make of each end
pause('parent');
foreach my $end (qw(completed skipped dead))
{
	one("SELECT enq('$end', 'parent', ends => '$end')");
	one("SELECT enq('$end.' || r, 'child', '{$end}', r) FROM unnest('{success,done,any,failed}'::text[]) r");
}
resume('parent');
foreach my $met (qw(completed.success completed.done completed.any skipped.done dead.done dead.failed))
{
	is_now($met, 'completed');
}
foreach my $left (qw(completed.failed skipped.success skipped.any skipped.failed dead.success dead.any))
{
	status_is($left, 'blocked', "$left is left to the conductor");
}

# what else is left to it: other parents, ends by clients; a wide fan-out is begun
pause('parent', 'other');
one(q{SELECT enq('p1', 'parent'), enq('q1', 'other'), enq('c1', 'child', '{p1,q1}')});
one(q{SELECT enq('any1', 'child', '{p1,q1}', 'any'), enq('pull', 'pulled'), enq('c2', 'child', '{pull}')});
one(q{SELECT enq('w', 'parent')});
one(q{SELECT enq('w' || n, 'child', '{w}') FROM generate_series(1, 100) n});
resume('parent');
is_now('any1', 'completed', 'one of two parents is enough for any');
is_now('w', 'completed');
wait_for_sql($node, q{SELECT count(*) = 64 FROM ran WHERE what LIKE 'w%' AND what <> 'w'}, '64 of 100 children run');
status_is('c1', 'blocked', 'one of two parents is not enough');
resume('other');
is_now('q1', 'completed');
status_is('c1', 'blocked', 'the edge of a parent that has ended counts until the conductor counts it');
one(q{SELECT jobq.complete(id, lease_token) FROM jobq.claim('{pulled}', wait => '10s')});
status_is('c2', 'blocked', 'the end by a client');
kill 'CONT', $conductor;
is_now('c1', 'completed', 'two ends are counted');
is_now('c2', 'completed');
wait_for_sql($node, q{SELECT count(*) = 100 FROM ran WHERE what LIKE 'w%' AND what <> 'w'}, 'all children run');
is_now('skipped.success', 'skipped');
is_now('completed.failed', 'skipped');
one(q{SELECT jobq.purge_dead_letters('parent')});
is_now('dead.success', 'cancelled');
no_edge();
is(one(q{SELECT count(*) FROM (SELECT FROM ran GROUP BY what HAVING count(*) > 1) r}), '0', '!no job has run twice');

# a child of the job that enqueues it; places in a lane and in the order of a key
freeze($node, $conductor);
one(q{SELECT enq('s', 'parent', ends => 'spawn')});
is_now('s.child', 'completed', 'a handler enqueues a job behind its own');
pause('parent', 'ordered');
one(q{SELECT enq('p3', 'parent'), enq('o1', 'ordered', '{p3}', key => 'k')});
one(q{SELECT enq('o2', 'ordered', key => 'k')});
one(q{INSERT INTO id SELECT 'late', jobq.enqueue('child', after => ARRAY[id('p3')], scheduled_for => now() + interval '1 day')});
resume('parent');
is_now('o1', 'pending', 'a released job of a paused type waits');
is_now('late', 'pending');
is(one(q{SELECT position = scheduled_for AND position > now() + interval '23 hours' FROM jobq.queue WHERE id = id('late')}), 't', 'a released job waits for its time');
resume('ordered');
is_now('o1', 'completed');
is(one(q{SELECT string_agg(what, ' ' ORDER BY seq) FROM ran WHERE what LIKE 'o_'}), 'o2 o1', 'it has joined the order of its key at the end');
kill 'CONT', $conductor;

# ---------- the child's row is not free ----------

my $session = $node->background_psql('postgres');
pause('parent');
one(q{SELECT enq('p4', 'parent'), enq('c4', 'child', '{p4}'), enq('d4', 'child', '{p4}')});
$session->query_safe(q{BEGIN; SELECT FROM jobq.queue WHERE id = id('c4') FOR UPDATE});
resume('parent');
is_now('d4', 'completed', 'a locked child holds up neither its parent nor other children');
status_is('p4', 'completed');
$session->query_safe('COMMIT');
is_now('c4', 'completed', 'the conductor releases it');
pause('parent');
one(q{SELECT enq('p5', 'parent'), enq('c5', 'child', '{p5}'), enq('a5', 'child', '{p5}')});
$session->query_safe(q{BEGIN; SELECT jobq.cancel_job(id('c5')), jobq.alter_job(id('a5'), priority => 7)});
resume('parent');
is_now('p5', 'completed', 'nor do a cancel and a change');
$session->query_safe('COMMIT');
is_now('c5', 'cancelled');
is_now('a5', 'completed');
is(one(q{SELECT priority FROM jobq.jobs WHERE id = id('a5')}), '7', 'with its change');
no_edge();

# ---------- the parent's commit takes long ----------

sub hold
{
	one(q{ALTER SYSTEM SET synchronous_standby_names = 'nobody'});
	one(q{SELECT pg_reload_conf()});
	wait_for_sql($node, q{SELECT current_setting('synchronous_standby_names') = 'nobody'}, 'commits wait for a standby');
	return one('CHECKPOINT');    # once the checkpointer has read the setting
}

sub let_go
{
	one(q{ALTER SYSTEM RESET synchronous_standby_names});
	one(q{SELECT pg_reload_conf()});
	return;
}

sub held
{
	my ($n, $what) = @_;

	return wait_for_sql($node, "SELECT count(*) = $n FROM pg_stat_activity WHERE backend_type = 'jobq sql worker' AND wait_event = 'SyncRep'", $what);
}

pause('parent', 'other');
one(q{SELECT enq('p6', 'parent'), enq('c6', 'child', '{p6}'), enq('e6', 'child', '{p6}')});
one(q{SELECT enq('x6', 'other')});
one(q{SELECT jobq.cancel_job(id('x6'))});
$session->query_safe(q{BEGIN; SELECT enq('g6', 'child', '{p6}')});
hold();
resume('parent');
held(1, 'the worker waits with its release');
status_is('c6', 'blocked', 'which is not visible yet');

# edges that it does not see, of a transaction that was open and of a later one, at which the
# conductor looks before the end is visible
$session->query_safe('COMMIT');
one(q{SELECT enq('f6', 'child', '{p6}'), enq('marker', 'child', '{x6}')});
is_now('marker', 'cancelled', 'the conductor has looked');
status_is('g6', 'blocked');
status_is('f6', 'blocked');

# a cancel of a child that is being released waits for the commit
$session->query_until(qr/sent/, qq{\\echo sent\nSELECT jobq.cancel_job(id('e6'));\n});
wait_for_sql($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%cancel_job%' AND pid <> pg_backend_pid()}, 'a cancel waits');
pause('child');
let_go();
is_now('p6', 'completed');
is_now('e6', 'cancelled', 'and cancels the released job');
resume('child');
is_now('c6', 'completed');
is_now('f6', 'completed', 'an edge that the end did not see');
is_now('g6', 'completed', 'and another one');
no_edge();

# an edge that was prepared before the end and is committed before it is visible
pause('parent');
one(q{SELECT enq('p9', 'parent'), enq('c9', 'child', '{p9}')});
one(q{BEGIN; SELECT enq('g9', 'child', '{p9}'); PREPARE TRANSACTION 'g9'});
hold();
resume('parent');
held(1, 'a worker waits with its release');
one(q{COMMIT PREPARED 'g9'});
one(q{SELECT enq('marker 9', 'child', '{x6}')});
is_now('marker 9', 'cancelled', 'the conductor has looked');
let_go();
is_now('c9', 'completed');
is_now('g9', 'completed', 'an edge of a prepared transaction');
no_edge();

# two parents at once: of one child that waits for both, and of one that any of them releases
pause('parent');
one(q{SELECT enq('p7', 'parent'), enq('q7', 'other'), enq('c7', 'child', '{p7,q7}'), enq('a7', 'child', '{p7,q7}', 'any'), enq('d7', 'child', '{q7}')});
hold();
resume('parent');
held(1, 'the first parent ends');
resume('other');
held(2, 'and the second one');
let_go();
is_now($_, 'completed') foreach qw(p7 q7 c7 a7 d7);
no_edge();

# ---------- an error in a release ----------

pause('parent');
one(q{SELECT enq('p8', 'parent'), enq('bad', 'child', '{p8}')});
one(q{CREATE INDEX bad ON jobq.queue ((1 / CASE WHEN payload->>'what' = 'bad' AND waiting_for IS NULL THEN 0 ELSE 1 END))});
my $log = -s $node->logfile;
resume('parent');
is_now('p8', 'completed', 'an error in the release of a child is none of its parent');
ok($node->wait_for_log(qr/LOG: .*the conductor will release jobs.*division by zero/, $log), 'it is logged');
status_is('bad', 'blocked');
one(q{SELECT enq('s1', 'sleeper'), enq('s2', 'sleeper')});
is_now($_, 'running', "$_: a job in each worker") foreach qw(s1 s2);
one(q{SELECT jobq.cancel_job(id('s1')), jobq.cancel_job(id('s2'))});
is_now($_, 'cancelled', "$_: an error in a release leaves cancels on") foreach qw(s1 s2);
one(q{DROP INDEX jobq.bad});
is_now('bad', 'completed', 'the conductor releases it');
no_edge();

is(one(q{SELECT count(*) FROM (SELECT FROM ran GROUP BY what HAVING count(*) > 1) r}), '0', '!no job has run twice');
is(one(q{SELECT count(*) FROM jobq.queue WHERE id <> id('late')}), '0', 'nothing is left');
$session->quit;
$node->stop;
done_testing();
