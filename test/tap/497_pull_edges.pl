# Edges of the calls of clients: the largest claim, a COMMIT after the lease, a wait that ends as
# its answer comes, more types than a claim may name, READ ONLY, an encoding that cannot show a
# payload; and the update of a claim is HOT.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('edges', 'fsync = off', 'jobq.max_concurrent = 3000');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
SELECT jobq.create_job_type(t) FROM unnest('{mail,many,late,hot}'::text[]) t;
END
my $dispatcher = wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub one { return $node->safe_psql('postgres', $_[0]); }

my $session = $node->background_psql('postgres', on_error_stop => 0);
my $pid = $session->query('SELECT pg_backend_pid()');

# ---------- a thousand jobs ----------

one(q{SELECT count(jobq.enqueue('many')) FROM generate_series(1, 1100)});
is(one(q{CREATE TABLE c AS SELECT * FROM jobq.claim('{many}', 1000); SELECT count(DISTINCT id) FROM c}), 1000, 'one call claims 1,000 jobs');
is(one(q{SELECT count(*) FROM jobq.queue WHERE status = 'running'}), 1000, 'they run');
sqlstate_is($node, 'postgres', q{BEGIN READ ONLY; SELECT jobq.complete_many(array_agg(id), array_agg(lease_token)) FROM c}, '25006',
	'complete_many in a READ ONLY transaction');
is(one(q{SELECT count(*) FROM (SELECT jobq.complete_many(array_agg(id), array_agg(lease_token)) FROM c) x}), 1000, 'one call completes them');

# ---------- COMMIT after the lease, before the dispatcher knows ----------

one(q{SELECT jobq.enqueue('mail')});
is($session->query(q{BEGIN; SELECT count(*) FROM jobq.claim('{mail}', lease => '1s')}), 1, 'a claim with a lease of a second');
freeze($node, $dispatcher);
$session->query('SELECT pg_sleep(1.1)');
$session->query('COMMIT');
like($session->{stderr}, qr/the lease of a job that this transaction has claimed is over/, 'COMMIT after it is refused');
$session->{stderr} = '';
is($session->query('\echo :LAST_ERROR_SQLSTATE'), '40001', 'with 40001');
kill 'CONT', $dispatcher;
is(one(q{SELECT attempts FROM jobq.claim('{mail}', wait => '10s')}), 1, 'the job is claimed by another one, uncharged');
is($session->query('SELECT pg_backend_pid()'), $pid, 'the session lives');

# ---------- a wait that ends while its answer comes ----------

$session->query(q{SELECT count(*) FROM jobq.claim('{late}')});
$session->{stdin} .= "SELECT count(*) FROM jobq.claim('{late}', wait => '2s');\n\\echo over\n";
$session->{run}->pump_nb;
wait_for_sql($node, "SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = $pid", 'a claim waits');
kill 'STOP', $pid;
one('SELECT pg_sleep(3)');
one(q{SELECT jobq.enqueue('late')});
is(one(q{SELECT count(*) FROM jobq.claim('{late}')}), 0, 'it has an answer when its wait is over');
kill 'CONT', $pid;
my ($got) = $session->query_until(qr/over/, '') =~ /^(\d)$/m;
is($got + one(q{SELECT count(*) FROM jobq.claim('{late}', wait => '1s')}), 1, 'the job is claimed once');

# ---------- the update of a claim ----------

one(q{VACUUM FULL jobq.queue; SELECT count(jobq.enqueue('hot')) FROM generate_series(1, 4)});
is(one(q{BEGIN; SELECT count(*) AS n FROM jobq.claim('{hot}', 4, wait => '0') \gset
SELECT :n || ' ' || pg_stat_get_xact_tuples_updated('jobq.queue'::regclass) || ' ' || pg_stat_get_xact_tuples_hot_updated('jobq.queue'::regclass)}), '4 4 4',
	'a claim writes a row once, in its page and no index');

# ---------- an encoding that cannot show a payload ----------

