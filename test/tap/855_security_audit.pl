# jobq.audit: which roles see which rows; rows stay, are kept for a time, and are in dumps.

use strict;
use warnings;

use IPC::Run ();
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('audit', 'fsync = off', 'autovacuum = off');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE FUNCTION ok(p jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT p';
SELECT jobq.create_job_type('mail', 'ok(jsonb)', options => '{"events": "all"}'), jobq.create_job_type('report', 'ok(jsonb)');
SELECT jobq.pause_job_type(t) FROM unnest('{mail,report}'::text[]) t;
CREATE ROLE reader LOGIN; CREATE ROLE acme_reader LOGIN; CREATE ROLE mail_reader LOGIN; CREATE ROLE none_reader LOGIN; CREATE ROLE boss LOGIN; CREATE ROLE app LOGIN;
SELECT jobq.grant_access('reader', 'read'), jobq.grant_access('acme_reader', 'read', 'acme'), jobq.grant_access('mail_reader', 'read', 'acme', '{mail}'),
  jobq.grant_access('none_reader', 'read', ''), jobq.grant_access('boss', 'admin', 'acme'), jobq.grant_access('app', 'enqueue', 'acme');
GRANT boss TO app;
SELECT jobq.cancel_job(jobq.enqueue(type, tenant => tenant), 'no longer needed') FROM unnest('{acme,acme/eu,beta,NULL}'::text[]) tenant, unnest('{mail,report}'::text[]) type;
SELECT jobq.cancel_jobs('mail', 'acme');
END

sub sql { return $node->safe_psql('postgres', $_[0]); }

sub as
{
	my ($role, $sql) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', $sql, extra_params => [ '-U', $role, '-v', 'VERBOSITY=sqlstate' ], on_error_stop => 1);

	return $rc == 0 ? $out : $err =~ /ERROR:\s+(\w{5})/ ? $1 : $err;
}

# ---------- who sees what ----------

my $seen = q{SELECT string_agg(DISTINCT concat_ws(' ', coalesce(tenant, '-'), old->>'job_type'), ',' ORDER BY concat_ws(' ', coalesce(tenant, '-'), old->>'job_type')) FROM jobq.audit WHERE action = 'cancel_job'};
is(as('reader', $seen), '- mail,- report,acme mail,acme report,acme/eu mail,acme/eu report,beta mail,beta report', 'a reader of all tenants sees all jobs');
is(as('acme_reader', $seen), 'acme mail,acme report,acme/eu mail,acme/eu report', 'a reader of a tenant sees its own');
is(as('mail_reader', $seen), 'acme mail,acme/eu mail', 'of its types');
is(as('none_reader', $seen), '- mail,- report', 'a reader of jobs without a tenant sees those');
is(as('reader', q{SELECT count(*) > 0 FROM jobq.audit WHERE object_type = 'job_type'}), 't', 'types are for readers of all tenants');
is(as($_, q{SELECT count(*) FROM jobq.audit WHERE object_type NOT IN ('job', 'jobs', 'role')}), '0', "not for $_") foreach 'acme_reader', 'mail_reader', 'none_reader';
is(as('acme_reader', q{SELECT new->>'count' FROM jobq.audit WHERE object_type = 'jobs'}), '0', 'a bulk call for the tenant');
is(as('app', 'SELECT count(*) > 0 FROM jobq.audit'), 't', 'a member of the role of an administrator sees rows, too');
sql(q{SELECT jobq.grant_access('app', 'read', 'beta'), jobq.grant_access('app', 'read', 'acme/eu'), jobq.revoke_access('app', 'read', 'beta')});
my $tenants = q{SELECT string_agg(DISTINCT g->>'tenant', ',' ORDER BY g->>'tenant') FROM jobq.audit, jsonb_array_elements(coalesce(old, '[]') || coalesce(new, '[]')) g
  WHERE object_type = 'role' AND object = 'app'};
is(as('acme_reader', $tenants), 'acme,acme/eu', 'a reader of a tenant sees no grant of another one');
is(as('reader', $tenants), 'acme,acme/eu,beta', 'a reader of all tenants does');
my $partition = sql(q{SELECT min(inhrelid::regclass::text) FROM pg_inherits WHERE inhparent = 'jobq.audit'::regclass});
is(as('reader', "SELECT count(*) FROM $partition"), '42501', 'no role reads a partition itself');

# ---------- rows stay ----------

is(as('boss', $_), '42501', "an administrator: $_") foreach 'DELETE FROM jobq.audit', "UPDATE jobq.audit SET by = 'x'", 'TRUNCATE jobq.audit',
  q{INSERT INTO jobq.audit (by, action, object_type) VALUES ('a', 'b', 'c')}, 'SELECT jobq_internal._audit(10, $$stop_all$$, $${}$$, NULL, $${}$$)';
sqlstate_is($node, 'postgres', $_, '42501', "the owner: $_") foreach 'DELETE FROM jobq.audit', "UPDATE jobq.audit SET by = 'x'", 'TRUNCATE jobq.audit',
  "DELETE FROM $partition", "UPDATE $partition SET by = 'x'", "TRUNCATE $partition", "SET session_replication_role = replica; DELETE FROM $partition",
  "SET session_replication_role = replica; TRUNCATE $partition";

# ---------- the call's transaction ----------

my $count = sql('SELECT count(*) FROM jobq.audit');
sql(q{BEGIN; SELECT jobq.pause_job_type('mail', 'undone'); ROLLBACK});
is(sql('SELECT count(*) FROM jobq.audit'), $count, 'a rollback leaves no row');
sqlstate_is($node, 'postgres', q{SELECT jobq.pause_job_type('nosuch')}, '42704', 'a call that fails');
is(sql('SELECT count(*) FROM jobq.audit'), $count, 'leaves none');
is(as('app', q{SELECT jobq.pause_job_type('mail')}), '42501', 'a call that is refused');
is(sql('SELECT count(*) FROM jobq.audit'), $count, 'leaves none');
sql(q{BEGIN; SELECT jobq.set_limit('prepared', 1); PREPARE TRANSACTION 'p'});
is(sql(q{SELECT count(*) FROM jobq.audit WHERE object = 'prepared'}), '0', 'a prepared call is not seen');
sql(q{COMMIT PREPARED 'p'});
is(sql(q{SELECT count(*) FROM jobq.audit WHERE object = 'prepared'}), '1', 'before it is committed');

# two changes at once: old is what the call replaced
my $first = $node->background_psql('postgres');
my $second = $node->background_psql('postgres');
$first->query_safe(q{BEGIN; SELECT jobq.set_limit('prepared', 2)});
$second->query_until(qr/start/, "\\echo start\nSELECT jobq.set_limit('prepared', 3);\n");
wait_for_sql($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE '%set_limit%' AND wait_event_type = 'Lock'}, 'a call waits for another one');
$first->query_safe('COMMIT');
wait_for_sql($node, q{SELECT count(*) = 3 FROM jobq.audit WHERE object = 'prepared'}, 'both are done');
is(sql(q{SELECT string_agg(concat(old->>'max_concurrent', '>', new->>'max_concurrent'), ' ' ORDER BY new->>'max_concurrent') FROM jobq.audit WHERE object = 'prepared'}),
	'>1 1>2 2>3', 'each has the state that it replaced');
