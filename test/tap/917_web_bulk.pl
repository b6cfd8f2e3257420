# Bulk actions of jobq-web: the preview, steps of up to 1,000, jobs that come later, filters,
# rights.

use strict;
use warnings;

use JSON::PP;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use WebTest;

my $node = web_node('bulk');
$node->safe_psql('postgres', <<'END');
CREATE ROLE boss LOGIN PASSWORD 'b';
CREATE ROLE other LOGIN PASSWORD 'o';
SELECT jobq.create_job_type('p', max_attempts => 1), jobq.create_job_type('q');
SELECT jobq.grant_access('boss', 'admin'), jobq.grant_access('other', 'read');
END
my $web = start_web($node);
my %boss = (headers => { basic('boss', 'b') });

sub preview
{
	my ($action, $filter) = @_;

	return ask($web, 'POST', '/api/v1/bulk', %boss, body => { action => $action, filter => $filter });
}

# Starts the action and waits for its end; returns the last state.
sub run_bulk
{
	my ($token) = @_;
	my (undef, $state) = ask($web, 'POST', "/api/v1/bulk/$token", %boss);

	foreach (1 .. 600)
	{
		last if $state->{state} ne 'running';
		select undef, undef, undef, 0.1;
		(undef, $state) = ask($web, 'GET', "/api/v1/bulk/$token", %boss);
	}
	return $state;
}

