# Tokens and rights of pulled jobs: stolen, replayed and guessed tokens, foreign roles, hostile
# callers, places where a claim cannot work.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('tokens', 'max_connections = 40', 'fsync = off');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE FUNCTION ok(p jsonb) RETURNS void LANGUAGE sql AS '';
SELECT jobq.create_job_type('mail', options => '{"events": "all", "alert": false}'), jobq.create_job_type('short', options => '{"max_lease": "1min"}'),
  jobq.create_job_type('called', 'ok(jsonb)'), jobq.create_job_type('tool', command => '{cat}');
CREATE ROLE w1 LOGIN; CREATE ROLE w2 LOGIN; CREATE ROLE team LOGIN; CREATE ROLE member LOGIN; CREATE ROLE stranger LOGIN; CREATE ROLE reader LOGIN; GRANT team TO member;
SELECT jobq.grant_access(r::regrole, 'work', job_types => '{mail,short,called,tool}') FROM unnest('{w1,w2,team}'::text[]) r;
SELECT jobq.grant_access('reader', 'read');
CREATE TABLE held (name text PRIMARY KEY, id uuid, token uuid);
GRANT ALL ON held TO PUBLIC;
GRANT CREATE ON SCHEMA public TO w1, team;
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub one { return $node->safe_psql('postgres', $_[0]); }

# Runs SQL as a role; returns the output, or the SQLSTATE.
sub as
{
	my ($role, $sql) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', $sql, extra_params => [ '-U', $role, '-v', 'VERBOSITY=sqlstate' ], on_error_stop => 1);

	return $rc == 0 ? $out : $err =~ /ERROR:\s+(\w{5})/ ? $1 : $err;
}

# Enqueues a job with that secret, which the role claims; keeps its token.
sub claimed
{
	my ($role, $name) = @_;

	one(qq{SELECT jobq.enqueue('mail', '{"secret": "$name"}')});
	return is(as($role, "INSERT INTO held SELECT '$name', id, lease_token FROM jobq.claim('{mail}') RETURNING name"), $name, "$role claims $name");
}

my $random = "'01920000-0000-7000-8000-000000000000'";
my @calls = (
	[ 'heartbeat', q{jobq.heartbeat(%s, %s)}, 'lost' ], [ 'heartbeat with data', q{jobq.heartbeat(%s, %s, 10, '{"p": 1}')}, 'lost' ],
	[ 'complete', q{jobq.complete(%s, %s, '1')}, 'f' ], [ 'complete_many', q{(SELECT count(*) FROM jobq.complete_many(ARRAY[%s::uuid], ARRAY[%s::uuid]))}, '0' ],
	[ 'fail', q{jobq.fail(%s, %s, 'x')}, 'lost' ], [ 'fail_many', q{(SELECT count(*) FROM jobq.fail_many(ARRAY[%s::uuid], ARRAY[%s::uuid], 'x'))}, '0' ], [ 'skip_job', q{jobq.skip_job(%s, %s)}, 'f' ], [ 'snooze_job', q{jobq.snooze_job(%s, %s)}, 'f' ],
	[ 'log_event', q{jobq.log_event('x', id => %s, lease_token => %s)}, '55000' ]);

# Each call of the role with that fence says lost, and the job is as before.
sub all_lost
{
	my ($role, $id, $token, $what) = @_;
	my $rows = q{SELECT md5(string_agg(q::text, '' ORDER BY id)) || count(*) FROM jobq.queue q};
	my $before = one($rows) . one('SELECT count(*) FROM jobq.events');
	my $answers = join ' ', map { as($role, 'SELECT ' . sprintf $_->[1], $id, $token) } @calls;

	is($answers, join(' ', map { $_->[2] } @calls), "$what: lost");
	return is(one($rows) . one('SELECT count(*) FROM jobq.events'), $before, "$what: nothing is written");
}

sub id { return "(SELECT id FROM held WHERE name = '$_[0]')"; }
sub token { return "(SELECT token FROM held WHERE name = '$_[0]')"; }

# ---------- T35, T36: tokens ----------