one(q{SELECT jobq.complete_many(array_agg(id), array_agg(lease_token)) FROM jobq.queue WHERE status = 'running'});
one(q{SELECT jobq.enqueue('mail', jsonb_build_object('n', U&'\4E2D'))});
sqlstate_is($node, 'postgres', q{SET client_encoding = 'LATIN1'; SELECT * FROM jobq.claim('{mail}', wait => '10s')}, '22P05', 'an encoding without that character');
is(one(q{SELECT attempts FROM jobq.claim('{mail}', wait => '10s')}), 1, 'the claim is rolled back, the job claimed by another one');

# ---------- more events than an attempt may have ----------

one(q{SELECT jobq.cancel_jobs('hot'), jobq.enqueue('hot')});
one(q{CREATE TABLE l AS SELECT id, lease_token FROM jobq.claim('{hot}', wait => '10s')});
my $log = q{SELECT count(jobq.log_event('line ' || n, id => id, lease_token => lease_token)) FROM l, generate_series(1, %d) n};
my $events = q{SELECT count(*) || ' ' || count(*) FILTER (WHERE message = 'more events of this attempt were dropped') FROM jobq.events JOIN l ON job_id = l.id};
is($session->query(sprintf $log, 9990), 9990, '9,990 events of an attempt');
is(one($events), '9990 0', 'are written');
is(one(sprintf $log, 9), 9, 'nine more by another session');
is($session->query(sprintf $log, 100), 100, 'more events are no error');
is(one($events), '10010 1', 'but dropped, with a notice');
my $fresh = $node->background_psql('postgres');
is($fresh->query_safe(sprintf $log, 100), 100, 'a new session');
is(one($events), '10010 1', 'adds none');
$fresh->quit;
one(q{SELECT jobq.fail(id, lease_token, 'x', retry_after => '0') FROM l; UPDATE l SET lease_token = c.lease_token FROM jobq.claim('{hot}', wait => '10s') c});
is(one(sprintf $log, 5), 5, 'the next attempt');
is(one($events), 10_015 + one(q{SELECT count(*) FROM jobq.events JOIN l ON job_id = l.id WHERE type <> 'log'}) . ' 1', 'begins with none');

# ---------- more types than a claim may name ----------

one(q{SELECT jobq.create_job_type('t' || n) FROM generate_series(1, 253) n});
sqlstate_is($node, 'postgres', 'SELECT FROM jobq.claim(NULL)', '54000', 'NULL with 257 pull types');
one(q{SELECT jobq.drop_job_type('t1')});
is(one('SELECT count(*) FROM jobq.claim(NULL)'), 1, 'with 256');
one(q{SELECT jobq.cancel_jobs('many')});
one(q{SELECT jobq.enqueue('t253', '{"n": 1}'), jobq.enqueue('t70', '{"n": 2}', priority => 5), jobq.enqueue('t2', '{"n": 3}', priority => -5)});
is(one(q{SELECT string_agg(payload->>'n', ',') FROM jobq.claim(NULL, 10, wait => '10s')}), '2,1,3', 'all of them, in the order of the dispatcher');
one(<<'END');
CREATE ROLE part;
SELECT jobq.grant_access('part', 'work', 't' || n % 3, ARRAY['t' || n]) FROM generate_series(2, 253) n;
SELECT jobq.enqueue('t' || n, tenant => 't' || tenant) FROM unnest('{3,66,130,200,253}'::int[]) n, generate_series(0, 2) tenant;
END
is(one(q{SET ROLE part; SELECT string_agg(job_type || ' ' || tenant, ', ' ORDER BY job_type) FROM jobq.claim(NULL, 20, wait => '10s')}),
	't130 t1, t200 t2, t253 t1, t3 t0, t66 t0', 'a role with access to one tenant of each type');

# ---------- types whose longest lease is shorter ----------

one(q{SELECT jobq.alter_job_type('t' || n, options => '{"max_lease": "1min"}') FROM generate_series(2, 253) n;
  SELECT count(jobq.cancel_jobs('t' || n)) FROM generate_series(2, 253) n; SELECT jobq.enqueue('t9')});
is(one(q{SELECT count(*) FROM jobq.claim(NULL, lease => '61s')}), 0, 'NULL leaves out types whose max_lease is below the lease');
is(one(q{SELECT job_type FROM jobq.claim(NULL, lease => '1min')}), 't9', 'and has the others');
$session->quit;
done_testing();
