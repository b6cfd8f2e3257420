# Dump and restore while jobs run: no row is lost or changed, and the copy's jobs
# do not run until jobq.adopt().

use strict;
use warnings;

use IPC::Run ();
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('dump', 'jobq.max_sql_workers = 2', 'autovacuum = off');
$node->start;
$node->safe_psql('postgres', 'CREATE DATABASE source');
$node->safe_psql('source', <<'END');
CREATE EXTENSION jobq;
CREATE TABLE done (job uuid);
CREATE TABLE gate (name text);
CREATE FUNCTION short(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO public.done SELECT id FROM jobq.current_job();
  IF p ? 'fail' THEN RAISE 'told to'; END IF;
  RETURN p;
END $$;
CREATE FUNCTION waiter(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  WHILE NOT EXISTS (SELECT FROM public.gate WHERE name = 'open') LOOP
    PERFORM pg_sleep(0.01);
  END LOOP;
  INSERT INTO public.done SELECT id FROM jobq.current_job();
END $$;
SELECT jobq.create_job_type('short', 'short(jsonb)', max_attempts => 1);
SELECT jobq.create_job_type('waiter', 'waiter(jsonb)', max_attempts => 1);
SELECT jobq.create_job_type('paused', 'short(jsonb)', keep_completed => '2 years', options => '{"batch": false}');
SELECT jobq.create_job_type('tool', command => ARRAY['/bin/echo', '{text}'], options => '{"output": "text"}');
SELECT jobq.create_job_type('gone', 'short(jsonb)');
SELECT jobq.drop_job_type('gone');
SELECT jobq.enqueue('paused', '{"keep": 1}'), jobq.enqueue('tool', '{"text": "täglich"}');
END
wait_dispatcher($node, 'source', 'the dispatcher runs');
ok($node->poll_query_until('source', q{SELECT count(*) = 2 FROM jobq.history WHERE status = 'completed'}), 'two partitions have rows');
$node->safe_psql('source', <<'END');
SELECT jobq.pause_job_type('paused', 'for now');
SELECT jobq.enqueue('paused', jsonb_build_object('n', i), priority => i % 3, unique_key => 'k' || i, tenant => 'acme',
  metadata => '{"a": "é\"\\"}') FROM generate_series(1, 20) i;
SELECT jobq.enqueue('short', '{"fail": true}') FROM generate_series(1, 5);
SELECT jobq.enqueue('short', delay => '1h');
SELECT jobq.enqueue('waiter');
END
ok($node->poll_query_until('source', 'SELECT count(*) = 5 FROM jobq.dead_letters'), 'dead letters exist');

# Of each table that is in dumps: how many rows, and a hash of them.
my @tables = split /\n/, $node->safe_psql('source', q{SELECT c.oid::regclass FROM pg_class c, pg_extension e
  WHERE e.extname = 'jobq' AND c.relnamespace = 'jobq'::regnamespace
    AND (c.relkind = 'p' OR c.relkind = 'r' AND c.oid = ANY (e.extconfig))});
my $digest = join ' UNION ALL ', map {
	"SELECT '$_', count(*), md5(string_agg(t::text, E'\\n' ORDER BY t::text)) FROM $_ t"
} @tables, 'public.done';
$digest .= ' ORDER BY 1';

sub paused
{
	my ($server, $db) = @_;

	return $server->safe_psql($db, q{SELECT jobq.health()->'checks'->'identity'->>'status'});
}

# A restored copy: exact, inactive, and active after adopt().
sub check_copy
{
	my ($server, $db, $expected, $what) = @_;
	my $result = $server->safe_psql($db, $digest);

	is($result, $expected, "!$what: every row is there as it was");
	is($server->safe_psql($db, q{SELECT count(*) FROM pg_inherits WHERE inhparent IN ('jobq.history'::regclass, 'jobq.events'::regclass)}),
		$node->safe_psql('source', q{SELECT count(*) FROM pg_inherits WHERE inhparent IN ('jobq.history'::regclass, 'jobq.events'::regclass)}),
		"$what: partitions are attached");
	wait_for_dispatcher($server, $db, $what);
	is(paused($server, $db), 'unhealthy', "$what: health() says that it is not itself");
	like($server->safe_psql($db, q{SELECT jobq.health()->'checks'->'identity'->>'message'}), qr/adopt/, "$what: and what to do");
	my $new = $server->safe_psql($db, q{SELECT jobq.enqueue('short', '{"new": true}')});
	wait_for_dispatcher($server, $db, "$what: it has looked");
	is($server->safe_psql($db, "SELECT status FROM jobq.jobs WHERE id = '$new'"), 'pending', "$what: nothing runs, new jobs neither");
	is($server->safe_psql($db, $digest =~ s/jobq\.queue t/jobq.queue t WHERE id <> '$new'/r),
		$expected, "$what: nothing has changed");

	my $waiting = $server->safe_psql($db, 'SELECT array_agg(id) FROM jobq.queue WHERE scheduled_for < now()');
	$server->safe_psql($db, q{INSERT INTO gate VALUES ('open'); SELECT jobq.adopt()});
	$server->safe_psql($db, q{SELECT jobq.resume_job_type('paused')});
	ok($server->poll_query_until($db, 'SELECT count(*) = 1 FROM jobq.queue'), "$what: after adopt() all that is due runs");
	is($server->safe_psql($db, "SELECT count(*) = cardinality('$waiting'::uuid[]), count(*) = count(DISTINCT job) FROM done WHERE job = ANY ('$waiting')"),
		't|t', "$what: once");
	is(paused($server, $db), 'healthy', "$what: it is itself");
	$server->safe_psql($db, q{SELECT jobq.create_job_type('another', 'short(jsonb)')});
	my $id = $server->safe_psql($db, q{SELECT jobq.enqueue('another')});
	wait_status($server, $db, $id, 'completed', "$what: a new type works");
	is($server->safe_psql($db, 'SELECT count(*) - count(DISTINCT id) FROM jobq.events'), '0', "!$what: event ids are unique");
	$server->safe_psql($db, 'DROP EXTENSION jobq');
	is($server->safe_psql($db, q{SELECT count(*) FROM pg_class WHERE relname ~ '^(history|events)_'}), '0', "$what: DROP EXTENSION takes all");
	return;
}

sub wait_for_dispatcher
{
	my ($server, $db, $what, $former) = @_;

	wait_dispatcher($server, $db, "$what: it has a dispatcher", $former);
	return ok($server->poll_query_until($db, q{SELECT jobq.health()->'checks'->'dispatcher'->>'status' = 'healthy'}),
		"$what: which answers");
}

# ---------- consistent dumps under load ----------

my $load = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('source'), '-c', <<'END' ], '<', \undef, '>', \my $load_out);
DO $$
BEGIN
  WHILE NOT EXISTS (SELECT FROM public.gate WHERE name = 'stop') LOOP
    PERFORM jobq.enqueue('short', '{"load": true}');
    COMMIT;
    PERFORM pg_sleep(0.002);
  END LOOP;