claimed('w1', 'a');
claimed('w1', 'b');
claimed('w2', 'c');
all_lost('w2', id('a'), token('a'), 'a stolen token');
all_lost('w1', id('a'), token('b'), 'the token of another job');
all_lost('w1', id('c'), token('c'), 'another role\'s job');
all_lost('w1', id('a'), $random, 'a guessed token');
all_lost('w1', $random, token('a'), 'an unknown job');
all_lost('member', id('a'), token('a'), 'a member of a foreign role');
is(as('stranger', 'SELECT jobq.heartbeat(' . id('a') . ', ' . token('a') . ')'), '42501', 'a role without EXECUTE');
is(as('reader', 'SELECT jobq.heartbeat(' . id('a') . ', ' . token('a') . ')'), '42501', 'a role with access "read"');
is(as('postgres', 'SELECT jobq.heartbeat(' . id('a') . ', ' . token('a') . ')'), 'ok', 'a superuser may use it');
is(one(q{SELECT count(DISTINCT substring(token::text FROM 25)) = count(*) FROM held}), 't', 'the role is not to be read from a token');
is(as('w1', 'SELECT jobq.complete(' . id('b') . ', ' . token('b') . q{, '"mine"')}), 't', 'its own job');
all_lost('w1', id('b'), token('b'), 'a replayed token of a completed job');
is(as('w1', 'SELECT jobq.fail(' . id('a') . ', ' . token('a') . q{, 'x', retry_after => '0')}), 'retry', 'an attempt fails');
all_lost('w1', id('a'), token('a'), 'a replayed token of a failed attempt');
is(as('w1', q{INSERT INTO held SELECT 'a 2', id, lease_token FROM jobq.claim('{mail}') RETURNING id = } . id('a')), 't', 'the next attempt');
all_lost('w1', id('a'), token('a'), 'a replayed token during the next attempt');
claimed('team', 'd');
is(as('member', 'SELECT jobq.heartbeat(' . id('d') . ', ' . token('d') . ')'), 'ok', 'a member of the claiming role may use its token');
is(as('member', 'SET ROLE team; SELECT jobq.heartbeat(' . id('d') . ', ' . token('d') . ')'), 'ok', 'and so after SET ROLE');
is(as('postgres', 'SET ROLE w1; SELECT jobq.heartbeat(' . id('d') . ', ' . token('d') . ')'), 'lost', 'SET ROLE to another one: lost');
one(q{SELECT jobq.enqueue('mail', '{"secret": "e"}')});
is(as('postgres', q{SET ROLE w1; SELECT id AS job, lease_token AS token FROM jobq.claim('{mail}') \gset
SET ROLE w2; SELECT jobq.heartbeat(:'job', :'token'); RESET ROLE; SELECT jobq.heartbeat(:'job', :'token'); SET ROLE w1; SELECT jobq.complete(:'job', :'token')}), "lost\nok\nt",
	'SET ROLE between claim and complete');
one(q{SELECT jobq.revoke_access('w2', 'work', job_types => '{mail,short,called,tool}')});
is(as('w2', 'SELECT jobq.heartbeat(' . id('c') . ', ' . token('c') . ')'), '42501', 'a grant that is revoked ends the token');
one(q{SELECT jobq.grant_access('w2', 'work', job_types => '{short}')});
all_lost('w2', id('c'), token('c'), 'a grant for another type');
one(q{SELECT jobq.grant_access('w2', 'work', job_types => '{mail}')});
is(as('w2', 'SELECT jobq.complete(' . id('c') . ', ' . token('c') . ')'), 't', 'granted again');

# Every id with every token of two roles, and own tokens with one bit changed.
one(q{SELECT jobq.enqueue('mail') FROM generate_series(1, 12)});
is(as($_, qq{INSERT INTO held SELECT 'fuzz $_ ' || id, id, lease_token FROM jobq.claim('{mail}', 6); SELECT count(*) FROM held WHERE name LIKE 'fuzz $_%'}), 6, "$_ claims six")
  foreach qw(w1 w2);
