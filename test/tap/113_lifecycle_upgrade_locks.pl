# The update of the extension beside sessions that lock tables and views in other orders: it waits
# for them, they wait for it, and there is no deadlock.  Privileges from default privileges of the
# former release go; a dump has the grants.

use strict;
use warnings;

use IPC::Run ();
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('locks', 'max_connections = 40');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq VERSION '0.1.0';
CREATE FUNCTION plain(p jsonb) RETURNS void LANGUAGE sql AS 'SELECT';
SELECT jobq.create_job_type('plain', 'plain(jsonb)'), jobq.create_job_type('other', 'plain(jsonb)');
END

my %said;

sub start
{
	my ($name, $sql) = @_;

	$said{$name} = '';
	return IPC::Run::start([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres') . " application_name=$name", '-c', $sql ],
		'<', \undef, '>', \my $out, '2>', \$said{$name});
}

# Each of them waits for a lock or has ended.
sub stand
{
	my ($what, @names) = @_;
	my $list = join ', ', map { "'$_'" } @names;

	return wait_for_sql($node, "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name IN ($list) AND wait_event_type IS DISTINCT FROM 'Lock')",
		$what);
}

my $holder = $node->background_psql('postgres');
$holder->query_safe('BEGIN; DELETE FROM jobq.dead_letters WHERE false');
my @runs = start('update', 'ALTER EXTENSION jobq UPDATE');
wait_for_sql($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'update' AND wait_event_type = 'Lock'}, 'the update waits for a table');
my %others = (
	reader => 'SELECT count(*) FROM jobq.jobs',
	joiner => 'SELECT count(*) FROM jobq.job_types t JOIN jobq.queue q ON q.type_id = t.id',
	manager => q{BEGIN; SELECT jobq.pause_job_type('other'); SELECT jobq.enqueue('plain'); COMMIT});
push @runs, map { start($_, $others{$_}) } sort keys %others;
wait_for_sql($node, q{SELECT true}, 'they have begun');
stand('others run or wait', sort keys %others);
$holder->query_safe('COMMIT');
$holder->quit;
$_->finish foreach @runs;
is($said{$_}, '', "no error: $_") foreach sort keys %said;
is($node->safe_psql('postgres', 'SELECT extversion = jobq_internal._library_version() FROM pg_extension WHERE extname = $$jobq$$'), 't', 'the extension is updated');
wait_for_sql($node, 'SELECT NOT EXISTS (SELECT FROM jobq.queue)', 'jobs run');

# lock_timeout bounds the wait, and is as it was after it
$node->safe_psql('postgres', 'CREATE DATABASE second');
$node->safe_psql('second', q{CREATE EXTENSION jobq VERSION '0.1.0'});
$holder = $node->background_psql('second');
$holder->query_safe('BEGIN; LOCK TABLE jobq.stopped IN ACCESS SHARE MODE');
sqlstate_is($node, 'second', q{SET lock_timeout = '700ms'; ALTER EXTENSION jobq UPDATE}, '55P03');
$holder->query_safe('COMMIT');
$holder->quit;
is($node->safe_psql('second', q{SET lock_timeout = '1min'; BEGIN; ALTER EXTENSION jobq UPDATE; SHOW lock_timeout; COMMIT}), '1min', 'lock_timeout is as it was');

# An update with one snapshot for all would not see the jobs that come between its attempts to lock.
# What is counted in an update that is rolled back does not count.
$node->safe_psql('postgres', 'CREATE DATABASE fifth');
$node->safe_psql('fifth', <<'END');
CREATE EXTENSION jobq VERSION '0.1.0';
CREATE FUNCTION plain(p jsonb) RETURNS void LANGUAGE sql AS 'SELECT';
SELECT jobq.create_job_type('plain', 'plain(jsonb)'), jobq.pause_job_type('plain');
SELECT jobq.enqueue('plain') FROM generate_series(1, 3);
BEGIN;
ALTER EXTENSION jobq UPDATE;
SELECT * FROM jobq.stat_job_types;
ROLLBACK;
DELETE FROM jobq.queue;
END
foreach my $level ('repeatable read', 'serializable')
{
	$holder = $node->background_psql('fifth');
	$holder->query_safe('BEGIN; LOCK TABLE jobq.dead_letters IN ACCESS SHARE MODE');
	my $fixed = $node->background_psql('fifth', on_error_stop => 0);
	my $pid = $fixed->query_safe('SELECT pg_backend_pid()');
	$fixed->query_safe("SET default_transaction_isolation = '$level'");
	$fixed->query_until(qr/sent/, "\\set VERBOSITY verbose\n\\echo sent\nALTER EXTENSION jobq UPDATE;\n");
	wait_for_sql($node, "SELECT query ~ '^ALTER' AND (state = 'idle' OR wait_event_type = 'Lock') FROM pg_stat_activity WHERE pid = $pid",
		"$level: the update waits or has ended");
	$node->safe_psql('fifth', q{SELECT jobq.enqueue('plain', concurrency_key => 'k')});
	$holder->query_safe('COMMIT');
	$holder->quit;
	$fixed->query('SELECT 1');
	like($fixed->{stderr}, qr/ERROR:  25001: .*\Q$level\E.*\nHINT:  .*READ COMMITTED/, "$level is refused");
	$fixed->quit;
}
$node->safe_psql('fifth', 'BEGIN ISOLATION LEVEL READ COMMITTED; ALTER EXTENSION jobq UPDATE; COMMIT');
is($node->safe_psql('fifth', 'SELECT count(*) FILTER (WHERE key_since IS NULL), count(*) FROM jobq.queue'), '0|2', 'all jobs are converted');
is($node->safe_psql('fifth', 'SELECT pending FROM jobq.stat_job_types'), 2, 'and counted');

