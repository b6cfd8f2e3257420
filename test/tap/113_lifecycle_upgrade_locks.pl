# The update of the extension beside sessions that lock tables and views in other orders: it waits
# for them, they wait for it, and there is no deadlock.  Privileges from default privileges of the
# former release go; a dump has the grants.

use strict;
use warnings;

use IPC::Run ();
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use UpgradeTest;

# ---------- databases of the former release, with its library ----------

my $stage = stage_release();
my $node = upgrade_server('locks', $stage, 'max_connections = 40');
$node->start;
$node->safe_psql('postgres', 'CREATE ROLE enqueuer; CREATE ROLE app; CREATE ROLE reporting; CREATE ROLE by_hand');
my $right = $node->safe_psql('postgres', q{SELECT oid || ':enqueuer' FROM pg_roles WHERE rolname = 'enqueuer'});
my $former = <<'END';
CREATE EXTENSION jobq;
CREATE FUNCTION plain(p jsonb) RETURNS void LANGUAGE sql AS 'SELECT';
SELECT jobq.create_job_type('plain', 'plain(jsonb)'), jobq.create_job_type('other', 'plain(jsonb)'), jobq.pause_job_type('plain');
END
my %databases = (
	first => $former,
	second => $former,
	seventh => "$former ALTER TABLE jobq.queue ADD COLUMN note text",
	third => <<"END", fourth => "$former SELECT jobq.grant_access('app', 'read')", fifth => "$former SELECT jobq.enqueue('plain', concurrency_key => 'k') FROM generate_series(1, 2)", sixth => <<"END");
ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO reporting;
ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO reporting;
CREATE EXTENSION jobq;
ALTER DEFAULT PRIVILEGES REVOKE SELECT ON TABLES FROM reporting;
ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM reporting;
GRANT EXECUTE ON FUNCTION jobq.set_tenant_quota TO by_hand;
SELECT jobq.grant_access('app', 'read');
GRANT SELECT ON jobq.jobs TO PUBLIC;
END
$former
SELECT jobq.enqueue('plain', jsonb_build_object('by', b)) FROM unnest('{$right,10:bob,4000000000:bob,bob,:bob}'::text[]) b;
UPDATE jobq.queue SET enqueued_by = payload->>'by';
DROP INDEX jobq.queue_key_order;
ALTER TABLE jobq.job_types DROP CONSTRAINT job_types_check;
CREATE SCHEMA elsewhere;
CREATE TABLE elsewhere."Old" PARTITION OF jobq.history FOR VALUES FROM ('2999-01-01') TO ('2999-01-02');
END
foreach my $db (sort keys %databases)
{
	$node->safe_psql('postgres', "CREATE DATABASE $db");
	$node->safe_psql($db, $databases{$db});
}
install_new($stage);
$node->restart;

# ---------- sessions that lock tables ----------

my (%said, %run);

sub start
{
	my ($name, $sql) = @_;

	$said{$name} = '';
	return $run{$name} = IPC::Run::start([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('first') . " application_name=$name", '-c', $sql ],
		'<', \undef, '>', \my $out, '2>', \$said{$name});
}

# Each of them waits for a lock or has ended.
sub stand
{
	my ($what, @names) = @_;

	foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		$_->pumpable && $_->pump_nb foreach @run{@names};
		my %waits = map { $_ => 1 } split /\n/, $node->safe_psql('postgres', q{SELECT application_name FROM pg_stat_activity WHERE wait_event_type = 'Lock'});

		return pass($what) unless grep { !$waits{$_} && $run{$_}->pumpable } @names;
		select undef, undef, undef, 0.1;
	}
	return fail($what);
}

my $holder = $node->background_psql('first');
$holder->query_safe('BEGIN; DELETE FROM jobq.dead_letters WHERE false');
my @runs = start('update', 'ALTER EXTENSION jobq UPDATE');
wait_for_sql($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'update' AND wait_event_type = 'Lock'}, 'the update waits for a table');
my %others = (
	reader => 'SELECT count(*) FROM jobq.jobs',
	joiner => 'SELECT count(*) FROM jobq.job_types t JOIN jobq.queue q ON q.type_id = t.id',
	writer => q{BEGIN; UPDATE jobq.job_types SET paused = false WHERE name = 'plain'; DELETE FROM jobq.queue WHERE false; COMMIT});
push @runs, map { start($_, $others{$_}) } sort keys %others;
stand('others run or wait', sort keys %others);
$holder->query_safe('COMMIT');
$holder->quit;
$_->finish foreach @runs;
is($said{$_}, '', "no error: $_") foreach 'update', sort keys %others;
is($node->safe_psql('first', 'SELECT extversion = jobq_internal._library_version() FROM pg_extension WHERE extname = $$jobq$$'), 't', 'the extension is updated');
my $job = $node->safe_psql('first', q{SELECT jobq.enqueue('other')});
wait_status($node, 'first', $job, 'completed', 'jobs run');

# lock_timeout bounds the wait, and is as it was after it
$holder = $node->background_psql('second');
$holder->query_safe('BEGIN; LOCK TABLE jobq.stopped IN ACCESS SHARE MODE');
sqlstate_is($node, 'second', q{SET lock_timeout = '700ms'; ALTER EXTENSION jobq UPDATE}, '55P03');
$holder->query_safe('COMMIT');
$holder->quit;
is($node->safe_psql('second', q{SET lock_timeout = '1min'; BEGIN; ALTER EXTENSION jobq UPDATE; SHOW lock_timeout; COMMIT}), '1min', 'lock_timeout is as it was');

