# The library compares its version with that of the extension's SQL: it runs jobs with the SQL of
# its own and the previous release, and with no other.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('versions', 'jobq.max_sql_workers = 2', 'autovacuum = off', 'jobq.sweep_interval = 100ms');
$node->start;
my $library = $node->safe_psql('postgres', "CREATE EXTENSION jobq; SELECT extversion FROM pg_extension WHERE extname = 'jobq'");
$node->safe_psql('postgres', 'DROP EXTENSION jobq');

sub sql { return $node->safe_psql('postgres', join ";\n", @_) }

sub wait_true
{
	my ($query, $what) = @_;

	return ok($node->poll_query_until('postgres', $query), $what);
}

# One job for each outcome.
sub runs
{
	my ($what) = @_;
	my ($done, $dead) = split /\|/, sql(q{SELECT jobq.enqueue('t'), jobq.enqueue('t', '{"fail": 1}')});

	wait_status($node, 'postgres', $done, 'completed', "$what: a job is completed");
	wait_status($node, 'postgres', $dead, 'error', 'one fails');
	is(sql("SELECT count(*) FROM jobq.events WHERE job_id IN ('$done', '$dead') AND type IN ('completed', 'dead')"), 2,
		'with their events');
	return;
}

# ---------- the tables of the previous release ----------