# Rows and objects that differ from those of jobq
$node->safe_psql('postgres', 'CREATE DATABASE sixth; CREATE ROLE enqueuer');
my $right = $node->safe_psql('postgres', q{SELECT oid || ':enqueuer' FROM pg_roles WHERE rolname = 'enqueuer'});
$node->safe_psql('sixth', <<"END");
CREATE EXTENSION jobq VERSION '0.1.0';
CREATE FUNCTION plain(p jsonb) RETURNS void LANGUAGE sql AS 'SELECT';
SELECT jobq.create_job_type('plain', 'plain(jsonb)'), jobq.pause_job_type('plain');
SELECT jobq.enqueue('plain', jsonb_build_object('by', b)) FROM unnest('{$right,10:bob,4000000000:bob,bob,:bob}'::text[]) b;
UPDATE jobq.queue SET enqueued_by = payload->>'by';
DROP INDEX jobq.queue_key_order;
ALTER TABLE jobq.job_types DROP CONSTRAINT job_types_check;
CREATE SCHEMA elsewhere;
CREATE TABLE elsewhere."Old" PARTITION OF jobq.history FOR VALUES FROM ('2999-01-01') TO ('2999-01-02');
END
($said{sixth}) = ($node->psql('sixth', 'ALTER EXTENSION jobq UPDATE'))[2];
is($said{sixth}, '', 'an update of a database with a malformed enqueued_by, without an index, with a partition in another schema');
is($node->safe_psql('sixth', q{SELECT string_agg(enqueued_by, ' ') FROM jobq.queue}), $right, 'only the enqueuers that exist are left');
is($node->safe_psql('sixth', q{SELECT string_agg(indexrelid::regclass::text, ' ') FROM pg_index WHERE indrelid = 'elsewhere."Old"'::regclass AND pg_get_indexdef(indexrelid) ~ 'workflow_id'}),
	'elsewhere."Old_workflow"', 'the partition has its index');

# Calls that wait for the update, in sessions that have made them before: they run the functions of
# this release, which have another schema.
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
$node->safe_psql('postgres', 'CREATE DATABASE fourth; CREATE ROLE app');
$node->safe_psql('fourth', <<'END');
CREATE EXTENSION jobq VERSION '0.1.0';
CREATE FUNCTION plain(p jsonb) RETURNS void LANGUAGE sql AS 'SELECT';
SELECT jobq.create_job_type('plain', 'plain(jsonb)'), jobq.grant_access('app', 'read');
END
my %sessions;
foreach my $name (sort keys %calls)
{
	$sessions{$name} = $node->background_psql('fourth', on_error_stop => 0);
	$sessions{$name}->query("SET application_name = '$name'");
	$sessions{$name}->query("$calls{$name};") for 1 .. 2;
	$sessions{$name}->{stderr} = '';
}
my $updater = $node->background_psql('fourth');
$updater->query_safe('BEGIN; ALTER EXTENSION jobq UPDATE');
foreach my $name (sort keys %calls)
{
	$sessions{$name}->query_until(qr/sent/, "\\echo sent\n$calls{$name};\n");
}
wait_for_sql($node, 'SELECT count(*) = ' . keys(%calls) . q{ FROM pg_stat_activity WHERE datname = 'fourth' AND wait_event_type = 'Lock'}, 'calls wait for the update');
$updater->query_safe('COMMIT');
$updater->quit;
foreach my $name (sort keys %calls)
{
	$sessions{$name}->query('SELECT 1');
	# list_jobs of 0.1.0 has begun to return rows with the columns that jobq.jobs had
	$sessions{$name}->{stderr} =~ s/ERROR:  structure of query does not match function result type\n.*list_jobs.*//s;
	unlike($sessions{$name}->{stderr}, qr/ERROR(?!:  job "0190a5b8)/, "$name has no error");
	$sessions{$name}->quit;
}

# default privileges of the time when the former release was installed
$node->safe_psql('postgres', 'CREATE DATABASE third; CREATE ROLE reporting');
$node->safe_psql('third', <<'END');
ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO reporting;
ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO reporting;
CREATE EXTENSION jobq VERSION '0.1.0';
ALTER DEFAULT PRIVILEGES REVOKE SELECT ON TABLES FROM reporting;
ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM reporting;
CREATE ROLE by_hand;
GRANT EXECUTE ON FUNCTION jobq.set_tenant_quota TO by_hand;
SELECT jobq.grant_access('app', 'read');
GRANT SELECT ON jobq.jobs TO PUBLIC;
ALTER EXTENSION jobq UPDATE;
END
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
