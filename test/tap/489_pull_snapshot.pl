# A claim that waits as part of a larger statement: the statement sees the rows of one snapshot.
# Only a statement that reads nothing but jobq.claim waits without a snapshot.

use strict;
use warnings;

use IPC::Run ();
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('snapshots', 'fsync = off', 'autovacuum = off');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
SELECT jobq.create_job_type('mail');
CREATE TABLE got (id uuid);
CREATE TABLE account (id int PRIMARY KEY, balance int, text text);
ALTER TABLE account ALTER text SET STORAGE EXTERNAL;
INSERT INTO account SELECT i, 100, repeat(chr(64 + i % 26), 5000) FROM generate_series(1, 100) i;
ANALYZE account;
CREATE FUNCTION claims_in_loop() RETURNS int LANGUAGE plpgsql AS $$
DECLARE
  n int := 0;
  r record;
BEGIN
  FOR r IN SELECT * FROM jobq.claim('{mail}', wait => '20s') LOOP
    n := n + 1;
  END LOOP;
  RETURN n;
END $$;
CREATE FUNCTION texts() RETURNS SETOF account LANGUAGE plpgsql AS $$ BEGIN RETURN QUERY SELECT * FROM public.account; END $$;
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

my $waits = "state = 'active' AND wait_event_type = 'Extension' AND backend_type = 'client backend'";

# Runs the statement; while its claim waits, every row is changed twice and the dead ones removed.
# Returns its answer, and whether it held a snapshot.
sub answer
{
	my ($what, $sql) = @_;
	my $session = $node->background_psql('postgres', on_error_stop => 0);

	$session->{stdin} .= "SET enable_hashjoin = off; SET enable_mergejoin = off;\n$sql;\n\\echo over :SQLSTATE\n";
	$session->{run}->pump_nb;
	wait_for_sql($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE $waits", "$what: the claim waits");
	my $held = $node->safe_psql('postgres', "SELECT backend_xmin IS NOT NULL FROM pg_stat_activity WHERE $waits");
	$node->safe_psql('postgres', "UPDATE account SET balance = balance + 1, text = text || 'x'; VACUUM (INDEX_CLEANUP off) account") foreach 1 .. 2;
	$node->safe_psql('postgres', "SELECT jobq.enqueue('mail')");
	my $out = $session->query_until(qr/over \w+/, '');
	$session->quit;
	$out =~ s/\n/ /g;
	return "$out, $held";
}

my $claim = "jobq.claim('{mail}', wait => '20s') c";

is(answer('alone', "SELECT count(*) FROM $claim"), '1 over 00000 , f', 'a claim alone holds no snapshot');
is(answer('beside a table', "SELECT count(*), count(DISTINCT a.id) FROM account a LEFT JOIN $claim ON true"),
	'100|100 over 00000 , t', 'beside a table: each row once');
is(answer('beside TOAST', "SELECT sum((length(a.text) > 0)::int) FROM account a LEFT JOIN $claim ON true"),
	'100 over 00000 , t', 'and its values');
is(answer('beside an index', "SET enable_seqscan = off; SELECT count(*) FROM (SELECT * FROM account ORDER BY id) a LEFT JOIN $claim ON true"),
	'100 over 00000 , t', 'beside an index scan: each row');
is(answer('beside a function', "SELECT sum((length(a.text) > 0)::int) FROM texts() a LEFT JOIN $claim ON true"),
	'100 over 00000 , t', 'beside a function that has read rows');
is(answer('of parts', "SELECT job_type, count(*) FROM $claim WHERE attempts > 0 GROUP BY 1 ORDER BY 1 LIMIT 5"),
	'mail|1 over 00000 , f', 'nor with conditions, groups and an order');
is(answer('into a table', "INSERT INTO got SELECT id FROM $claim"), 'over 00000 , t', 'INSERT ... SELECT keeps its snapshot');
is(answer('of a part', "WITH c AS MATERIALIZED (SELECT * FROM $claim) SELECT count(*) FROM c"), '1 over 00000 , t', 'so does a WITH');
sqlstate_is($node, 'postgres', "INSERT INTO got SELECT id FROM $claim RETURNING id", '25001', 'no wait in INSERT ... RETURNING');
sqlstate_is($node, 'postgres', "WITH i AS (INSERT INTO got SELECT id FROM $claim RETURNING id) SELECT count(*) FROM i", '25001', 'nor in a WITH that writes');
sqlstate_is($node, 'postgres', 'SELECT claims_in_loop()', '25001', 'no wait in a function of a statement');
sqlstate_is($node, 'postgres', 'DO $$ BEGIN PERFORM public.claims_in_loop(); END $$', '25001', 'nor in a block');
sqlstate_is($node, 'postgres', "EXPLAIN (ANALYZE) SELECT FROM $claim", '25001', 'no wait in EXPLAIN ANALYZE, which has a snapshot of its own');

# --- the extended protocol

my $file = PostgreSQL::Test::Utils::tempdir() . '/claim.sql';
append_to_file($file, "SELECT * FROM $claim;\n");
my $pgbench = IPC::Run::start([ 'pgbench', '--no-vacuum', '--protocol=prepared', '--transactions=1', "--file=$file", '--host', $node->host,
		'--port', $node->port, 'postgres' ], '>', \my $out, '2>', \my $err);
wait_for_sql($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE $waits", 'a prepared statement waits');
is($node->safe_psql('postgres', "SELECT backend_xmin FROM pg_stat_activity WHERE $waits"), '', 'and holds no snapshot');
$node->safe_psql('postgres', "SELECT jobq.enqueue('mail')");
ok($pgbench->finish, 'it ends') or diag $err;
is($node->safe_psql('postgres', "SELECT count(*), min(status::text) FROM jobq.queue"), '9|running', 'each statement has claimed its job');
done_testing();