sql("CREATE EXTENSION jobq VERSION '0.1.0'", <<'END');
CREATE FUNCTION work(p jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN IF p ? 'fail' THEN RAISE 'told to'; END IF; END $$;
SELECT jobq.create_job_type('t', 'work(jsonb)', max_attempts => 1, options => '{"events": "all"}');
END
is(sql("SELECT count(*) FROM pg_attribute WHERE attrelid = 'jobq.queue'::regclass AND attname = 'keep_dead'"), 0,
	'the queue of 0.1.0 lacks a column');
wait_dispatcher($node, 'postgres', 'the dispatcher runs');
runs('over the tables of 0.1.0');
# the columns of this release come behind the owner's
sql(map { "ALTER TABLE jobq.$_ ADD COLUMN note interval DEFAULT '1s'" } qw(queue history dead_letters));
runs('with a column of the owner');

# The internal functions of 0.1.0 are in schema jobq.  Those of a schema that another
# role has made are never called.
sql('CREATE ROLE other', 'GRANT CREATE ON DATABASE postgres TO other', 'SET ROLE other', 'CREATE SCHEMA jobq_internal', map {
	"CREATE FUNCTION jobq_internal.$_ LANGUAGE plpgsql AS 'BEGIN RAISE \$\$captured\$\$; END'"
} '_pause_job_type(caller oid, name text, reason text, duration interval) RETURNS void', '_maintain(need timestamptz) RETURNS void',
	'_retain(max_rows int DEFAULT 10000) RETURNS boolean', '_stray_grants() RETURNS TABLE(grantee oid)', '_builtin_signals() RETURNS SETOF text',
	'_live_status(id uuid, rev int, status jobq.job_status) RETURNS jobq.job_status', '_sees(caller oid, tenant text, type_id int, enqueued_by text) RETURNS boolean',
	'_sees_job(caller oid, id uuid) RETURNS boolean', '_ensure_history_partition(t timestamptz) RETURNS void', '_ensure_events_partition(t timestamptz) RETURNS void');
sql(q{SELECT jobq.pause_job_type('t'), jobq.resume_job_type('t')}, q{SELECT jobq.grant_access('other', 'read')}, 'GRANT EXECUTE ON FUNCTION jobq.wait_for TO other');
is(sql(q{SELECT jobq.health()->'checks'->'dispatcher'->>'status'}), 'healthy', 'health() calls its own functions');
is(sql('SET ROLE other', q{SELECT status FROM jobq.wait_for((SELECT id FROM jobq.jobs WHERE status = 'completed' LIMIT 1))}), 'completed', 'and so does wait_for');
my $later = sql(q{SELECT jobq.enqueue('t', keep_completed => '5 years')});
wait_status($node, 'postgres', $later, 'completed', 'a job that needs a partition ends');
my ($rc, undef, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nALTER EXTENSION jobq UPDATE", on_error_stop => 1);
like($err, qr/ERROR:  42P06: schema "jobq_internal" exists already and does not belong to extension "jobq"\n.*HINT:  Rename it/s,
	'the update refuses a schema of that name');
is(sql('SELECT jobq.version()'), '0.1.0', 'and changes nothing');
runs('beside it');
sql('ALTER SCHEMA jobq_internal RENAME TO mine', 'ALTER EXTENSION jobq UPDATE');
is(sql(q{SELECT string_agg(DISTINCT pronamespace::regnamespace::text, ' ') FROM pg_proc WHERE proname IN ('_maintain', '_home_is_ours', '_library_version')
  AND pronamespace <> 'mine'::regnamespace}), 'jobq_internal', 'renamed, it is not in the way');
unlike(slurp_file($node->logfile), qr/ERROR:  captured/, 'none of its functions was called');
runs('after the update');
my $kept = sql(q{SELECT jobq.enqueue('t', '{"fail": 1}', keep_dead => '1 day')});
wait_status($node, 'postgres', $kept, 'error', 'a job with an argument of this release');
is(sql("SELECT keep_dead, note, expires_at - completed_at FROM jobq.dead_letters WHERE id = '$kept'"), '1 day|00:00:01|1 day',
	'each column has its own value, wherever it stands');

# ---------- versions that this library does not know ----------

# the statement trigger notifies every process, as the update script does
sub set_version
{
	my ($version) = @_;

	sql("UPDATE pg_extension SET extversion = '$version' WHERE extname = 'jobq'", 'UPDATE jobq.job_types SET paused = paused WHERE false');
	return;
}

my $waiting = sql("SELECT jobq.enqueue('t', delay => '1s')");
foreach my $case ([ '99.0.0', 'Install that version.s library and restart the server' ], [ '0.0.1', 'Run ALTER EXTENSION jobq UPDATE' ])
{
	my ($version, $remedy) = @$case;

	set_version($version);
	wait_true("SELECT h->>'status' = 'unhealthy' AND h->'checks'->'queues'->>'message' ~"
		  . " 'no job runs: the library is jobq $library, the extension in this database is version $version. $remedy'"
		  . " AND h->'checks'->'dispatcher'->>'status' = 'healthy' FROM (SELECT jobq.health() h) s",
		"over version $version health names both versions and the remedy");
	sqlstate_is($node, 'postgres', $_, '55000', "refused: $_")
	  foreach "SELECT jobq.enqueue('t')", "SELECT jobq.enqueue_many('t', ARRAY['{}'::jsonb])", "SELECT jobq.pause_job_type('t')",
	  "SELECT jobq.cancel_job('$waiting')", "UPDATE jobq.queue SET priority = 1 WHERE id = '$waiting'";
}
wait_true("SELECT clock_timestamp() > scheduled_for FROM jobq.queue WHERE id = '$waiting'",
	'the job is due');
is(sql("SELECT runs FROM jobq.queue WHERE id = '$waiting'"), 0, 'and has not begun');
set_version($library);
wait_status($node, 'postgres', $waiting, 'completed', 'it runs when the version is known again');
wait_true("SELECT jobq.health()->'checks'->'queues'->>'status' = 'healthy'", 'and health finds nothing');
set_version('99.0.0');
wait_true("SELECT jobq.health()->>'status' = 'unhealthy'", 'once more');
sql('DROP EXTENSION jobq CASCADE');
ok($node->poll_query_until('postgres', "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type LIKE 'jobq %er' AND datname = 'postgres')"),
	'and it can be dropped');
$node->stop;
like(slurp_file($node->logfile), qr/jobq: no job runs: the library is jobq \Q$library\E, the extension in this database is version 99\.0\.0/,
	'the log names both versions');
done_testing();