my $fuzzed = q{SELECT md5(string_agg(q::text, '' ORDER BY q.id)) FROM jobq.queue q JOIN held h USING (id) WHERE name LIKE 'fuzz %'};
my $as_claimed = one($fuzzed);
is(as('w1', q{SELECT count(*), bool_and(jobq.heartbeat(id, token, 50, '{"p": 1}') = 'lost' AND NOT jobq.complete(id, token, '1')
    AND jobq.fail(id, token, 'x') = 'lost' AND NOT jobq.skip_job(id, token) AND NOT jobq.snooze_job(id, token)
    AND NOT EXISTS (SELECT FROM jobq.complete_many(ARRAY[id], ARRAY[token]))
    AND NOT EXISTS (SELECT FROM jobq.fail_many(ARRAY[id], ARRAY[token], 'x')))
  FROM (SELECT a.id, b.token FROM held a, held b WHERE a.name LIKE 'fuzz %' AND b.name LIKE 'fuzz %' AND (a.id <> b.id OR a.name LIKE 'fuzz w2%')
    UNION ALL SELECT id, encode(set_bit(uuid_send(token), bit, 1 - get_bit(uuid_send(token), bit)), 'hex')::uuid FROM held, generate_series(0, 127) bit
      WHERE name LIKE 'fuzz w1%') f}), 138 + 6 * 128 . '|t', 'ids and tokens in all other pairs, tokens with a changed bit: lost');
is(one($fuzzed), $as_claimed, 'nothing is written');
is(as($_, qq{SELECT bool_and(jobq.complete(id, token)) FROM held WHERE name LIKE 'fuzz $_%'}), 't', "$_ completes its own") foreach qw(w1 w2);
one('REVOKE team FROM member');
is(as('member', 'SELECT jobq.heartbeat(' . id('d') . ', ' . token('d') . ')'), '42501', 'a membership that is revoked ends the use of the token');

# ---------- leases, types ----------

is(as('w1', q{SELECT FROM jobq.claim('{mail}', lease => '1h 1us')}), '22003', 'a lease over one hour');
is(as('w1', q{SELECT count(*) FROM jobq.claim('{mail}', lease => '1h')}), 0, 'one hour');
is(as('w1', q{SELECT FROM jobq.claim('{mail,short}', lease => '2min')}), '22003', 'a lease over options.max_lease');
is(as('w1', q{SELECT FROM jobq.claim('{called}')}), '22023', 'a SQL type');
is(as('w1', q{SELECT FROM jobq.claim('{tool}')}), '22023', 'an exec type');

my $waits = $node->background_psql('postgres', on_error_stop => 0);
$waits->{stdin} .= "\\set VERBOSITY sqlstate\nSELECT 'claimed' FROM jobq.claim('{short}', lease => '1min', wait => '20s');\n\\echo over :SQLSTATE\n";
$waits->{run}->pump_nb;
wait_for_sql($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE '%jobq.claim%' AND wait_event_type = 'Extension' AND state = 'active'}, 'a claim waits');
one(q{SELECT jobq.alter_job_type('short', options => '{"max_lease": "30s"}')});
one(q{SELECT jobq.enqueue('short')});
like($waits->query_until(qr/over \w+/, ''), qr/^over 22003/, 'options.max_lease is lowered meanwhile: no longer lease is given');
is(one(q{SELECT status, attempts FROM jobq.jobs WHERE job_type = 'short'}), 'pending|0', 'the job waits, uncharged');
is(as('w1', q{SELECT lease_expires_at <= clock_timestamp() + interval '30s' FROM jobq.claim('{short}', lease => '30s', wait => '10s')}), 't', 'the next claim gets it');
$waits->{stderr} = '';
$waits->quit;

# ---------- T36: the whole of all leases ----------