$_->quit foreach $first, $second;

# ---------- by ----------

my $id = as('app', q{SELECT jobq.enqueue('mail', tenant => 'acme')});
is(as('app', "SET ROLE boss; SELECT jobq.cancel_job('$id')"), "t", 'a call after SET ROLE');
is(sql("SELECT by FROM jobq.audit WHERE object = '$id'"), 'app as boss', 'by has both');
is(sql("SELECT data->>'by' FROM jobq.events WHERE job_id = '$id' AND type = 'cancelled'"), 'app as boss', "and so has the job's event");
is(sql("SELECT client_addr IS NULL FROM jobq.audit WHERE object = '$id'"), 't', 'a local socket has no address');

# ---------- how long ----------

wait_partitions($node);
sql(q{SELECT jobq_internal._ensure_audit_partition(now() - interval '14 months'), jobq_internal._ensure_audit_partition(now() - interval '2 months')});
sql(q{INSERT INTO jobq.audit (ts, by, action, object_type) VALUES (now() - interval '14 months', 'old', 'a', 'job'), (now() - interval '2 months', 'recent', 'a', 'job')});
sql('SELECT jobq_internal._maintain()');
is(sql(q{SELECT string_agg(by, ' ') FROM jobq.audit WHERE action = 'a'}), 'recent', 'after a year a month is dropped');
sql('ALTER SYSTEM SET jobq.keep_audit = \'10d\'');
$node->reload;
wait_for_sql($node, q{SELECT current_setting('jobq.keep_audit') = '10d'}, 'jobq.keep_audit is ten days');
sql('SELECT jobq_internal._maintain()');
is(sql(q{SELECT count(*) FROM jobq.audit WHERE action = 'a'}), '0', 'then earlier');
cmp_ok(sql('SELECT count(*) FROM jobq.audit'), '>', 10, 'this month stays');
is(sql(q{SELECT count(*) >= 1 FROM jobq_internal._partitions('jobq.audit') p WHERE p.high > now()}), 't', 'partitions are made ahead');

# ---------- dumps ----------

$node->safe_psql('postgres', 'CREATE DATABASE copy');
my $dump = "$PostgreSQL::Test::Utils::tmp_check/audit.sql";
IPC::Run::run([ 'pg_dump', '-d', $node->connstr('postgres'), '-f', $dump ]) or die 'pg_dump failed';
IPC::Run::run([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('copy'), '-f', $dump ], '>', \my $out) or die 'the restore failed';
my $digest = q{SELECT count(*), md5(string_agg(a::text, '' ORDER BY id)) FROM jobq.audit a};
is($node->safe_psql('copy', $digest), sql($digest), 'a restored dump has all rows');
sqlstate_is($node, 'copy', $_, '42501', "they stay there: $_") foreach 'DELETE FROM jobq.audit', "TRUNCATE $partition", "DELETE FROM $partition";
$node->safe_psql('copy', 'SELECT jobq.adopt()');
is($node->safe_psql('copy', q{SELECT action FROM jobq.audit ORDER BY id DESC LIMIT 1}), 'adopt', 'new ones have new ids');
is($node->psql('copy', 'SELECT count(*) FROM jobq.audit', extra_params => [ '-U', 'acme_reader' ]), 0, 'grants are restored');

$node->stop;
done_testing();