END $$
END
ok($node->poll_query_until('source', q{SELECT count(*) > 500 FROM jobq.history}), 'there is load');
my $session = $node->background_psql('source', on_error_stop => 1);
$session->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ');
my $snapshot = $session->query_safe('SELECT pg_export_snapshot()');
my $expected = $session->query_safe($digest);
my $dir = PostgreSQL::Test::Utils::tempdir();
my @pg_dump = ('pg_dump', '--snapshot', $snapshot, '-d', $node->connstr('source'));
command_ok([ @pg_dump, '-f', "$dir/plain.sql" ], 'pg_dump, plain');
command_ok([ @pg_dump, '-Fc', '-f', "$dir/custom.dump" ], 'pg_dump, custom');
command_ok([ 'pg_dump', '-d', $node->connstr('source'), '--data-only', '-t', 'jobq.queue', '-f', "$dir/queue.sql" ],
	'pg_dump of the queue alone');
is($session->query_safe($digest), $expected, 'the snapshot has stood still');
$session->quit;
like($expected, qr/^jobq\.queue\|[1-9]/m, 'it has live jobs');
like($expected, qr/^jobq\.dead_letters\|5\|/m, 'dead letters');
like($expected, qr/^jobq\.home\|1\|/m, 'and its home');

# ---------- restored ----------

my $other = jobq_server('other', 'jobq.max_sql_workers = 2');
$other->start;
$node->safe_psql('postgres', "CREATE DATABASE $_ TEMPLATE template0") foreach qw(plain custom);
$other->safe_psql('postgres', "CREATE DATABASE $_ TEMPLATE template0") foreach qw(plain custom);
foreach my $server ($node, $other)
{
	command_ok([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $server->connstr('plain'), '-f', "$dir/plain.sql" ],
		$server->name . ': plain dump restored');
	command_ok([ 'pg_restore', '--exit-on-error', '-j2', '-d', $server->connstr('custom'), "$dir/custom.dump" ],
		$server->name . ': custom dump restored');
	check_copy($server, $_, $expected, $server->name . " $_") foreach qw(plain custom);
}

# ---------- the queue alone, into an active database ----------

