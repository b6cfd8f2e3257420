# A dump of the former release: restored with the files of that release and then updated, as
# docs/operations.md has it, it loses no row, and adopt() makes its jobs run.  The files of this
# release refuse it as a whole.  The update warns of options and functions that are gone.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use UpgradeTest;

my ($old, $new) = (old_version(), new_version());
my $stage = stage_release();
my $node = upgrade_server('dumped', $stage, 'jobq.compact_threshold = 5');
$node->start;
$node->safe_psql('postgres', 'CREATE ROLE app; CREATE ROLE runner LOGIN; CREATE DATABASE source');

sub sql { my ($db, $sql) = @_; return $node->safe_psql($db, $sql); }

sql('source', <<'END');
CREATE EXTENSION jobq;
CREATE TABLE done (n int);
CREATE FUNCTION work(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  IF p ? 'fail' THEN RAISE EXCEPTION 'told to fail'; END IF;
  INSERT INTO public.done SELECT (p->>'n')::int WHERE p ? 'n';
  RETURN p;
END $$;
GRANT EXECUTE ON FUNCTION work TO runner;
GRANT INSERT ON done TO runner;
SELECT jobq.set_limit('shared', 5, 1000, '1min');
SELECT jobq.create_job_type('work', 'work(jsonb)', max_attempts => 1, run_as => 'runner', keep_completed => '100 days', options => '{"events": "all", "limits": ["shared"]}');
SELECT jobq.create_job_type('tool', command => '{/bin/echo,"{text}"}', options => '{"output": "text", "env": {"LANG": "C"}}', keep_completed => '100 days');
SELECT jobq.create_job_type('still', 'work(jsonb)', max_attempts => 1, options => '{"max_children_per_minute": 7, "fair_by": "tenant"}');
SELECT jobq.pause_job_type('still', 'for the test');
SELECT jobq.create_job_type('gone', 'work(jsonb)');
SELECT jobq.drop_job_type('gone');
SELECT jobq.set_signal('night', true), jobq.set_pressure_rule('tool', 'night', priority_adj => -5);
SELECT jobq.set_tenant_quota('acme', 1000, 10000000, 100000);
SELECT jobq.grant_access('app', 'enqueue', 'acme', '{work,still}'), jobq.grant_access('app', 'read', 'acme');
GRANT EXECUTE ON FUNCTION jobq.compact TO app;
SELECT jobq.enqueue('work', '{"a": 1}', tenant => 'acme') FROM generate_series(1, 3);
SELECT jobq.enqueue('tool', '{"text": "täglich"}');
SELECT jobq.enqueue('work', '{"fail": 1}', tenant => 'acme', unique_key => 'dead', unique_for => '1 day');
SELECT jobq.enqueue('still', jsonb_build_object('n', i), tenant => 't' || i % 3, priority => i % 7, concurrency_key => 'c' || i % 2, unique_key => 'k' || i,
  metadata => '{"m": "é\"\\"}') FROM generate_series(1, 20) i;
END
ok($node->poll_query_until('source', q{SELECT (SELECT count(*) FROM jobq.history) = 4 AND (SELECT count(*) FROM jobq.dead_letters) = 1}), "jobs of jobq $old have ended");

# Rows of every table that is in dumps, with the columns of the former release.
my @columns = map { [ split /\|/ ] } split /\n/, sql('source', q{
  SELECT c.oid::regclass, string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0, pg_extension e
   WHERE e.extname = 'jobq' AND c.relnamespace = 'jobq'::regnamespace AND NOT c.relispartition AND (c.relkind = 'p' OR c.relkind = 'r' AND c.oid = ANY (e.extconfig))
   GROUP BY 1 ORDER BY 1});
my $rows = join ' UNION ALL ', map { "SELECT '$_->[0]', to_jsonb(t)::text FROM (SELECT $_->[1] FROM $_->[0]) t" } @columns;

sub rows_of { return [ split /\n/, sql($_[0], qq{SELECT * FROM ($rows) r(a, b) ORDER BY a COLLATE "C", b COLLATE "C"}) ]; }

my $expected = rows_of('source');
cmp_ok(scalar @$expected, '>', 40, 'rows of every table');
my $dump = PostgreSQL::Test::Utils::tempdir() . '/source.dump';
$node->command_ok([ 'pg_dump', '-Fc', '-d', $node->connstr('source'), '-f', $dump ], 'pg_dump');

sub restore
{
	my ($db, $with) = @_;

	sql('postgres', "CREATE DATABASE $db TEMPLATE template0");
	sql($db, "CREATE EXTENSION jobq VERSION '$with'") if $with;
	return run_command([ 'pg_restore', '--single-transaction', '-d', $node->connstr($db), $dump ]);
}

my (undef, $err) = restore('copy');
is($err, '', "a copy on a server with jobq $old");
is_deeply(rows_of('copy'), $expected, '!every row is there as it was');

# ---------- the library of this release ----------

install_new($stage);
$node->restart;
like(slurp_file($node->logfile), qr/WARNING: .*"jobq\.compact_threshold"/, 'the server warns of a setting that is gone');
(undef, $err) = restore('later');
like($err, qr/error: .*child table is missing column/, "tables of jobq $new refuse the dump");
is(sql('later', q{SELECT count(*) FROM pg_extension WHERE extname = 'jobq'}), 0, 'as a whole');
(undef, $err) = restore('former', $old);
like($err, qr/error: .*the library is jobq \Q$new\E, the extension in this database is version \Q$old\E/, "so do tables of jobq $old over the new library");
is(sql('former', 'SELECT count(*) FROM jobq.job_types'), 0, 'as a whole');

# ---------- the update of the copy ----------

(undef, undef, $err) = $node->psql('copy', 'ALTER EXTENSION jobq UPDATE');
like($err, qr/WARNING:  option "max_children_per_minute" of job types is gone, and with it their limit: still\n.*HINT/, 'it warns of an option that is gone');
like($err, qr/WARNING:  function jobq\.compact is gone, and with it the grant to app$/m, 'of a function');
is(scalar(() = $err =~ /WARNING/g), 2, 'and of nothing else') or diag $err;
is(sql('copy', 'SELECT jobq.version()'), $new, "the copy has jobq $new");
# The update writes jobs with a concurrency key once, for key_since.
my @moved = map { s/, "max_children_per_minute": 7//r =~ s/"env": \{"LANG": "C"\}, //r =~ s/"rev": \K\d+//r } @$expected;

sub without_rev { return [ map { s/"rev": \K\d+//r } @{ $_[0] } ]; }
is_deeply(without_rev(rows_of('copy')), \@moved, '!every row is there as it was, without that option and the env');
is(sql('copy', q{SELECT t.name, e.env FROM jobq.job_type_env e JOIN jobq.job_types t ON t.id = e.type_id}), 'tool|{"LANG": "C"}', 'which has its own table');
is(sql('copy', q{SELECT jobq.health()->'checks'->'identity'->>'status'}), 'unhealthy', 'no job runs yet');
sql('copy', q{SELECT jobq.adopt(), jobq.resume_job_type('still')});
ok($node->poll_query_until('copy', 'SELECT count(*) = 0 FROM jobq.queue'), 'adopt() makes them run');
is(sql('copy', 'SELECT count(*), count(DISTINCT n) FROM done'), '20|20', '!each once');
is(sql('copy', q{SELECT status, count(*) FROM jobq.jobs GROUP BY 1 ORDER BY 1}), "completed|24\nerror|1", 'and all have their history');
is(sql('copy', q{SELECT count(*) FROM jobq.retry_dead_letters('work')}), 1, 'a dead letter is retried');
is(sql('copy', q{SET ROLE app; SELECT jobq.enqueue('still', tenant => 'acme') IS NOT NULL}), 't', 'a grantee has its rights');

# The source, which was never dumped.
(undef, undef, $err) = $node->psql('source', 'ALTER EXTENSION jobq UPDATE');
is_deeply(without_rev(rows_of('source')), \@moved, '!an update of the source has the same rows');

$node->stop;
done_testing();
