# A streaming standby: no process of jobq runs there, its jobs can be read,
# and after promotion they run.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $primary = jobq_server('primary', 'jobq.max_sql_workers = 2', 'hot_standby_feedback = on');
$primary->start;
$primary->safe_psql('postgres', 'CREATE EXTENSION jobq');
wait_dispatcher($primary, 'postgres', 'the primary has its dispatcher');

my $dir = PostgreSQL::Test::Utils::tempdir();
append_to_file("$dir/tool", "echo run >>$dir/runs; while [ ! -e $dir/\$1 ]; do sleep 0.05; done\n");
$primary->safe_psql('postgres', <<"END");
CREATE TABLE gate (name text);
CREATE TABLE done (job uuid, recovery boolean);
CREATE FUNCTION waiter(p jsonb) RETURNS void LANGUAGE plpgsql AS \$\$
BEGIN
  WHILE NOT EXISTS (SELECT FROM public.gate WHERE name = p->>'gate') LOOP
    PERFORM pg_sleep(0.01);
  END LOOP;
  INSERT INTO public.done SELECT id, pg_is_in_recovery() FROM jobq.current_job();
END \$\$;
SELECT jobq.create_job_type('waiter', 'waiter(jsonb)', max_attempts => 1);
SELECT jobq.create_job_type('tool', command => ARRAY['/bin/sh', '$dir/tool', '{gate}'],
  backoff => 'fixed', backoff_base => '10ms', options => '{"output": "none"}');
INSERT INTO gate VALUES ('open');
SELECT jobq.enqueue('waiter', '{"gate": "open"}');
END
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;
wait_for_sql($primary, q{SELECT count(*) = 1 FROM jobq.jobs WHERE status = 'completed'}, 'the primary works');

# ---------- on the standby ----------

# running and waiting jobs of the primary
sub enqueue
{
	my ($type, $payload, $args) = @_;

	return $primary->safe_psql('postgres', "SELECT jobq.enqueue('$type', '$payload'" . ($args // '') . ')');
}

my $sql = enqueue('waiter', '{"gate": "later"}');
my $tool = enqueue('tool', '{"gate": "later"}');
my $due = enqueue('waiter', '{"gate": "open"}', q{, delay => '3s'});
my $future = enqueue('waiter', '{"gate": "open"}', q{, delay => '1h'});
wait_for_sql($primary, q{SELECT count(*) = 2 FROM jobq.jobs WHERE status = 'running'}, 'two jobs in flight');
ok(wait_for_text("$dir/runs", qr/run/), 'the tool has started');
$primary->wait_for_catchup($standby, 'replay');

is($standby->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'jobq%'"), '0',
	'nothing of ours runs on the standby');
is($standby->safe_psql('postgres', 'SELECT string_agg(DISTINCT status::text, $$ $$ ORDER BY status::text) FROM jobq.jobs'),
	'completed pending running', 'its jobs can be read');
is($standby->safe_psql('postgres', "SELECT status FROM jobq.jobs WHERE id = '$sql'"), 'pending',
	'jobs running on the primary without a claim are pending here');
is($standby->safe_psql('postgres', "SELECT count(*) FROM jobq.list_jobs()"), '5', 'list_jobs works');
is($standby->safe_psql('postgres', q{SELECT sum(count) FROM jobq.count_by_status()}), '5', 'count_by_status works');
sqlstate_is($standby, 'postgres', q{SELECT jobq.enqueue('waiter')}, '25006', 'enqueue says that the server is read-only');
sqlstate_is($standby, 'postgres', "SELECT jobq.cancel_job('$future')", '25006', 'so does cancel_job');
is($standby->safe_psql('postgres', q{SELECT jobq.health()->'checks'->'dispatcher'->>'status'}), 'unhealthy', 'health() knows');
wait_for_sql($primary, "SELECT status = 'completed' FROM jobq.jobs WHERE id = '$due'", 'the due job runs on the primary');
$primary->wait_for_catchup($standby, 'replay');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM done'), '2', 'and its completion arrives');

# ---------- promotion ----------

is(scalar(() = slurp_file("$dir/runs") =~ /run/g), 1, '!the tool has started once');
$primary->stop('immediate');
my $offset = -s $standby->logfile;
append_to_file("$dir/later", '');
$standby->promote;
wait_dispatcher($standby, 'postgres', 'promotion starts launcher and dispatcher');
cmp_ok($standby->safe_psql('postgres', q{SELECT extract(epoch FROM d.backend_start - l.backend_start) FROM pg_stat_activity d, pg_stat_activity l
	WHERE d.backend_type = 'jobq dispatcher' AND l.backend_type = 'jobq launcher'}), '<', 30, 'soon');
$standby->safe_psql('postgres', q{INSERT INTO gate VALUES ('later')});
wait_for_sql($standby, "SELECT count(*) = 2 FROM jobq.jobs WHERE id IN ('$sql', '$tool') AND status = 'completed'",
	'jobs running on the primary run here');
is($standby->safe_psql('postgres', "SELECT attempts FROM jobq.jobs WHERE id = '$sql'"), '1', 'the SQL job at no charge');
is($standby->safe_psql('postgres', "SELECT string_agg(data->>'code', ' ') FROM jobq.events WHERE job_id = '$tool'"),
	'server_crash', 'the tool lost its attempt and is retried');
is(scalar(() = slurp_file("$dir/runs") =~ /run/g), 2, '!it has started once more');
is($standby->safe_psql('postgres', 'SELECT count(*), count(DISTINCT job), bool_or(recovery) FROM done'), '3|3|f',
	'!nothing ran twice');
is($standby->safe_psql('postgres', "SELECT status FROM jobq.jobs WHERE id = '$future'"), 'pending', 'a future job waits on');
ok($standby->safe_psql('postgres', "SELECT jobq.alter_job('$future', scheduled_for => clock_timestamp())") eq 't', 'moved to now');
wait_for_sql($standby, "SELECT status = 'completed' FROM jobq.jobs WHERE id = '$future'", 'it runs');
is($standby->safe_psql('postgres', q{SELECT jobq.health()->'checks'->'identity'->>'status'}), 'healthy', 'its identity is unchanged');
unlike(slurp_file($standby->logfile), qr/PANIC|TRAP:|exited with exit code ([2-9]|\d\d)|terminating any other active/,
	'no process of it was hurt');

$standby->stop;
done_testing();