$other->safe_psql('postgres', 'CREATE DATABASE alive');
$other->safe_psql('alive', <<'END');
CREATE EXTENSION jobq;
CREATE TABLE done (job uuid);
CREATE FUNCTION mine(p jsonb) RETURNS void LANGUAGE sql AS 'INSERT INTO public.done SELECT id FROM jobq.current_job()';
SELECT jobq.create_job_type('mine' || i, 'mine(jsonb)') FROM generate_series(1, 5) i;
SELECT jobq.enqueue('mine1');
END
ok($other->poll_query_until('alive', 'SELECT count(*) = 1 FROM done'), 'an active database');
command_ok([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $other->connstr('alive'), '-f', "$dir/queue.sql" ],
	'gets the queue of another');
my $foreign = $other->safe_psql('alive', 'SELECT count(*) FROM jobq.queue');
cmp_ok($foreign, '>', 20, 'with its jobs');
$other->safe_psql('alive', q{SELECT jobq.enqueue('mine' || i) FROM generate_series(1, 5) i});
ok($other->poll_query_until('alive', 'SELECT count(*) = 6 FROM done'), 'its own jobs go on');
my $former = dispatcher($other, 'alive');
$other->safe_psql('alive', "SELECT pg_terminate_backend($former)");
wait_for_dispatcher($other, 'alive', 'alive, after a full scan', $former);
my $after = $other->safe_psql('alive', q{SELECT jobq.enqueue('mine1')});
wait_status($other, 'alive', $after, 'completed', 'its own jobs still go on');
is($other->safe_psql('alive', 'SELECT count(*) FROM jobq.queue'), $foreign, 'those of the other are inert');
is($other->safe_psql('alive', 'SELECT count(*) FROM done'), 7, 'none has run');
is(paused($other, 'alive'), 'healthy', 'it is itself');

# ---------- a copy of the database, page by page ----------

$other->safe_psql('postgres', 'CREATE DATABASE copied TEMPLATE alive');
wait_for_dispatcher($other, 'copied', 'the copy');
is(paused($other, 'copied'), 'unhealthy', 'a copy does not run the jobs of its template');
my $waits = $other->safe_psql('copied', q{SELECT jobq.enqueue('mine1')});
# adopt() waits for open enqueues, and others wait for it: no job keeps the old home
my @open = map { $other->background_psql('copied', on_error_stop => 1) } 1 .. 3;
my $first = $open[0]->query_safe(q{BEGIN; SELECT jobq.enqueue('mine1')});
my $scheduled = $open[0]->query_safe(q{SELECT jobq.schedule('often', 'every 1s', 'mine1')});
$open[1]->query_safe(q{BEGIN; SELECT jobq.health() IS NOT NULL});	# has read the old home
$open[2]->query_until(qr/begun/, "\\echo begun\nSELECT jobq.adopt();\n\\echo adopted\n");
my $waiting = q{SELECT count(*) = %d FROM pg_locks WHERE NOT granted AND relation = 'jobq.queue'::regclass};
ok($other->poll_query_until('copied', sprintf($waiting, 1)), 'adopt() waits');
$open[1]->query_until(qr/begun/, "\\echo begun\nSELECT jobq.enqueue('mine1') AS id \\gset\n\\echo enqueued :id\n");
ok($other->poll_query_until('copied', sprintf($waiting, 2)), 'an enqueue waits for adopt()');
$open[0]->query_safe('COMMIT');
$open[2]->query_until(qr/adopted/, '');
my ($second) = $open[1]->query_until(qr/enqueued \S+/, '') =~ /enqueued (\S+)/;
$open[1]->query_safe('COMMIT');
$_->quit foreach @open;
wait_status($other, 'copied', $waits, 'completed', 'until adopt()');
wait_status($other, 'copied', $_, 'completed', 'open enqueues') foreach $first, $second;
ok($other->poll_query_until('copied', q{SELECT runs > 0 FROM jobq.schedules WHERE name = 'often'}), 'a schedule, too');
is(paused($other, 'copied'), 'healthy', 'now it has its own identity');

# ---------- rewriting the home row ----------

$node->safe_psql('source', q{INSERT INTO gate VALUES ('stop'), ('open')});
ok($load->finish, 'the load has gone on until now');
ok($node->poll_query_until('source', q{SELECT count(*) = 0 FROM jobq.jobs WHERE job_type <> 'paused' AND status IN ('pending', 'running')
  AND scheduled_for < now()}), 'the source drains');
foreach my $how ('VACUUM FREEZE', 'VACUUM FULL', 'VACUUM (FULL, FREEZE)')
{
	$node->safe_psql('source', "$how jobq.home");
	is(paused($node, 'source'), 'healthy', "the source knows itself after $how");
}
$node->restart;
is(paused($node, 'source'), 'healthy', 'and after a restart');
my $last = $node->safe_psql('source', q{SELECT jobq.enqueue('short')});
wait_status($node, 'source', $last, 'completed', 'jobs run');
is($node->safe_psql('source', q{SELECT count(*) - count(DISTINCT job) FROM done}), '0', '!none ran twice');

$node->stop;
$other->stop;
done_testing();