# Claims a job of the type and sends heartbeats until one is not ok, for three of its longest leases
# at most; returns the last answer.
sub heartbeats
{
	my ($type) = @_;
	my $began = time;
	my $answer;

	one("SELECT jobq.enqueue('$type')");
	as('w1', "INSERT INTO held SELECT '$type', id, lease_token FROM jobq.claim('{$type}', lease => '4s', wait => '10s')");
	do
	{
		$answer = as('w1', "SELECT jobq.heartbeat(id, token) FROM held WHERE name = '$type'");
	} while ($answer eq 'ok' && time - $began <= 12);
	return $answer;
}
one(q{SELECT jobq.create_job_type('bounded', timeout => '5s', max_attempts => 1, options => '{"max_lease": "4s", "alert": false}'),
  jobq.create_job_type('endless', timeout => '0', options => '{"max_lease": "4s"}'), jobq.grant_access('w1', 'work', job_types => '{bounded,endless}'),
  jobq.grant_access('w2', 'enqueue', job_types => '{bounded}')});
is(as('w2', q{SELECT jobq.enqueue('bounded', timeout => '0')}), '42501', 'a held role asks for no longer timeout');
is(heartbeats('bounded'), 'lost', 'heartbeats do not move the deadline: the attempt ends');
is(one(q{SELECT error_code FROM jobq.jobs WHERE job_type = 'bounded'}), 'timeout', 'as a timeout');
is(heartbeats('endless'), 'ok', q{with timeout '0' heartbeats keep the job beyond three of its longest leases});
is(one(q{SELECT jobq.cancel_job(id) FROM jobq.jobs WHERE job_type = 'endless'}), 't', 'until a cancel');
is(as('w1', q{SELECT jobq.heartbeat(id, token) FROM held WHERE name = 'endless'}), 'cancel', 'which its holder hears of');

# ---------- what a worker sees ----------

one(q{SELECT jobq.enqueue('mail', '{"secret": "unclaimed"}', delay => '1h')});
is(as('w1', $_->[0]), $_->[1], "access \"work\": $_->[0]") foreach (
	[ 'SELECT count(*) FROM jobq.jobs', '42501' ], [ 'SELECT count(*) FROM jobq.queue', '42501' ], [ 'SELECT count(*) FROM jobq.events', '42501' ],
	[ 'SELECT count(*) FROM jobq.history', '42501' ], [ 'SELECT count(*) FROM jobq.dead_letters', '42501' ], [ 'SELECT count(*) FROM jobq.list_jobs()', '42501' ],
	[ 'SELECT count(*) FROM jobq.job_timeline(' . id('a') . ')', '42501' ], [ 'SELECT jobq.cancel_job(' . id('a') . ')', '42501' ],
	[ 'SELECT jobq.retry_job(' . id('b') . ')', '42501' ], [ 'SELECT count(*) FROM jobq.count_by_status()', '42501' ]);
is(as('reader', q{SELECT count(*) FROM jobq.events e WHERE e::text LIKE '%' || } . token('a 2') . q{::text || '%'}), 0, 'no event has a token');
is(as('reader', q{SELECT count(*) FROM jobq.jobs j WHERE to_jsonb(j)::text LIKE '%' || } . token('a 2') . q{::text || '%'}), 0, 'jobq.jobs shows no token');
is(as('reader', 'SELECT lease_token FROM jobq.queue'), '42501', 'nor is the column to be read');

# ---------- callers ----------

