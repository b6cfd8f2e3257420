# A role restricted to its grants keeps its own jobs when it is renamed; a role that takes its name
# or, after a restore, its oid gets none of them.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('enqueuers');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE FUNCTION work(p jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN IF p ? 'fail' THEN RAISE 'told to fail'; END IF; END $$;
SELECT jobq.create_job_type('work', 'work(jsonb)', max_attempts => 1), jobq.create_job_type('unkept', 'work(jsonb)', keep_completed => '0');
CREATE ROLE app; CREATE ROLE alice LOGIN IN ROLE app; CREATE ROLE bob LOGIN IN ROLE app;
SELECT jobq.grant_access('app', 'enqueue');
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

my $db = 'postgres';
sub sql { return $node->safe_psql($db, $_[0]); }
sub as { my ($role, $sql) = @_; return $node->safe_psql($db, $sql, extra_params => [ '-U', $role ]); }

# The job rows that a role sees: the payloads' names, in order.
sub sees
{
	my ($role, $expected, $what) = @_;
	return is(as($role, q{SELECT string_agg(payload->>'n', ' ' ORDER BY payload->>'n') FROM jobq.jobs}), $expected, $what);
}

my %id = map { $_ => as('alice', qq{SELECT jobq.enqueue('work', '{"n": "$_"}')}) } qw(done);
$id{dead} = as('alice', q{SELECT jobq.enqueue('work', '{"n": "dead", "fail": true}')});
$id{unkept} = as('alice', q{SELECT jobq.enqueue('unkept')});
wait_for_sql($node, 'SELECT NOT EXISTS (SELECT FROM jobq.queue)', 'jobs that have ended');
$id{waits} = as('alice', q{SELECT jobq.enqueue('work', '{"n": "waits"}', delay => '1 day', unique_key => 'k')});
$id{bob} = as('bob', q{SELECT jobq.enqueue('work', '{"n": "of bob"}', delay => '1 day')});
sees('alice', 'dead done waits', 'a role sees its own jobs');

# ---------- renamed ----------

sql('ALTER ROLE alice RENAME TO alison; CREATE ROLE alice LOGIN IN ROLE app');
sees('alison', 'dead done waits', 'also when it has been renamed');
sees('alice', '', 'another role of its name does not');
is(as('alison', "SELECT (jobq.wait_for('$id{done}', '0')).status"), 'completed', 'the renamed one waits for its job');
is(as('alison', "SELECT (jobq.wait_for('$id{unkept}', '0')).status"), 'completed', 'and learns of one that is not kept');
sqlstate_is($node, 'postgres', qq{SET SESSION AUTHORIZATION alice; SELECT jobq.wait_for('$id{$_}', '0')}, 'P0002', "to the other one there is none: $_")
  foreach qw(done unkept);
my $replace = q{SELECT jobq.enqueue('work', '{"n": "replaced"}', delay => '1 day', unique_key => 'k', on_conflict => 'replace')};
sqlstate_is($node, 'postgres', "SET ROLE alice; $replace", '42501', 'and replaces none');
is(as('alison', $replace), $id{waits}, 'the renamed one replaces its own');
sees('alison', 'dead done replaced', 'and sees it still');

# ---------- restored on a server with other oids and names ----------

my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump';
$node->command_ok([ 'pg_dump', '-Fc', '-f', $dump, $node->connstr('postgres') ], 'pg_dump');
sql('CREATE DATABASE restored');
sql('ALTER ROLE alison RENAME TO x; ALTER ROLE bob RENAME TO alison; ALTER ROLE x RENAME TO bob; DROP ROLE alice');
$node->run_log([ 'pg_restore', '-d', $node->connstr('restored'), $dump ]);
$db = 'restored';
sees($_, '', "before adopt() $_ sees nothing: oid and name do not agree") foreach qw(alison bob);
$node->psql('restored', 'SELECT jobq.adopt()');
sees('alison', 'replaced', 'after it the role of that name sees what said so');
sees('bob', 'of bob', 'and so does the other');
sql('CREATE ROLE alice LOGIN IN ROLE app');
sees('alice', '', 'jobs of a missing role belong to no role');
sql('SELECT jobq.adopt()');
sees('alice', 'dead done', 'until adopt() is called again');
is(sql(q{SELECT count(*) FROM jobq.history WHERE enqueued_by = 'alice'::regrole::oid || ':alice'}), '1', 'which stores its oid');

# ---------- a copy has the same roles ----------

sql('ALTER ROLE alice RENAME TO alma; CREATE ROLE alice LOGIN IN ROLE app');
$node->safe_psql('postgres', 'CREATE DATABASE copied TEMPLATE restored');
$db = 'copied';
$node->safe_psql('copied', 'SELECT jobq.adopt()');
sees('alma', 'dead done', 'adopt() of a copy keeps the oids');
sees('alice', '', 'and gives nothing to another name');

unlike(slurp_file($node->logfile), qr/PANIC|TRAP:|terminating any other active/, 'no process was hurt');
$node->stop;
done_testing();