# Rows of the audit behind an id; true: it names the first of them.
sub audit_since
{
	return $node->safe_psql('postgres', "SELECT concat_ws(' ', by, action, object_type, (new ->> 'bulk')::int8 = min(id) OVER (), new - 'bulk')
		FROM jobq.audit WHERE id > $_[0] ORDER BY id");
}

sub count_of { return $node->safe_psql('postgres', "SELECT count(*) FROM jobq.jobs WHERE $_[0]"); }

$node->safe_psql('postgres', q{
	SELECT jobq.enqueue_many('p', ARRAY(SELECT jsonb_build_object('n', n) FROM generate_series(1, 2500) n)) \g /dev/null
	SELECT jobq.enqueue_many('q', ARRAY(SELECT jsonb_build_object('n', n, 'odd', n % 2) FROM generate_series(1, 20) n)) \g /dev/null});

# Cancel; a job that comes after the preview stays.
my ($status, $answer) = preview('cancel', { job_type => 'p' });
is("$status $answer->{n}", '200 2500', 'a preview counts');
is($answer->{exact}, JSON::PP::true, 'exactly');
is(count_of("job_type = 'p' AND status = 'pending'"), 2500, 'and does nothing');
my $later = $node->safe_psql('postgres', "SELECT jobq.enqueue('p')");
my $state = run_bulk($answer->{token});
is("$state->{state} $state->{done} $state->{total}", 'done 2500 2500', 'its jobs are cancelled');
is(count_of("job_type = 'p' AND status = 'pending'"), 1, 'a job that came later is not');
is(count_of("id = '$later' AND status = 'pending'"), 1, 'that one');
is(count_of("job_type = 'q' AND status = 'pending'"), 20, 'nor are other types');
is(run_bulk($answer->{token})->{done}, 2500, 'a second start does nothing');

# A filter of the payload; a stop before the start.
(undef, $answer) = preview('cancel', { payload_contains => { odd => 1 } });
is($answer->{n}, 10, 'a filter of the payload');
my (undef, $stopped) = ask($web, 'DELETE', "/api/v1/bulk/$answer->{token}", %boss);
is($stopped->{state}, 'stopped', 'stop');
is(run_bulk($answer->{token})->{state}, 'stopped', 'a stopped one does not start');
is(count_of("job_type = 'q' AND status = 'pending'"), 20, 'its jobs stay');

# Dead letters: retry, then purge.
$node->safe_psql('postgres', q{
	SELECT jobq.enqueue_many('p', ARRAY(SELECT jsonb_build_object('n', n) FROM generate_series(1, 12) n)) \g /dev/null
	SELECT jobq.cancel_job(id) FROM jobq.jobs WHERE job_type = 'q' \g /dev/null});
my $dead = 0;
while ($dead < 13)
{
	my $n = $node->safe_psql('postgres', "SELECT count(jobq.fail(c.id, c.lease_token, 'error ' || c.id, retryable => false)) FROM jobq.claim('{p}', 100, wait => '20 s') c");
	$dead += $n;
	last unless $n;
}
is(count_of("status = 'error'"), 13, 'dead letters');
(undef, $answer) = preview('retry', { error_like => 'error %', job_type => 'p' });
is($answer->{n}, 13, 'a preview of a retry');
is(run_bulk($answer->{token})->{done}, 13, 'all are retried');
is(count_of("status = 'error'"), 0, 'and wait again');
$dead = 0;
while ($dead < 13)
{
	my $n = $node->safe_psql('postgres', "SELECT count(jobq.fail(c.id, c.lease_token, 'e', retryable => false)) FROM jobq.claim('{p}', 100, wait => '20 s') c");
	$dead += $n;
	last unless $n;
}
(undef, $answer) = preview('purge', { job_type => 'p' });
is(run_bulk($answer->{token})->{done}, 13, 'a purge');
is(count_of("status = 'error'"), 0, 'leaves none');

# Errors and rights.
is((preview('drop', { job_type => 'p' }))[0], 400, 'an unknown action');
is((preview('cancel', {}))[0], 400, 'no filter');
is((preview('cancel', { include_running => JSON::PP::true }))[0], 400, 'a filter that chooses nothing');
is((preview('cancel', { error_like => '%' }))[0], 400, 'a key of another action');
is((preview('cancel', [1]))[0], 400, 'no object');
is((preview('cancel', { 'job_type tenant' => 'q' }))[0], 400, 'two keys in one, which would choose all jobs');
is((ask($web, 'POST', '/api/v1/bulk', %boss, body => '{"action": "cancel", "filter": {"job_type": "q", "job_type": null}}'))[0], 400,
	'a key that occurs twice: the last one would choose all jobs');
is(status_of($web, 'POST', '/api/v1/bulk/' . 'x' x 43, %boss), 404, 'an unknown token');
$node->safe_psql('postgres', "SELECT jobq.enqueue('q')");
(undef, $answer) = ask($web, 'POST', '/api/v1/bulk', headers => { basic('other', 'o') }, body => { action => 'cancel', filter => { job_type => 'q' } });
is($answer->{n}, 1, 'a reader may preview');
is(status_of($web, 'POST', "/api/v1/bulk/$answer->{token}", %boss), 404, 'its token is for itself');
(undef, $state) = ask($web, 'POST', "/api/v1/bulk/$answer->{token}", headers => { basic('other', 'o') });
foreach (1 .. 100)
{
	last if $state->{state} ne 'running';
	(undef, $state) = ask($web, 'GET', "/api/v1/bulk/$answer->{token}", headers => { basic('other', 'o') });
}
is($state->{state}, 'failed', 'its step has no right');
like($state->{error}, qr/permission denied/, 'and says so');
is(count_of("job_type = 'q' AND status = 'pending'"), 1, 'the job stays');

# Jobs that are slow to change: steps become shorter than the statement timeout of 5 s.
$node->safe_psql('postgres', q{
	CREATE FUNCTION fails(p jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
	SELECT jobq.create_job_type('fails', 'fails(jsonb)', max_attempts => 1) \g /dev/null
	SELECT jobq.enqueue_many('fails', array_fill('{}'::jsonb, ARRAY[60])) \g /dev/null});
wait_for_sql($node, q{SELECT count(*) = 60 FROM jobq.jobs WHERE job_type = 'fails' AND status = 'error'}, 'dead letters');
$node->safe_psql('postgres', q{SELECT jobq.pause_job_type('fails');
	CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.1); RETURN NEW; END $$;
	CREATE TRIGGER slow BEFORE INSERT ON jobq.queue FOR EACH ROW EXECUTE FUNCTION slow()});
(undef, $answer) = preview('retry', { job_type => 'fails' });
$state = run_bulk($answer->{token});
is("$state->{state} $state->{done} $state->{total}", 'done 60 60', 'a step that takes too long is tried with fewer jobs');
is(count_of("job_type = 'fails' AND status = 'pending'"), 60, 'all are retried');

# A step whose commit fails has done nothing.
$node->safe_psql('postgres', q{DROP TRIGGER slow ON jobq.queue;
	SELECT jobq.create_job_type('fails late', 'fails(jsonb)', max_attempts => 1) \g /dev/null
	SELECT jobq.enqueue_many('fails late', array_fill('{}'::jsonb, ARRAY[150])) \g /dev/null});
wait_for_sql($node, q{SELECT count(*) = 150 FROM jobq.jobs WHERE job_type = 'fails late' AND status = 'error'}, 'more dead letters');
$node->safe_psql('postgres', q{SELECT jobq.pause_job_type('fails late');
	CREATE SEQUENCE once;
	CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
	BEGIN IF nextval('public.once') = 1 THEN RAISE 'late' USING ERRCODE = '57014'; END IF; RETURN NEW; END $$;
	CREATE CONSTRAINT TRIGGER late AFTER INSERT ON jobq.queue DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION late()});
(undef, $answer) = preview('retry', { job_type => 'fails late' });
$state = run_bulk($answer->{token});
is("$state->{state} $state->{done} $state->{total}", 'done 150 150', 'a step that fails at its commit is tried again');
is(count_of("job_type = 'fails late' AND status = 'pending'"), 150, 'none is passed over');

# Jobs that can't be retried stay, the others are retried; a step that meets a deadlock is tried
# again.
$node->safe_psql('postgres', q{
	CREATE OR REPLACE FUNCTION late() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
	BEGIN IF nextval('public.once') = 1 THEN RAISE 'late' USING ERRCODE = '40P01'; END IF; RETURN NEW; END $$;
	ALTER SEQUENCE once RESTART;
	SELECT jobq.create_job_type('k', max_attempts => 1), jobq.create_job_type('gone', max_attempts => 1) \g /dev/null
	SELECT jobq.enqueue('k', unique_key => 'u'), jobq.enqueue('gone') \g /dev/null
	SELECT jobq.enqueue_many('k', array_fill('{}'::jsonb, ARRAY[10])) \g /dev/null
	SELECT jobq.fail(c.id, c.lease_token, 'some', retryable => false) FROM jobq.claim('{k,gone}', 100, wait => '20 s') c \g /dev/null});
foreach (1 .. 100)
{
	last if count_of("error_msg = 'some'") == 12;
	$node->safe_psql('postgres', q{SELECT jobq.fail(c.id, c.lease_token, 'some', retryable => false) FROM jobq.claim('{k,gone}', 100, wait => '20 s') c});
}
$node->safe_psql('postgres', q{SELECT jobq.pause_job_type('k'), jobq.drop_job_type('gone', force => true), jobq.enqueue('k', unique_key => 'u')});
my $audit = $node->safe_psql('postgres', 'SELECT coalesce(max(id), 0) FROM jobq.audit');
(undef, $answer) = preview('retry', { error_like => 'some' });
$state = run_bulk($answer->{token});
is("$state->{state} $state->{done} $state->{total}", 'done 10 12', 'dead letters with a live copy or of a dropped type stay') or diag $state->{error};
is(count_of("error_msg = 'some' AND status = 'error'"), 2, 'these two');
is(audit_since($audit), "boss retry_dead_letters jobs {\"count\": 12, \"exact\": true, \"filter\": {\"error_like\": \"some\"}}\n"
	. 'boss retry_dead_letters jobs t {"count": 10, "filter": {"error_like": "some"}}', 'a row of the audit, which that of its step names');

$node->safe_psql('postgres', q{DROP TRIGGER late ON jobq.queue; SELECT jobq.create_job_type('w') \g /dev/null
	SELECT jobq.enqueue('w', tenant => 'acme') FROM generate_series(1, 10) \g /dev/null});
my $held = $node->background_psql('postgres');
my $kept = $node->safe_psql('postgres', q{SELECT id FROM jobq.jobs WHERE job_type = 'w' ORDER BY id OFFSET 5 LIMIT 1});
$held->query_safe("BEGIN; SELECT jobq.alter_job('$kept', priority => 1)");
$audit = $node->safe_psql('postgres', 'SELECT max(id) FROM jobq.audit');
(undef, $answer) = preview('cancel', { job_type => 'w', include_running => JSON::PP::true });
$state = run_bulk($answer->{token});
is("$state->{state} $state->{done} $state->{total}", 'done 9 10', 'a job that an open transaction holds stays') or diag $state->{error};
is($node->safe_psql('postgres', "SELECT id FROM jobq.jobs WHERE job_type = 'w' AND status = 'pending'"), $kept, 'that one');
is(audit_since($audit), "boss cancel_jobs jobs {\"count\": 10, \"exact\": true, \"filter\": {\"job_type\": \"w\", \"include_running\": true}}\n"
	. 'boss cancel_jobs jobs t {"count": 9, "filter": {"job_type": "w", "include_running": true}}', 'so is this one');
$held->query_safe('ROLLBACK');
$held->quit;

# A group of errors: by code and pattern, as GET errors shows them; null is not given.
$node->safe_psql('postgres', q{SELECT jobq.create_job_type('g', max_attempts => 1) \g /dev/null
	SELECT jobq.enqueue('g') FROM generate_series(1, 6) \g /dev/null
	SELECT jobq.fail(c.id, c.lease_token, CASE WHEN n < 4 THEN 'exit ' || n ELSE 'exit ' || n || ': disk full' END, error_code => CASE n WHEN 3 THEN 'X0001' END)
	  FROM (SELECT *, row_number() OVER () AS n FROM jobq.claim('{g}', 6)) c \g /dev/null});
my ($group) = grep { $_->{pattern} eq 'exit ?' && !defined $_->{error_code} } @{ (ask($web, 'GET', '/api/v1/errors?job_type=g', %boss))[1]{items} };
is($group->{n}, 2, 'a group of errors');
my @codeless = grep { !defined $_->{error_code} } @{ (ask($web, 'GET', '/api/v1/errors?job_type=g&error_code=', %boss))[1]{items} };
is_deeply([ sort map { $_->{pattern} } @codeless ], [ 'exit ?', 'exit ?: disk full' ], 'the groups without a code');
(undef, $answer) = preview('purge', { job_type => 'g', error_pattern => $group->{pattern}, error_code => $group->{error_code} // '' });
is($answer->{n}, 2, 'a purge of the group counts it alone');
is(run_bulk($answer->{token})->{done}, 2, 'and deletes it alone');
is((preview('retry', { job_type => 'g', error_pattern => 'exit ?', error_code => 'X0001' }))[1]{n}, 1, 'a retry');
is((preview('retry', { job_type => 'g', error_pattern => undef, error_code => undef, payload_contains => undef }))[1]{n}, 4, 'null is not given');

# A status: jobs that run are cancelled by it alone.
$node->safe_psql('postgres', q{SELECT jobq.enqueue('g') FROM generate_series(1, 5) \g /dev/null
	SELECT count(*) FROM jobq.claim('{g}', 2) \g /dev/null});
is((preview('cancel', { job_type => 'g', status => $_->[0] }))[1]{n}, $_->[1], "jobs that are $_->[0]") foreach [ pending => 3 ], [ retry => 0 ], [ running => 2 ];
is(run_bulk((preview('cancel', { job_type => 'g', status => 'pending' }))[1]{token})->{done}, 3, 'those are cancelled');
is(count_of("job_type = 'g' AND status = 'running'"), 2, 'and no others');

# A role has eight previews; the oldest gives way.
my @previews = map { (preview('cancel', { job_type => 'g', status => 'running' }))[1]{token} } 1 .. 9;
is(status_of($web, 'GET', "/api/v1/bulk/$previews[0]", %boss), 404, 'the first of nine is gone');
is(status_of($web, 'GET', "/api/v1/bulk/$previews[$_]", %boss), 200, 'others stay') foreach 1, 8;

# The function of a step changes no job of another tenant.
$node->safe_psql('postgres', q{CREATE ROLE part; SELECT jobq.grant_access('part', 'admin', tenant => 'beta') \g /dev/null});
my $others = $node->safe_psql('postgres', q{SELECT array_agg(id) FROM jobq.jobs WHERE job_type = 'w' OR error_msg = 'some'});
is($node->safe_psql('postgres', "SET ROLE part; SELECT sum(jobq_internal._bulk_step(1, a, '{\"include_running\": true}', '$others')) FROM unnest('{cancel_jobs,retry_dead_letters,purge_dead_letters}'::text[]) a"), 0,
	'an admin of another tenant changes nothing');
is(count_of("id = '$kept' AND status = 'pending'"), 1, 'the job stays');
sqlstate_is($node, 'postgres', "SET ROLE part; SELECT jobq_internal._bulk_begin('$_->[0]', '$_->[1]', 9, true)", $_->[2], "no row of the audit about $_->[0]")
  foreach [ purge_tenant => '{"tenant": "acme"}', '22023' ], [ stop_all => '{}', '22023' ], [ grant_access => '{"role": "boss", "tenant": "beta"}', '22023' ],
  [ cancel_jobs => '{"tenant": "acme"}', '42501' ];
sqlstate_is($node, 'postgres', "SET ROLE part; SELECT jobq_internal._bulk_step(1, 'cancel_jobs', '{\"tenant\": \"acme\"}', '{}')", '42501', 'nor by a step');

# A preview ends after a second, with what it has found; the action goes on below.
$node->safe_psql('postgres', q{SELECT jobq.create_job_type('first'), jobq.create_job_type('many') \g /dev/null
	SELECT jobq.enqueue('first') FROM generate_series(1, 3) \g /dev/null
	SELECT jobq.enqueue_many('many', array_fill('{}'::jsonb, ARRAY[n])) FROM unnest('{300}'::int[]) n \g /dev/null
	ALTER FUNCTION jobq_internal._search_step(int, timestamptz) RENAME TO _step;
	CREATE FUNCTION jobq_internal._search_step(step int, began timestamptz) RETURNS int LANGUAGE sql AS 'SELECT $1 FROM pg_sleep(1.1)';
	GRANT EXECUTE ON FUNCTION jobq_internal._search_step(int, timestamptz) TO boss});
(undef, $answer) = preview('cancel', { job_type => 'first' });
is_deeply([ @$answer{qw(n exact)} ], [ 0, JSON::PP::false ], 'a preview that takes too long has found nothing yet');
like($answer->{searched_to}, qr/^20\d\d-\d\d-\d\dT[0-9:.]+Z$/, 'and says how far it came');
$state = run_bulk($answer->{token});
is("$state->{state} $state->{done} $state->{total}", 'done 3 0', 'the action finds the rest') or diag $state->{error};
is(count_of("job_type = 'many' AND status = 'pending'"), 300, 'and no other job');
is((preview('cancel', { job_type => 'nosuch' }))[0], 404, 'an unknown job type');

# Eight that run leave no room for a ninth.  Each has 20 steps of a second, and four connections.
$node->safe_psql('postgres', q{DROP FUNCTION jobq_internal._search_step(int, timestamptz);
	ALTER FUNCTION jobq_internal._step(int, timestamptz) RENAME TO _search_step;
	SELECT jobq.create_job_type('held') \g /dev/null
	SELECT jobq.enqueue_many('held', array_fill(jsonb_build_object('n', n), ARRAY[2000])) FROM generate_series(1, 8) n \g /dev/null
	CREATE FUNCTION holds() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_catalog.pg_sleep(0.01); RETURN OLD; END $$;
	CREATE TRIGGER holds BEFORE DELETE ON jobq.queue FOR EACH ROW EXECUTE FUNCTION holds()});
my @tokens = map { (preview('cancel', { job_type => 'held', payload_contains => { n => $_ } }))[1]{token} } 1 .. 8;
ask($web, 'POST', "/api/v1/bulk/$_", %boss) foreach @tokens;
my ($ninth, $problem, $with) = preview('cancel', { job_type => 'g' });
is(join(' ', map { (ask($web, 'GET', "/api/v1/bulk/$_", %boss))[1]{state} } @tokens), join(' ', ('running') x 8), 'eight bulk actions run');
is($ninth, 429, 'a ninth one is refused');
like($problem->{detail}, qr/^8 bulk actions/, 'and says why');
ok($with->{'retry-after'}, 'with Retry-After');
is((ask($web, 'POST', '/api/v1/bulk', headers => { basic('other', 'o') }, body => { action => 'cancel', filter => { job_type => 'g' } }))[0], 200, 'that of another role is not');
ask($web, 'DELETE', "/api/v1/bulk/$_", %boss) foreach @tokens;
is((preview('cancel', { job_type => 'g' }))[0], 200, 'nor one after they were stopped');

is(stop_web($web), 0, 'it ends');
done_testing();
