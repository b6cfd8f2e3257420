# An extension is updated under a running library that does not know the later tables: nothing
# crashes, no job is handed out, and after the restart with the later library all jobs continue.
# Upgrade scripts refuse an older library (111_lifecycle_upgrade.pl); this test is about an older
# library installed again, or a script without the check.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use UpgradeTest;

my $version = new_version();
my ($major, $minor) = split /\./, $version;
my $next = join '.', $major, $minor + 1, 0;
my $stage = stage_release(next_source($next));
my ($lib, $share) = directories_of($stage);
my $kept = PostgreSQL::Test::Utils::tempdir();
install_file("$lib/jobq.so", $kept);
install_new($stage);

my $node = upgrade_server('ahead', $stage, 'jobq.sweep_interval = 100ms');
$node->start;
$node->safe_psql('postgres', 'CREATE DATABASE app');

sub sql { return $node->safe_psql('app', $_[0]) }
sub wait_until { return ok($node->poll_query_until('app', $_[0]), $_[1]) }

my $gate = PostgreSQL::Test::Utils::tempdir() . '/gate';
sql(<<"END");
CREATE EXTENSION jobq;
CREATE TABLE done (n bigint, marker int DEFAULT pg_backend_pid());
CREATE TABLE sent (n bigserial);
CREATE TABLE gate (name text);
CREATE FUNCTION work(p jsonb) RETURNS void LANGUAGE plpgsql AS \$\$
BEGIN
  WHILE p ? 'gate' AND NOT EXISTS (SELECT FROM public.gate) LOOP
    PERFORM pg_sleep(0.01);
  END LOOP;
  INSERT INTO public.done SELECT (p->>'n')::bigint;
END \$\$;
SELECT jobq.create_job_type('steady', 'work(jsonb)');
SELECT jobq.create_job_type('tool', command => '{/bin/sh,-c,"while [ ! -e $gate ]; do sleep 0.05; done; echo 1"}');
END
is(sql('SELECT jobq.version()'), $version, "the server runs jobq $version");
my $load = steady_load($node, 'app', (q{DO $$
DECLARE
  v bigint;
BEGIN
  FOR i IN 1..100 LOOP
    INSERT INTO public.sent DEFAULT VALUES RETURNING n INTO v;
    PERFORM jobq.enqueue('steady', jsonb_build_object('n', v));
    COMMIT;
    PERFORM pg_sleep(0.005);
  END LOOP;
END $$}) x 2);
wait_until('SELECT count(*) > 50 FROM done', 'handlers run under load');
my $tool = sql(q{SELECT jobq.enqueue('tool')});
my $gated = sql(q{SELECT jobq.enqueue('steady', '{"n": -1, "gate": true}')});
wait_until("SELECT count(*) = 2 FROM jobq.jobs WHERE id IN ('$tool', '$gated') AND status = 'running'", 'a tool and a handler run');

# --- the update: every table gets columns, in a script without the check of the library ---

my $script = "$share/extension/jobq--$version--$next.sql";
append_to_file($script, <<'END');
\echo Use "ALTER EXTENSION jobq UPDATE" to load this file. \quit
LOCK TABLE jobq.queue IN ACCESS EXCLUSIVE MODE;
DO $$
DECLARE
  t regclass;
BEGIN
  FOR t IN SELECT c.oid FROM pg_class c WHERE c.relnamespace = 'jobq'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition LOOP
    EXECUTE format('ALTER TABLE %s ADD COLUMN next_text text DEFAULT ''x'', ADD COLUMN next_int int, ADD COLUMN next_big numeric DEFAULT 7', t);
  END LOOP;
END $$;
UPDATE jobq.job_types SET paused = paused WHERE false;
END
sql("ALTER EXTENSION jobq UPDATE TO '$next'");
is(sql('SELECT jobq.version()'), $next, "the extension is $next under the library of $version");
wait_until(q{SELECT jobq.health()->>'status' = 'unhealthy'}, 'health() is alarmed');
like(sql('SELECT jobq.health()'), qr/the library is jobq \Q$version\E, the extension in this database is version \Q$next\E\. Install that version's library and restart/,
	'names both versions, and the remedy');
my $runs = sql('SELECT coalesce(sum(runs), 0) FROM jobq.queue');
sqlstate_is($node, 'app', q{SELECT jobq.enqueue('steady', '{"n": 0}')}, '55000', 'enqueue refuses');
append_to_file($gate, '');
sql(q{INSERT INTO gate VALUES ('open')});
wait_until(q{SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type LIKE 'jobq sql%' AND state = 'active')}, 'no handler runs');
my $done = sql('SELECT count(*) FROM done');
my $sweeps = sql('SELECT clock_timestamp()');
wait_until("SELECT clock_timestamp() > '$sweeps'::timestamptz + '2 s'", 'the dispatcher has looked many times');
is(sql('SELECT count(*) FROM done'), $done, 'nothing was handed out');

# --- the restart with the later library ---

install_file("$kept/jobq.so", $lib);
$node->restart;
wait_dispatcher($node, 'app', 'after the restart a dispatcher runs');
is(sql('SELECT jobq_internal._library_version()'), $next, 'of the later library');
wait_until("SELECT count(*) > $done + 50 FROM done", 'jobs run');
wait_until("SELECT count(*) = 2 FROM jobq.jobs WHERE id IN ('$tool', '$gated') AND status = 'completed'", 'the tool and the handler have ended');
my $said = $load->();
wait_until('SELECT NOT EXISTS (SELECT FROM jobq.queue)', 'all jobs end');
is(sql(q{SELECT count(*) FROM (SELECT n FROM sent EXCEPT SELECT n FROM done) lost}), 0, '!no job is lost');
is(sql(q{SELECT count(*) FROM (SELECT n FROM done GROUP BY n HAVING count(*) > 1) twice}), 0, '!none ran twice');
is(sql(q{SELECT count(*) FROM jobq.dead_letters}), 0, 'none failed');
is(sql(q{SELECT j.id, j.payload, j.attempts, e.type, e.ts, e.message, e.data FROM jobq.jobs j LEFT JOIN jobq.events e ON e.job_id = j.id WHERE j.job_type = 'steady' AND j.attempts <> 1}), '', 'no attempt was charged');
is(join("\n", grep { /ERROR/ && !/terminating connection|the database system is|the library is jobq/ } split /\n/, $said), '', 'clients had no other errors');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP:|was terminated by signal|server process .* exited with exit code [2-9]/, 'no process crashed');
$node->stop;
done_testing();
