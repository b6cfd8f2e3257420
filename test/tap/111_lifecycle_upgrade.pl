# From the former release to this one: the library is replaced and the extension updated under load.
# Between both nothing is handed out and enqueues are refused.  No job is lost, none runs twice, and
# the catalogs equal those of a fresh install.

use strict;
use warnings;

use IPC::Run ();
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use UpgradeTest;

my ($old, $new) = (old_version(), new_version());
my $stage = stage_release();
my $node = upgrade_server('upgrade', $stage);
$node->start;
$node->safe_psql('postgres', 'CREATE DATABASE app');

sub sql { return $node->safe_psql('app', $_[0]) }

# --- the former release with objects and rows of every kind ---

my @configured = (<<'END', <<'END');
SET ROLE dba;
CREATE EXTENSION jobq;
END
CREATE TABLE done (n bigint, at timestamptz DEFAULT clock_timestamp());
CREATE TABLE gate (name text);
CREATE FUNCTION work(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  PERFORM jobq.set_progress(50);
  IF p ? 'gate' THEN
    WHILE NOT EXISTS (SELECT FROM public.gate g WHERE g.name = p->>'gate') LOOP
      PERFORM pg_sleep(0.01);
    END LOOP;
  END IF;
  IF p ? 'fail' THEN RAISE EXCEPTION 'told to fail' USING ERRCODE = 'P0077'; END IF;
  IF p ? 'skip' THEN PERFORM jobq.skip('not needed'); END IF;
  INSERT INTO public.done SELECT (p->>'n')::bigint WHERE p ? 'n';
  RETURN p;
END $$;
GRANT INSERT ON done TO runner;
GRANT SELECT ON gate TO runner;
GRANT EXECUTE ON FUNCTION work TO runner;
SELECT jobq.set_limit('shared', 5, 1000, '1min');
SELECT jobq.create_job_type('work', 'work(jsonb)', max_attempts => 2, backoff_base => '1h', run_as => 'runner', options => '{"events": "all", "limits": ["shared"]}');
SELECT jobq.create_job_type('steady', 'work(jsonb)', run_as => 'runner');
SELECT jobq.create_job_type('tool', command => '{/bin/echo,"{text}"}', options => '{"output": "text"}', keep_completed => '30 days');
SELECT jobq.create_job_type('napper', command => '{/bin/sleep,"{seconds}"}', options => '{"output": "none"}', keep_completed => '100 days');
SELECT jobq.create_job_type('counted', 'work(jsonb)', keep_dead => '3 days', options => '{"keep_completed_count": 5, "keep_dead_count": 2}', max_attempts => 1);
SELECT jobq.create_job_type('still', 'work(jsonb)', options => '{"aging": {"per": "1min"}, "fair_by": "tenant"}');
SELECT jobq.pause_job_type('still', 'for the test');
SELECT jobq.create_job_type('gone', 'work(jsonb)');
SELECT jobq.drop_job_type('gone');
SELECT jobq.set_signal('night', true), jobq.create_signal('busy', 'false');
SELECT jobq.set_pressure_rule('tool', 'night', priority_adj => -5), jobq.set_pressure_rule(NULL, 'busy', max_weight => 3);
SELECT jobq.set_tenant_quota('acme', 1000, 10000000, 100000);
CREATE FUNCTION admits(t text) RETURNS boolean LANGUAGE sql AS 'SELECT false';
SELECT jobq.set_tenant_check('admits(text)');
SELECT jobq.grant_access('app', 'enqueue', 'acme', '{work,still}'), jobq.grant_access('app', 'read', 'acme');
SELECT jobq.grant_access('boss', 'admin'), jobq.grant_access('team', 'read');
GRANT EXECUTE ON FUNCTION jobq.enqueue, jobq.wait_for TO byhand WITH GRANT OPTION;
GRANT SELECT ON jobq.option_keys TO PUBLIC;
END
$node->safe_psql('postgres', 'CREATE ROLE dba LOGIN SUPERUSER; CREATE ROLE runner LOGIN; CREATE ROLE app LOGIN; CREATE ROLE boss LOGIN; CREATE ROLE team; CREATE ROLE byhand LOGIN; CREATE ROLE stranger LOGIN; CREATE ROLE mate LOGIN IN ROLE team');
sql($_) foreach @configured;
is(sql('SELECT jobq.version()'), $old, "the server runs jobq $old");
wait_dispatcher($node, 'app', 'and its dispatcher');

sql(<<'END');
CREATE TABLE kept (what text, id uuid);
INSERT INTO kept SELECT 'completed', jobq.enqueue('work', jsonb_build_object('done', i), tenant => 'acme', keep_completed => i * '40 days'::interval) FROM generate_series(1, 4) i;
INSERT INTO kept SELECT 'tool', jobq.enqueue('tool', '{"text": "täglich"}');
INSERT INTO kept SELECT 'skipped', jobq.enqueue('work', '{"skip": 1}');
INSERT INTO kept SELECT 'counted', jobq.enqueue('counted', jsonb_build_object('i', i)) FROM generate_series(1, 4) i;
INSERT INTO kept SELECT 'error', jobq.enqueue('work', '{"fail": 1}', max_attempts => 1, tenant => 'acme', unique_key => 'dead', unique_for => '1 day');
INSERT INTO kept SELECT 'error', jobq.enqueue('counted', '{"fail": 1}');
INSERT INTO kept SELECT 'retry', jobq.enqueue('work', '{"fail": 1}', metadata => '{"m": 1}');
INSERT INTO kept SELECT 'pending', jobq.enqueue('still', jsonb_build_object('i', i), tenant => 't' || i % 3, priority => i % 7, concurrency_key => 'c' || i,
  unique_key => 'k' || i, backoff => '{"base": "2s"}', timeout => '9s', delay => CASE WHEN i > 5 THEN i * '1 hour'::interval END) FROM generate_series(1, 20) i;
INSERT INTO kept SELECT 'blocked', jobq.enqueue('still', '{"blocked": 1}');
UPDATE jobq.queue SET status = 'blocked' WHERE id = (SELECT id FROM kept WHERE what = 'blocked');
INSERT INTO kept SELECT 'cancelled', jobq.enqueue('still', '{"cancel": 1}');
SELECT jobq.cancel_job(id, 'not wanted') FROM kept WHERE what = 'cancelled';
END
wait_until(q{SELECT count(*) = 0 FROM jobq.jobs JOIN kept USING (id) WHERE status NOT IN ('completed', 'skipped', 'error') AND what IN ('completed', 'tool', 'skipped', 'counted', 'error')}, 'jobs end');
wait_until(q{SELECT status = 'retry' FROM jobq.jobs JOIN kept USING (id) WHERE what = 'retry'}, 'one waits for its retry');

sub wait_until { return ok($node->poll_query_until('app', $_[0]), $_[1]) }

# Unchanged rows, and the configuration, without columns that the former release lacks.
my $rest = join ' UNION ALL ', map {
	"SELECT '$_', (SELECT jsonb_object_agg(key, value) FROM jsonb_each(to_jsonb(t)) WHERE key IN (SELECT c FROM old_columns WHERE r = '$_'))::text FROM jobq.$_ t"
	  . (/queue|history|dead_letters/ ? q{ JOIN kept USING (id) WHERE what NOT IN ('gated', 'nap')} :
		/events|alerts/ ? ' JOIN kept ON kept.id = t.job_id' : '')
} qw(queue history dead_letters events alerts job_types limits signals pressure_rules access tenant_check tenant_quotas stopped home);
sql(q{CREATE TABLE old_columns AS SELECT c.relname AS r, a.attname AS c FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
  WHERE c.relnamespace = 'jobq'::regnamespace AND a.attnum > 0});

sub rows_of_now { return [ grep { !/"busy"|"steady"/ } split /\n/, sql("SELECT * FROM ($rest) r(t, line) ORDER BY 1, 2") ] }

my $before = rows_of_now();
cmp_ok(scalar @$before, '>', 60, 'rows of every table');

# A view on a jobq view stays; objects that use a function with changed arguments
# must be dropped for the update.
sql(<<'END');
CREATE VIEW my_jobs AS SELECT id, status, attempts FROM jobq.jobs WHERE job_type = 'still';
CREATE VIEW starter AS SELECT jobq.enqueue('steady', '{"view": 1}') AS id;
CREATE TABLE with_default (id uuid DEFAULT jobq.enqueue('steady', '{"default": 1}'));
CREATE FUNCTION atomic() RETURNS SETOF uuid BEGIN ATOMIC SELECT jobq.enqueue_many('steady', '{"{}"}'); END;
END

# --- load: every enqueue records its number in the same transaction ---

sql('CREATE TABLE sent (n bigserial)');
my $load = steady_load($node, 'app', (q{DO $$
DECLARE
  v bigint;
BEGIN
  FOR i IN 1..100 LOOP
    INSERT INTO public.sent DEFAULT VALUES RETURNING n INTO v;
    PERFORM jobq.enqueue('steady', jsonb_build_object('n', v), keep_completed => '10 days');
    COMMIT;
    PERFORM pg_sleep(0.005);
  END LOOP;
END $$}) x 2, q{SELECT jobq.enqueue('tool', '{"text": "steady"}', metadata => '{"load": 1}')});

sub makes_progress
{
	my ($what) = @_;
	my $n = sql('SELECT count(*) FROM done WHERE n > 0');

	wait_until("SELECT count(*) > $n + 50 FROM done WHERE n > 0", "$what: handlers run");
	my $tools = sql(q{SELECT count(*) FROM jobq.history WHERE metadata ? 'load'});
	return wait_until("SELECT count(*) > $tools FROM jobq.history WHERE metadata ? 'load'", "$what: tools run");
}

makes_progress("jobq $old");

# --- new files under the running server: it keeps the old library ---

install_new($stage);
makes_progress('new files, not restarted');
my $pid = dispatcher($node, 'app');
my ($rc, $out, $err) = $node->psql('app', 'ALTER EXTENSION jobq UPDATE', on_error_stop => 1, extra_params => [ '-v', 'VERBOSITY=verbose' ]);
isnt($rc, 0, 'an update before the restart is refused');
like($err, qr/55000: the library that is loaded is older than jobq \Q$new\E/, 'and says why');
like($err, qr/HINT:.*restart the server/, 'and what to do');
is(sql('SELECT jobq.version()'), $old, 'nothing has changed');
makes_progress('after that');
is(dispatcher($node, 'app'), $pid, 'under the same dispatcher');

# --- the new library over the former release's tables ---

sql(q{INSERT INTO kept SELECT 'gated', jobq.enqueue('steady', '{"n": -1, "gate": "open"}'); INSERT INTO kept SELECT 'nap', jobq.enqueue('napper', '{"seconds": "3600"}')});
wait_until(q{SELECT count(*) = 2 FROM jobq.jobs JOIN kept USING (id) WHERE what IN ('gated', 'nap') AND status = 'running'}, 'long jobs run, of both kinds');
my $stop = sql('SELECT clock_timestamp()');
my $restart = seconds_of { $node->restart };
my $start = sql('SELECT clock_timestamp()');
wait_dispatcher($node, 'app', 'after the restart a dispatcher runs');
is(sql('SELECT jobq.version()'), $old, "over the tables of $old");
my $done = sql('SELECT count(*) FROM done');

# health() has asked the dispatcher, which would have handed out jobs before it answers again.
sub hands_out_nothing
{
	my ($what) = @_;

	like(sql('SELECT jobq.health(), jobq.health()'), qr/no job runs: the library is jobq \Q$new\E, the extension in this database is version \Q$old\E\. Run ALTER EXTENSION jobq UPDATE/, "$what: health() has the remedy");
	return is(sql('SELECT count(*) FROM done'), $done, 'and nothing was handed out');
}

hands_out_nothing('new library, old tables');
is_deeply(rows_of_now(), $before, 'rows are as they were');
sqlstate_is($node, 'app', $_, '55000', "refused: $_") foreach q{SELECT jobq.enqueue('steady')}, q{SELECT jobq.retry_dead_letters('work')};
sqlstate_is($node, 'app', 'SET ROLE app; SELECT count(*) FROM jobq.jobs', '55000', 'and reads by grantees');

# --- the update under load ---

$before = rows_of_now();
($rc, $out, $err) = $node->psql('app', 'ALTER EXTENSION jobq UPDATE', on_error_stop => 1, extra_params => [ '-v', 'VERBOSITY=verbose' ]);
isnt($rc, 0, 'objects of users that depend on a changed function stop the update');
like($err, qr/ERROR:  2BP01:/, 'with dependent_objects_still_exist');
like($err, qr/view public\.starter depends on function jobq\.enqueue\(/, 'the error lists a view');
like($err, qr/default value for column id of table public\.with_default depends on function jobq\.enqueue\(/, 'a default');
like($err, qr/function public\.atomic\(\) depends on function jobq\.enqueue_many\(/, 'a function');
unlike($err, qr/my_jobs/, 'and not what need not go');
is(sql('SELECT jobq.version()'), $old, 'and changes nothing');
sql('DROP VIEW starter; DROP FUNCTION atomic(); ALTER TABLE with_default ALTER id DROP DEFAULT');
# Default privileges of the superuser that runs the update and owns none of jobq.
my @defaults = ('GRANT EXECUTE ON FUNCTIONS TO stranger', 'GRANT ALL ON TABLES TO stranger', 'GRANT ALL ON SEQUENCES TO stranger', 'GRANT USAGE ON TYPES TO stranger', 'GRANT ALL ON SCHEMAS TO stranger');
sql(join ';', map { "ALTER DEFAULT PRIVILEGES $_" } @defaults);
is(sql(q{BEGIN; ALTER EXTENSION jobq UPDATE; SELECT jobq.enqueue('steady', keep_dead => '1 day') IS NOT NULL; ROLLBACK}), 't',
	'an update in a transaction with an enqueue after it');
is(sql('SELECT jobq.version()'), $old, 'is rolled back');
hands_out_nothing('an update that is rolled back');
# Retention deletes dead letters, then history: the update waits for it, without a deadlock.
my $retention = $node->background_psql('app');
$retention->query_safe('BEGIN; DELETE FROM jobq.dead_letters WHERE false');
my $update = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('app'), '-c', 'ALTER EXTENSION jobq UPDATE' ], '<', \undef, '>', \$out, '2>', \$err);
wait_until(q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query ~ '^ALTER EXTENSION' AND wait_event_type = 'Lock'}, 'the update waits for retention');
is($retention->query_safe('SELECT count(*) >= 0 FROM jobq.history'), 't', 'which reads history');
my $took = seconds_of { $retention->query_safe('COMMIT'); $update->finish };
is($err, '', 'the update has no error');
$retention->quit;
sql(join ';', map { my $revoke = $_ =~ s/GRANT/REVOKE/r =~ s/ TO / FROM /r; "ALTER DEFAULT PRIVILEGES $revoke" } @defaults);
my $again = seconds_of { $node->poll_query_until('app', "SELECT count(*) > $done FROM done") };
note(sprintf 'restart %.2f s, update %.2f s, first job after %.2f s', $restart, $took, $again);
is(sql('SELECT jobq.version()'), $new, "the extension is $new");
makes_progress('after the update');
# The update writes jobs with a concurrency key once, for key_since.
my $written = sub { return [ map { /^queue\|.*"concurrency_key": "/ ? s/"rev": \d+/"rev": 0/r : $_ } @_ ] };
is_deeply($written->(@{ rows_of_now() }), $written->(@$before), 'rows are as they were');
is(sql('SELECT count(*) > 0 AND bool_and(key_since = created_at) FROM jobq.queue WHERE concurrency_key IS NOT NULL'), 't', 'and have their place in the order of their key');
sql(<<'END');
CREATE VIEW starter AS SELECT jobq.enqueue('steady', '{"view": 1}') AS id;
ALTER TABLE with_default ALTER id SET DEFAULT jobq.enqueue('steady', '{"default": 1}');
CREATE FUNCTION atomic() RETURNS SETOF uuid BEGIN ATOMIC SELECT jobq.enqueue_many('steady', '{"{}"}'); END;
END
is(sql('SELECT count(*) FROM starter, atomic() a'), 1, 'they can be made again, and work');
is(sql('SELECT count(*) > 20 FROM my_jobs'), 't', 'a view on jobq.jobs went on');
is(sql(q{SELECT count(*) FROM jobq.queue q JOIN kept USING (id) WHERE what IN ('gated', 'nap')}), 2, 'the long jobs are there');
sql(q{INSERT INTO gate VALUES ('open')});
wait_until(q{SELECT status = 'completed' FROM jobq.jobs JOIN kept USING (id) WHERE what = 'gated'}, 'the handler ends');
is(sql('SELECT count(*) FROM done WHERE n = -1'), 1, 'once');
is(sql(q{SELECT jobq.cancel_job(id, 'enough') FROM kept WHERE what = 'nap'}), 't', 'the tool is cancelled');
wait_until(q{SELECT status = 'cancelled' FROM jobq.jobs JOIN kept USING (id) WHERE what = 'nap'}, 'and ends');

# --- rights ---

my $id = sql(q{SET ROLE app; SELECT jobq.enqueue('still', '{"by": "app"}', tenant => 'acme', keep_dead => '1 day')});
is(sql("SET ROLE app; SELECT count(*) FROM jobq.wait_for('$id', '10 ms') j WHERE j.id IS NOT NULL"), 0, 'a grantee of enqueue enqueues and waits');
is(sql(q{SET ROLE app; SELECT count(*) FROM jobq.jobs j WHERE payload ? 'by'}), 1, 'and sees it');
sqlstate_is($node, 'app', q{SET ROLE app; SELECT jobq.enqueue('still', tenant => 'beta')}, '42501', 'of its tenant');
sqlstate_is($node, 'app', q{SET ROLE app; SELECT jobq.cancel_jobs('still')}, '42501', 'but has nothing new');
is(sql(q{SET ROLE mate; SELECT count(*) > 20 FROM jobq.list_jobs()}), 't', 'a member of a grantee reads');
is(sql(q{SET ROLE boss; SELECT jobq.cancel_job(id) FROM jobq.jobs WHERE payload ? 'by'}), 't', 'an administrator manages');
is(sql(q{SET ROLE byhand; SELECT jobq.enqueue('still') IS NOT NULL}), 't', 'a role that was given EXECUTE by hand has it');
is(sql(q{SET ROLE byhand; GRANT EXECUTE ON FUNCTION jobq.enqueue TO stranger; REVOKE EXECUTE ON FUNCTION jobq.enqueue FROM stranger; SELECT 1}), 1, 'with its grant option');
sqlstate_is($node, 'app', 'SET ROLE stranger; SELECT jobq.enqueue(NULL)', '42501', 'PUBLIC has nothing');
is(sql(q{SELECT count(*) FROM pg_proc WHERE pronamespace IN ('jobq'::regnamespace, 'jobq_internal'::regnamespace) AND proname <> 'version' AND has_function_privilege('stranger', oid, 'EXECUTE')}), 0, 'of any function');

# --- nothing lost, nothing twice ---

my $said = $load->();
wait_until(q{SELECT NOT EXISTS (SELECT FROM jobq.queue q JOIN jobq.job_types t ON t.id = q.type_id WHERE t.name IN ('steady', 'tool'))}, 'all that was sent has ended');
is(sql(q{SELECT count(*) FROM (SELECT n FROM sent EXCEPT SELECT n FROM done) lost}), 0, '!no job is lost');
is(sql(q{SELECT count(*) FROM (SELECT n FROM done WHERE n > 0 GROUP BY n HAVING count(*) > 1) twice}), 0, '!none ran twice');
is(sql(q{SELECT count(*) FROM (SELECT n FROM done WHERE n > 0 EXCEPT SELECT n FROM sent) more}), 0, 'none ran that was rolled back');
is(sql(q{SELECT count(*) FROM jobq.dead_letters d JOIN jobq.job_types t ON t.id = type_id WHERE t.name IN ('steady', 'tool')}), 0, 'none failed');
# jobq 0.1.0 charges an attempt when the server stops and the worker ends before the dispatcher.
is(sql(qq{SELECT j.id, j.payload, j.attempts, e.type, e.ts, e.message, e.data FROM jobq.jobs j LEFT JOIN jobq.events e ON e.job_id = j.id
  WHERE j.job_type = 'steady' AND j.attempts <> 1 AND NOT EXISTS (SELECT FROM jobq.events f WHERE f.job_id = j.id AND f.type = 'failed'
    AND f.ts BETWEEN '$stop' AND '$start')}), '', 'no attempt was charged for any of it');
is(join("\n", grep { /ERROR/ && !/terminating connection|the database system is|cache lookup failed for function|the library is jobq/ } split /\n/, $said), '', 'clients had no other errors');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP:|was terminated by signal|server process .* exited with exit code [2-9]/, 'no process crashed');

# --- the catalogs ---

$node->safe_psql('postgres', 'CREATE DATABASE fresh');
$node->safe_psql('fresh', $_) foreach @configured;
my @upgraded = catalog_of($node, 'app');
my @fresh = catalog_of($node, 'fresh');
cmp_ok(scalar @fresh, '>', 500, 'the catalogs are described');
is(dropped_lines(\@fresh, \@upgraded), '', 'all that a fresh install has is there, rights of grantees included');
is(dropped_lines(\@upgraded, \@fresh), '', 'and nothing else');

# --- a dump carries the grants that the update gave again ---

my $dump = PostgreSQL::Test::Utils::tempdir() . '/app.sql';
$node->command_ok([ 'pg_dump', '-d', $node->connstr('app'), '-f', $dump ], 'pg_dump');
$node->safe_psql('postgres', 'CREATE DATABASE copy');
$node->command_ok([ 'psql', '-X', '-q', '-U', 'dba', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('copy'), '-f', $dump ], 'and restore');
my @copy = catalog_of($node, 'copy');
is(dropped_lines(\@fresh, \@copy), '', 'the copy has all of it');
is(dropped_lines(\@copy, \@fresh), '', 'and nothing else');

$node->stop;
done_testing();
