# Privileges that jobq did not grant give access to no rows: default privileges, GRANT ... ON ALL
# TABLES, pg_read_all_data, on tables and partitions, also of a restored dump and of an older
# release.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('partition_rights', 'jobq.max_sql_workers = 2');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE ROLE born LOGIN;
CREATE ROLE all_data LOGIN IN ROLE pg_read_all_data;
CREATE ROLE acme_reader LOGIN IN ROLE pg_read_all_data;
CREATE ROLE by_hand LOGIN;
CREATE ROLE maker LOGIN;
ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO born;
ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO born;
ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO born, PUBLIC;
ALTER DEFAULT PRIVILEGES GRANT USAGE ON TYPES TO born;
ALTER DEFAULT PRIVILEGES GRANT USAGE, CREATE ON SCHEMAS TO born;
CREATE EXTENSION jobq;
CREATE FUNCTION ok(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN IF p ? 'fail' THEN RAISE 'secret'; END IF; RETURN p; END $$;
SELECT jobq.create_job_type('mail', 'ok(jsonb)', max_attempts => 1, options => '{"events": "all"}');
-- a handler of a role without any grant records artifacts
CREATE FUNCTION make(p jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(jobq.record_artifact(jobq.build_key((jobq.current_job()).id, NULL, 'log', 'txt'))) $$;
SELECT jobq.create_job_type('make', 'make(jsonb)', max_attempts => 1, run_as => 'maker');
SELECT jobq.enqueue('make', tenant => t) FROM unnest('{acme,beta}'::text[]) t;
SELECT jobq.grant_access('acme_reader', 'read', tenant => 'acme');
SELECT jobq.enqueue('mail', p, tenant => t) FROM unnest('{acme,beta}'::text[]) t, unnest('{"{}","{\"fail\": 1}"}'::jsonb[]) p;
END
wait_for_sql($node, q{SELECT NOT EXISTS (SELECT FROM jobq.queue) AND (SELECT count(*) = 4 FROM jobq.history)}, 'jobs of two tenants have ended');
is($node->safe_psql('postgres', 'SELECT tenant, job_type, attempt FROM jobq.artifacts ORDER BY 1'), "acme|make|1\nbeta|make|1", 'a handler without grants records artifacts');
sqlstate_is($node, 'postgres', q{SET ROLE maker; SELECT count(*) FROM jobq.artifacts}, '42501', 'and its role reads none');

# The privileges of a role on jobq's objects, from any source.
my $privileges = q{SELECT string_agg(DISTINCT o.kind, ' ' ORDER BY o.kind) FROM (
  SELECT 'relation', c.relacl, c.relowner FROM pg_class c WHERE c.relnamespace = 'jobq'::regnamespace
  UNION ALL SELECT 'function', p.proacl, p.proowner FROM pg_proc p WHERE p.pronamespace IN ('jobq'::regnamespace, 'jobq_internal'::regnamespace)
  UNION ALL SELECT 'type', t.typacl, t.typowner FROM pg_type t WHERE t.typnamespace = 'jobq'::regnamespace
  UNION ALL SELECT 'schema', n.nspacl, n.nspowner FROM pg_namespace n WHERE n.nspname IN ('jobq', 'jobq_internal')) o(kind, acl, owner), aclexplode(o.acl) a
  WHERE a.grantee = 'born'::regrole};
is($node->safe_psql('postgres', $privileges), '', 'default privileges give nothing of jobq');
sqlstate_is($node, 'postgres', "SET ROLE born; SELECT $_", '42501', "which may not call $_")
  foreach qw(jobq.health() jobq.stop_all('x') jobq_internal._maintain() jobq_internal._home_id()), q{jobq.cancel_jobs('mail')};
sqlstate_is($node, 'postgres', "SET ROLE born; CREATE FUNCTION $_.mine() RETURNS int LANGUAGE sql RETURN 1", '42501', "nor create anything in schema $_")
  foreach qw(jobq jobq_internal);

my @partitions = split /\n/, $node->safe_psql('postgres', q{SELECT i.inhrelid::regclass FROM pg_inherits i
  WHERE i.inhparent = ANY ('{jobq.history,jobq.events,jobq.alerts,jobq.artifacts,jobq.audit}'::regclass[]) ORDER BY 1});
cmp_ok(scalar @partitions, '>=', 3, 'there are partitions');

# Every partition, read past its parent.  A role that jobq does not know is refused; a
# tenant's reader sees its own.
sub rows_as
{
	my ($role, $db, $where) = @_;
	my $rows = 0;

	foreach my $partition (@partitions)
	{
		my ($rc, $out) = $node->psql($db, "SET ROLE $role; SELECT count(*) FROM $partition WHERE $where");

		$rows += $out if $rc == 0;
	}
	return $rows;
}

sub check_readers
{
	my ($db, $what) = @_;

	is(rows_as('all_data', $db, 'true'), 0, "$what: pg_read_all_data reads no partition");
	is(rows_as('by_hand', $db, 'true'), 0, "$what: GRANT SELECT ON ALL TABLES reads none either");
	is(rows_as('born', $db, 'true'), 0, "$what: nor do default privileges");
	is(rows_as('acme_reader', $db, "tenant IS DISTINCT FROM 'acme'"), 0, "$what: a tenant's reader does not see another's rows");
	cmp_ok(rows_as('acme_reader', $db, 'true'), '>=', 4, "$what: and sees its own");
	sqlstate_is($node, $db, 'SET ROLE born; TRUNCATE ' . $partitions[0], '42501', "$what: no default privilege empties one");
	return;
}
$node->safe_psql('postgres', 'GRANT SELECT ON ALL TABLES IN SCHEMA jobq TO by_hand');
check_readers('postgres', 'installed');

# An older release made partitions without protection.
sub expose
{
	my ($db) = @_;

	$node->safe_psql($db, <<'END');
DO $$
DECLARE
  partition regclass;
BEGIN
  FOR partition IN SELECT inhrelid::regclass FROM pg_inherits
                    WHERE inhparent = ANY ('{jobq.history,jobq.events,jobq.alerts,jobq.artifacts,jobq.audit}'::regclass[]) LOOP
    EXECUTE format('ALTER TABLE %s DISABLE ROW LEVEL SECURITY', partition);
    EXECUTE format('DROP POLICY IF EXISTS readers ON %s', partition);
    EXECUTE format('GRANT ALL ON %s TO born', partition);
  END LOOP;
END $$;
END
	return;
}
my $protected = q{SELECT bool_and(c.relrowsecurity AND NOT EXISTS (SELECT FROM aclexplode(c.relacl) a WHERE a.grantee <> c.relowner)
    AND EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid))
  FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
  WHERE i.inhparent = ANY ('{jobq.history,jobq.events,jobq.alerts,jobq.artifacts,jobq.audit}'::regclass[])};
# no maintenance process repairs them meanwhile
my $dispatcher = dispatcher($node, 'postgres');
freeze($node, $dispatcher);
wait_for_sql($node, q{SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'jobq maintenance')}, 'no maintenance runs');
expose('postgres');
cmp_ok(rows_as('all_data', 'postgres', 'true'), '>', 8, 'without it every row can be read');
$node->safe_psql('postgres', 'SELECT jobq_internal._maintain()');
wait_for_sql($node, $protected, 'maintenance protects them');
check_readers('postgres', 'repaired');