one(q{SELECT jobq.enqueue('mail', jsonb_build_object('secret', n)) FROM generate_series(1, 9) n});
is(as('w1', q{CREATE SCHEMA evil; CREATE FUNCTION evil.eq(uuid, uuid) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'evil'; END $$;
CREATE OPERATOR evil.= (LEFTARG = uuid, RIGHTARG = uuid, FUNCTION = evil.eq)}), '42501', 'no schema of its own');
is(as('w1', q{CREATE FUNCTION public.eq(a text, b text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'evil'; END $$;
CREATE OPERATOR public.= (LEFTARG = text, RIGHTARG = text, FUNCTION = public.eq);
CREATE FUNCTION pg_temp.now() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN RAISE 'evil'; END $$;
CREATE TEMP TABLE job_types (id int, kind text, dropped_at timestamptz);
SET search_path = public, pg_temp, pg_catalog;
SELECT count(*) FROM jobq.claim(NULL)}), 1, 'operators, functions and tables of the caller are not used');
one('DROP OPERATOR public.= (text, text)');
one('DROP FUNCTION public.eq');
is(as('team', q{CREATE FUNCTION public.for_all() RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
DECLARE j record; BEGIN SELECT * INTO j FROM jobq.claim('{mail}'); INSERT INTO public.held VALUES ('definer', j.id, j.lease_token); RETURN jobq.heartbeat(j.id, j.lease_token); END $$}), '', 'a function SECURITY DEFINER');
is(as('stranger', 'SELECT public.for_all()'), 'ok', 'claims as its owner');
is(as('stranger', 'SELECT jobq.heartbeat(' . id('definer') . ', ' . token('definer') . ')'), '42501', 'not as its caller');
is(as('w1', 'SELECT jobq.heartbeat(' . id('definer') . ', ' . token('definer') . ')'), 'lost', 'nor another role');
is(as('team', 'SELECT jobq.complete(' . id('definer') . ', ' . token('definer') . ')'), 't', 'the owner ends it');

# ---------- places ----------

sub place_is { my ($sql, $answer, $what) = @_; return is(as('w1', $sql), $answer, $what); }
place_is(q{BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM jobq.claim('{mail}')}, '25001', 'REPEATABLE READ');
place_is(q{BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT FROM jobq.claim('{mail}', wait => '1s')}, '25001', 'SERIALIZABLE');
place_is("BEGIN READ ONLY; SELECT $_", '25006', "READ ONLY: $_")
  foreach q{FROM jobq.claim('{mail}')}, map { sprintf $_->[1], id('a 2'), token('a 2') } grep { $_->[0] ne 'complete_many' } @calls;
place_is(q{DO $$ BEGIN PERFORM jobq.claim('{mail}', wait => '1s'); END $$}, '', 'a wait in a DO block');
place_is(q{BEGIN; DO $$ BEGIN PERFORM jobq.claim('{mail}', wait => '1s'); END $$; ROLLBACK}, '', 'a wait in a DO block of a transaction');
place_is(q{CREATE FUNCTION pg_temp.f() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RETURN (SELECT count(*) FROM jobq.claim('{mail}', wait => '1s')); END $$; SELECT pg_temp.f()}, '25001', 'a wait in a function');
place_is(q{CREATE FUNCTION pg_temp.f() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RETURN (SELECT count(*) FROM jobq.claim('{mail}')); END $$; SELECT pg_temp.f()}, 1, 'a claim in a function');
place_is(q{BEGIN; DECLARE c CURSOR FOR SELECT * FROM held; FETCH c; SELECT count(*) FROM jobq.claim('{mail}', wait => '1s')}, '25001', 'a wait beside a cursor');
place_is(q{BEGIN; SAVEPOINT s; SELECT count(*) FROM jobq.claim('{mail}', wait => '5s'); ROLLBACK}, 1, 'a wait in a subtransaction');
my $waiting = one(q{SELECT count(*) FROM jobq.jobs WHERE job_type = 'mail' AND status = 'pending' AND scheduled_for <= now()});
place_is(q{DO $$ BEGIN
  BEGIN
    PERFORM jobq.claim('{mail}', 3);
    RAISE 'undone';
  EXCEPTION WHEN OTHERS THEN NULL;
  END;
END $$}, '', 'a claim in a block whose error is caught');
is(one(q{SELECT count(*) FROM jobq.jobs WHERE job_type = 'mail' AND status = 'pending' AND scheduled_for <= now() AND attempts = 0}), $waiting, 'gives its jobs back, uncharged');
is(as('w1', "SELECT count(*) FROM jobq.claim('{mail}', 100, wait => '5s')"), $waiting, 'at once');

# ---------- standby ----------

$node->backup('b');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'b', has_streaming => 1);
$standby->start;
$node->wait_for_catchup($standby, 'replay', $node->lsn('write'));
sqlstate_is($standby, 'postgres', "SELECT $_", '25006', "standby: $_")
  foreach q{FROM jobq.claim('{mail}')}, map { sprintf $_->[1], id('a 2'), token('a 2') } @calls;
is(as('w1', 'SELECT jobq.complete(' . id('a 2') . ', ' . token('a 2') . ')'), 't', 'the primary\'s lease goes on');
done_testing();