# An update with one snapshot for all would not see what commits between its attempts to lock.  What
# is counted in an update that is rolled back does not count.
$node->safe_psql('fifth', 'BEGIN; ALTER EXTENSION jobq UPDATE; SELECT * FROM jobq.stat_job_types; ROLLBACK');
foreach my $level ('repeatable read', 'serializable')
{
	my (undef, undef, $err) = $node->psql('fifth', "\\set VERBOSITY verbose\nSET default_transaction_isolation = '$level';\nALTER EXTENSION jobq UPDATE", on_error_stop => 1);

	like($err, qr/ERROR:  25001: .*\Q$level\E.*\nHINT:  .*READ COMMITTED/, "$level is refused");
}
$node->safe_psql('fifth', 'BEGIN ISOLATION LEVEL READ COMMITTED; ALTER EXTENSION jobq UPDATE; COMMIT');
is($node->safe_psql('fifth', 'SELECT count(*) FILTER (WHERE key_since IS NULL), count(*) FROM jobq.queue'), '0|2', 'all jobs are converted');
is($node->safe_psql('fifth', 'SELECT sum(pending) FROM jobq.stat_job_types'), 2, 'and counted');

# Rows and objects that differ from those of jobq
($said{sixth}) = ($node->psql('sixth', 'ALTER EXTENSION jobq UPDATE'))[2];
is($said{sixth}, '', 'an update of a database with a malformed enqueued_by, without an index, with a partition in another schema');
is($node->safe_psql('sixth', q{SELECT string_agg(enqueued_by, ' ') FROM jobq.queue}), $right, 'only the enqueuers that exist are left');
is($node->safe_psql('sixth', q{SELECT string_agg(indexrelid::regclass::text, ' ') FROM pg_index WHERE indrelid = 'elsewhere."Old"'::regclass AND pg_get_indexdef(indexrelid) ~ 'workflow_id'}),
	'elsewhere."Old_workflow"', 'the partition has its index');

# A table that is not as the former release made it: C code numbers the columns.
my $refused = ($node->psql('seventh', "\\set VERBOSITY verbose\nALTER EXTENSION jobq UPDATE", on_error_stop => 1))[2];
like($refused, qr/ERROR:  55000: .*column "note" of jobq\.queue is in the place of "keep_dead"/, 'a table with a column of its owner: the update is refused');
is($node->safe_psql('seventh', 'SELECT jobq.version()'), old_version(), 'and changes nothing');

# Sessions that have been refused before the update: their calls run the functions of this release.
my %calls = (
	pause_job_type => q{SELECT jobq.pause_job_type('plain'), jobq.resume_job_type('plain')},
	cancel_jobs => q{SELECT jobq.cancel_jobs('plain')},
	retry_dead_letters => q{SELECT count(*) FROM jobq.retry_dead_letters('plain')},
	purge_dead_letters => q{SELECT count(*) FROM jobq.purge_dead_letters('plain')},
	set_limit => q{SELECT jobq.set_limit('shared', 5)},
	set_signal => q{SELECT jobq.set_signal('night', true)},
	stop_all => q{SELECT jobq.stop_all('test'), jobq.start_all()},
	list_jobs => q{SELECT count(*) FROM jobq.list_jobs()},
	reads => q{SET ROLE app; SELECT count(*) FROM jobq.list_jobs(); RESET ROLE},
	waits => q{SET ROLE app; SELECT count(*) FROM jobq.wait_for('0190a5b8-1111-7111-8111-111111111111', '0'); RESET ROLE});
my %sessions;
foreach my $name (sort keys %calls)
{
	$sessions{$name} = $node->background_psql('fourth', on_error_stop => 0);
	$sessions{$name}->query("\\set VERBOSITY verbose\n$calls{$name};") for 1 .. 2;
	like($sessions{$name}->{stderr}, qr/ERROR:  55000: .*HINT:  Run ALTER EXTENSION jobq UPDATE/s, "$name is refused") unless $name =~ /^list|^reads/;
	$sessions{$name}->query('RESET ROLE');
	$sessions{$name}->{stderr} = '';
}
$node->safe_psql('fourth', 'ALTER EXTENSION jobq UPDATE');
foreach my $name (sort keys %calls)
{
	$sessions{$name}->query("$calls{$name};");
	unlike($sessions{$name}->{stderr}, qr/ERROR(?!:  \w+: job "0190a5b8)/, "$name has no error after the update");
	$sessions{$name}->quit;
}

# default privileges of the time when the former release was installed
$node->safe_psql('third', 'ALTER EXTENSION jobq UPDATE');
is($node->safe_psql('third', q{SELECT count(*) FROM pg_class c, aclexplode(relacl) a WHERE relnamespace = 'jobq'::regnamespace AND a.grantee = 'reporting'::regrole}), 0,
	'what default privileges added is taken back');
is($node->safe_psql('third', q{SELECT string_agg(DISTINCT format('%s %s', a.grantee::regrole, p.proname), ', ') FROM pg_proc p, aclexplode(proacl) a
  WHERE starts_with(pronamespace::regnamespace::text, 'jobq') AND a.grantee IN ('reporting'::regrole, 'by_hand'::regrole)}), 'by_hand set_tenant_quota',
	'on functions, too, also on those that have other arguments now; a GRANT by hand stays');
is($node->safe_psql('third', q{SELECT count(*) FROM pg_class c, aclexplode(relacl) a WHERE oid = 'jobq.jobs'::regclass AND a.grantee = 0}), 1,
	'a GRANT to PUBLIC by hand is not');
my ($dump) = PostgreSQL::Test::Utils::run_command([ 'pg_dump', '--schema-only', '-d', $node->connstr('third') ]);
like($dump, qr/^GRANT SELECT ON TABLE jobq\.jobs TO app;/m, 'a dump has the grants of jobq.access');
unlike($dump, qr/^GRANT .* TO reporting;/m, 'and no revoked right');

$node->stop;
done_testing();