# A partition in use by a session is left to the next run, and does not block the others.
expose('postgres');
my $user = $node->background_psql('postgres');
$user->query_safe("BEGIN; SELECT count(*) FROM $partitions[0]");
is($node->safe_psql('postgres', "DO 'BEGIN PERFORM jobq_internal._maintain(); END'; SELECT count(*) FROM pg_class WHERE oid = '$partitions[0]'::regclass AND relrowsecurity"),
	'0', 'a partition in use waits');
is($node->safe_psql('postgres', "SELECT count(*) FILTER (WHERE NOT relrowsecurity) FROM pg_class WHERE oid::regclass::text = ANY ('{@{[ join ',', @partitions ]}}')"),
	'1', 'the others do not');
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_class c, aclexplode(c.relacl) a WHERE c.oid = '$partitions[0]'::regclass AND a.grantee = 'born'::regrole"),
	'0', 'privileges go in any case');
$user->query_safe('COMMIT');
$user->quit;
$node->safe_psql('postgres', 'SELECT jobq_internal._maintain()');
is($node->safe_psql('postgres', $protected), 't', 'and is protected by the next run');
kill 'CONT', $dispatcher;

# health() names privileges left by an older release, or a GRANT ... TO PUBLIC;
# not a GRANT to a role by hand.
my $access = q{SELECT jobq.health()->'checks'->'access'->>'message'};
$node->safe_psql('postgres', 'GRANT EXECUTE ON FUNCTION jobq.cancel_job TO by_hand');
is($node->safe_psql('postgres', $access), '', 'health() has nothing to say of privileges');
$node->safe_psql('postgres', 'GRANT EXECUTE ON FUNCTION jobq.cancel_job, jobq.stop_all TO PUBLIC');
like($node->safe_psql('postgres', $access), qr/: PUBLIC;/, 'it names PUBLIC');
is($node->safe_psql('postgres', q{SELECT jobq.health()->'checks'->'access'->>'status'}), 'degraded', 'as a degraded check');
is($node->safe_psql('postgres', q{SET ROLE acme_reader; SELECT jobq.health()->'checks'->'access'}), '', 'not to a tenant');
$node->safe_psql('postgres', q{SELECT jobq_internal._revoke_stray_grants()});
is($node->safe_psql('postgres', $access), '', 'until they are taken back');
is($node->safe_psql('postgres', q{SELECT has_function_privilege('by_hand', 'jobq.cancel_job(uuid,text)', 'EXECUTE') AND
  NOT has_function_privilege('all_data', 'jobq.cancel_job(uuid,text)', 'EXECUTE')}), 't', 'and a GRANT by hand stays');
# as in a database of an older release: privileges from the creation of the objects
$node->safe_psql('postgres', <<'END');
SET allow_system_table_mods = on;
GRANT EXECUTE ON FUNCTION jobq.cancel_job TO born;
UPDATE pg_init_privs SET initprivs = initprivs || 'born=X/postgres'::aclitem WHERE objoid = 'jobq.cancel_job(uuid,text)'::regprocedure;
END
like($node->safe_psql('postgres', $access), qr/: "born";/, 'it names a role of default privileges');

# A restored dump: its partitions come from the dump, and default privileges are the database's.
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump';
$node->command_ok([ 'pg_dump', '-Fc', '-f', $dump, $node->connstr('postgres') ], 'pg_dump');
$node->safe_psql('postgres', 'CREATE DATABASE restored');
$node->safe_psql('restored', 'ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO born');
$node->command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr('restored'), $dump ], 'pg_restore');
is($node->safe_psql('restored', 'SELECT jobq.adopt()'), '', 'adopted');
is($node->safe_psql('restored', $protected), 't', 'the partitions of a restored dump are protected');
check_readers('restored', 'restored');

$node->stop;
done_testing();
