# The routes of jobq-web: each of the table, its arguments and errors, pages, rights, and the table
# itself.

use strict;
use warnings;
use utf8;

use JSON::PP;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use WebTest;

my $node = web_node('routes');
sleeper_types($node, 'postgres');
$node->safe_psql('postgres', <<'END');
CREATE ROLE boss LOGIN PASSWORD 'b';
CREATE ROLE chief LOGIN PASSWORD 'c';
CREATE ROLE reader LOGIN PASSWORD 'r';
SELECT jobq.create_job_type('pull', max_attempts => 2), jobq.create_job_type('step');
SELECT jobq.grant_access('boss', 'admin'), jobq.grant_access('boss', 'work'), jobq.grant_access('boss', 'enqueue');
SELECT jobq.grant_access('chief', 'admin');
SELECT jobq.grant_access('reader', 'read', tenant => 'acme');
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');
my $web = start_web($node, redact => 'password, token');
my %boss = (headers => { basic('boss', 'b') });
my $api = '/api/v1';

# The decoded body of a call that must succeed.
sub good
{
	my ($method, $path, $body) = @_;
	my ($status, $answer) = ask($web, $method, $path, %boss, body => $body);

	ok($status == 200, "$method $path") or diag("$status ", ref $answer ? encode_json($answer) : $answer);
	return $answer;
}

# The status and SQLSTATE or argument of one that must fail.
sub bad
{
	my ($method, $path, $body, $expected, $what) = @_;
	my ($status, $answer, $headers) = ask($web, $method, $path, %boss, body => $body);
	my $found = join ' ', $status, grep { defined } ref $answer ? ($answer->{sqlstate}, $answer->{argument}) : ();

	ok($found eq $expected && $answer->{status} == $status && $headers->{'content-type'} eq 'application/problem+json', "$what: $expected")
	  or diag("found: $found ", ref $answer ? encode_json($answer) : $answer);
	return $answer;
}

# ---------- jobs ----------

my @ids = map { good('POST', "$api/jobs", { job_type => 'pull', payload => { n => $_, secret => { password => "p$_" } }, priority => 1, tenant => $_ % 2 ? 'acme' : 'beta' })->{id} } 1 .. 5;
my $job = good('GET', "$api/jobs/$ids[0]");
is_deeply([ @$job{qw(id job_type status priority tenant)} ], [ $ids[0], 'pull', 'pending', 1, 'acme' ], 'a job has the columns of jobq.jobs');
is_deeply($job->{payload}, { n => 1, secret => { password => '[redacted]' } }, 'redacted keys are hidden at any depth');

my ($all, $next, @seen) = (0, '');
while (defined $next)
{
	my $page = good('GET', "$api/jobs?limit=2&job_type=pull" . ($next ? "&cursor=$next" : ''));

	push @seen, map { $_->{id} } @{ $page->{items} };
	$next = $page->{next};
	last if ++$all > 5;
}
is("@seen", join(' ', reverse @ids), 'pages have each job once, the newest first');
is(scalar @{ good('GET', "$api/jobs?tenant=acme&status=pending&payload_contains=%7B%22n%22%3A3%7D")->{items} }, 1, 'filters');
my $later = '2100-01-01T00:00:00Z';
is(scalar @{ good('GET', "$api/jobs?since=$later")->{items} }, 0, 'since');
is(scalar @{ good('GET', "$api/jobs?until=$later&job_type=pull")->{items} }, 5, 'until');
is(scalar @{ good('GET', "$api/jobs?until=2001-01-01&job_type=pull")->{items} }, 0, 'until, long ago');

good('PATCH', "$api/jobs/$ids[0]", { priority => 7, payload => { n => 1 } });
is($node->safe_psql('postgres', "SELECT priority, payload FROM jobq.jobs WHERE id = '$ids[0]'"), '7|{"n": 1}', 'a job is changed');
good('POST', "$api/jobs/$ids[4]/cancel", { reason => 'no "need"' });
is($node->safe_psql('postgres', "SELECT status, error_msg FROM jobq.jobs WHERE id = '$ids[4]'"), 'cancelled|no "need"', 'a job is cancelled');
bad('POST', "$api/jobs/$ids[4]/cancel", undef, '409', 'a finished job can not be cancelled');
good('POST', "$api/jobs/$ids[4]/retry");
my $unknown = '00000000-0000-7000-8000-000000000000';
bad($_->[0], "$api/jobs/$unknown$_->[1]", undef, '404', "an unknown job: $_->[0] $_->[1]")
  foreach [ 'GET', '' ], [ 'POST', '/cancel' ], [ 'POST', '/retry' ];
bad('GET', "$api/jobs/$unknown/events", undef, '404 P0002', 'its events');

# Large replies are in gzip for a client that takes it.
my %packed = (headers => { basic('boss', 'b'), 'Accept-Encoding' => 'deflate, gzip' });
foreach my $path ("$api/jobs?job_type=pull", "$api/openapi.json")
{
	my (undef, $packed, $headers) = ask($web, 'GET', $path, %packed);
	my (undef, $plain, $others) = ask($web, 'GET', $path, %boss);

	is(join(' ', map { $headers->{$_} } qw(content-encoding vary content-type)), 'gzip Accept-Encoding application/json', "$path is packed");
	ok(!$others->{'content-encoding'} && $others->{vary} eq 'Accept-Encoding', 'and plain for others');
	is_deeply($packed, $plain, 'the same');
}
is((ask($web, 'GET', "$api/session", %packed))[2]{'content-encoding'}, undef, 'a small one is not');

# A list that finds too little for a second says how far it has come, and the next page goes on.
$node->safe_psql('postgres', q{SELECT jobq.enqueue('step', '{"first": true}')});
$node->safe_psql('postgres', q{SELECT count(*) FROM jobq.enqueue_many('step', ARRAY(SELECT '{}'::jsonb FROM generate_series(1, 30000)))});
my $search = q{FROM jobq_internal._search_jobs(NULL, 'step', NULL, '{"first": true}', NULL, NULL, %s, 51, '0') s};
is($node->safe_psql('postgres', sprintf "SELECT count(*), count(item) $search", 'NULL'), '1|0', 'a search ends for time, without an item');
my $step = $node->safe_psql('postgres', q{DO $$ DECLARE at uuid; n int := 0; found json; BEGIN
  LOOP
    SELECT s.id, s.item INTO at, found } . sprintf($search =~ s/'0'\)/'1us')/r, 'at') . q{;
    n := n + 1;
    EXIT WHEN at IS NULL OR found IS NOT NULL;
  END LOOP;
  PERFORM set_config('test.steps', format('%s %s', n > 2, found ->> 'job_type'), false);
END $$; SELECT current_setting('test.steps')});
is($step, 't step', 'and goes on from there');
is(scalar @{ good('GET', "$api/jobs?job_type=step&payload_contains=%7B%22first%22%3Atrue%7D")->{items} }, 1, 'found');
is($node->safe_psql('postgres', q{SELECT count(DISTINCT s.id) = 30001 AND count(*) = 30001 FROM jobq_internal._search_jobs(NULL, 'step', NULL, NULL, NULL, NULL, NULL, 100000, '1min') s}),
	't', 'all jobs once over the steps');
$node->safe_psql('postgres', q{SELECT jobq.cancel_jobs('step')});

# Every list does: here each step takes longer than a second.
$node->safe_psql('postgres', q{ALTER FUNCTION jobq_internal._search_step(int, timestamptz) RENAME TO _step;
	CREATE FUNCTION jobq_internal._search_step(step int, began timestamptz) RETURNS int LANGUAGE sql AS 'SELECT $1 FROM pg_sleep(1.1)';
	GRANT EXECUTE ON FUNCTION jobq_internal._search_step(int, timestamptz) TO boss, reader;
	INSERT INTO jobq.runs (id, type_id, version, deadline, keep_until)
	  SELECT (lpad(to_hex(n), 12, '0') || repeat('0', 20))::uuid, 1, 1, 'infinity', 'infinity' FROM generate_series(1, 1500) n});
foreach (qw(events?level=debug alerts?severity=high audit?action=nosuch runs?status=error errors jobs?job_type=tool))
{
	my $list = good('GET', "$api/$_");

	like($list->{searched_to}, qr/^[12]\d\d\d-\d\d-\d\dT[0-9:.]+Z$/, 'a search of too long says how far it came');
	is(defined $list->{next}, /errors/ ? '' : 1, 'and its next page goes on') or diag $_;
	is_deeply($list->{items}, [], 'without items');
}
my $first = good('GET', "$api/events?level=debug");
my $second = good('GET', "$api/events?level=debug&cursor=$first->{next}");
cmp_ok($second->{searched_to}, 'lt', $first->{searched_to}, 'further back');
my $listed = good('GET', '/admin/jobs?type=tool');
like($listed->{searched_to}, qr/^20\d\d-\d\d-\d\dT[0-9:.]+\+00:00$/, '/admin/jobs, too');
is_deeply([ $listed->{counts}{cancelled}, $listed->{jobs} ], [ { n => 0, exact => JSON::PP::false }, [] ], 'counts what it has found');
(undef, $listed) = ask($web, 'GET', "$api/overview", headers => { basic('reader', 'r') });
is(ref $listed->{types}, 'ARRAY', 'the overview of a limited role ends, too');
$node->safe_psql('postgres', q{DROP FUNCTION jobq_internal._search_step(int, timestamptz); DELETE FROM jobq.runs WHERE id < '00000001-0000-0000-0000-000000000000';
	ALTER FUNCTION jobq_internal._step(int, timestamptz) RENAME TO _search_step});

# ---------- claims ----------

my $claimed = [];
push @$claimed, @{ good('POST', "$api/claim", { job_types => ['pull'], max_jobs => 5, worker => 'w', lease => '1 min', wait => '20 s' })->{items} }
  while @$claimed < 5;
is(scalar @$claimed, 5, 'jobs are claimed');
is($claimed->[0]{payload}{n}, 1, 'the one of the highest priority first');
my ($redacted) = grep { $_->{payload}{n} == 2 } @$claimed;
is($redacted->{payload}{secret}{password}, 'p2', 'a worker gets the whole payload');
my ($c, $f, $s, $z, $h) = @$claimed;
sub lease { return { lease_token => $_[0]{lease_token}, @_[ 1 .. $#_ ] }; }
is(good('POST', "$api/jobs/$h->{id}/heartbeat", lease($h, progress => 12.5, data => { at => 1 }))->{status}, 'ok', 'heartbeat');
is(good('POST', "$api/jobs/$c->{id}/complete", lease($c, result => { r => 1 }))->{ok}, JSON::PP::true, 'complete');
is(good('POST', "$api/jobs/$f->{id}/fail", lease($f, error => 'broken', error_code => 'E1'))->{status}, 'retry', 'fail');
is(join(' ', map { $_->{type} } @{ good('GET', "$api/jobs/$f->{id}/events")->{items} }), 'failed', 'events of a job');
is(good('POST', "$api/jobs/$s->{id}/skip", lease($s, reason => 'r'))->{ok}, JSON::PP::true, 'skip');
is(good('POST', "$api/jobs/$z->{id}/snooze", lease($z, delay => '1 hour'))->{ok}, JSON::PP::true, 'snooze');
bad('POST', "$api/jobs/$c->{id}/complete", lease($c), '409', 'a lease that has ended');
is(good('POST', "$api/jobs/$c->{id}/heartbeat", lease($c))->{status}, 'lost', 'its heartbeat');
my $again = good('POST', "$api/jobs/$c->{id}/rerun", { payload => { n => 9 } })->{id};
like($again, qr/^[0-9a-f-]{36}$/, 'a job like a finished one');

# ---------- registry ----------

my $page;

good('POST', "$api/types", { name => 'new type/ü', max_attempts => 4, timeout => '1 min', options => { alert => JSON::PP::false } });
my $type = good('GET', "$api/types/new%20type%2F%C3%BC");
is_deeply([ @$type{qw(name max_attempts timeout kind)}, exists $type->{owner_oid} ], [ 'new type/ü', 4, '00:01:00', 'pull', '' ], 'a job type');
good('PATCH', "$api/types/new%20type%2F%C3%BC", { max_concurrent => 3, reset => ['max_attempts'] });
$type = good('GET', "$api/types/new%20type%2F%C3%BC");
is_deeply([ @$type{qw(max_concurrent max_attempts)} ], [ 3, 3 ], 'is changed');
good('POST', "$api/types/pull/pause", { reason => 'r', duration => '1 hour' });
is(good('GET', "$api/types/pull")->{paused}, JSON::PP::true, 'pause');
is_deeply([ map { $_->{name} } @{ good('GET', "$api/types?paused=true")->{items} } ], ['pull'], 'paused types');
my @active = map { $_->{name} } @{ good('GET', "$api/types?paused=false&kind=pull")->{items} };
ok((grep { $_ eq 'new type/ü' } @active) && !grep({ $_ eq 'pull' || $_ eq 'tool' } @active), 'active types of a kind');
bad('GET', "$api/types?kind=tool", undef, '400 kind', 'an unknown kind');
good('POST', "$api/types/pull/resume");
my @names = map { $_->{name} } @{ good('GET', "$api/types")->{items} };
is(join(' ', @names), 'sleeper stubborn tool pull step new type/ü', 'all of them');
good('DELETE', "$api/types/new%20type%2F%C3%BC");
bad('GET', "$api/types/new%20type%2F%C3%BC", undef, '404', 'a dropped type');
bad('DELETE', "$api/types/pull", undef, '403 42501', 'a type of another owner');
good('POST', "$api/types", { name => 'own' });
good('POST', "$api/jobs", { job_type => 'own' });
bad('DELETE', "$api/types/own", undef, '409 55006', 'a type with live jobs');
good('DELETE', "$api/types/own?force=true");
bad('POST', "$api/types", { name => 'pull' }, '409 42710', 'an existing type');

good('PUT', "$api/limits/l%201", { max_concurrent => 2, rate_limit => 5, rate_window => '1 min' });
is_deeply([ map { @$_{qw(name max_concurrent)} } @{ good('GET', "$api/limits")->{items} } ], [ 'l 1', 2 ], 'limits');
good('DELETE', "$api/limits/l%201");
bad('DELETE', "$api/limits/l%201", undef, '404 42704', 'no such limit');
good('PUT', "$api/signals/busy", { active => JSON::PP::true, ttl => '1 min' });
good('PUT', "$api/rules", { job_type => 'pull', signal => 'busy', priority_adj => -5 });
good('PUT', "$api/rules", { job_type => undef, signal => 'busy', block => JSON::PP::false, max_weight => 3 });
is($node->safe_psql('postgres', 'SELECT count(*), sum(priority_adj), max(max_weight) FROM jobq.pressure_rules'), '2|-5|3', 'rules');
bad('DELETE', "$api/signals/busy", undef, '409 55006', 'a signal with rules');
is_deeply([ map { [ @$_{qw(name active)} ] } @{ good('GET', "$api/signals")->{items} } ], [ [ 'busy', JSON::PP::true ] ], 'signals');
$page = good('GET', "$api/rules?limit=1");
is_deeply([ map { [ @$_{qw(job_type signal priority_adj max_weight)} ] } @{ $page->{items} }, @{ good('GET', "$api/rules?cursor=$page->{next}")->{items} } ],
	[ [ undef, 'busy', 0, 3 ], [ 'pull', 'busy', -5, undef ] ], 'pages of rules');
good('DELETE', "$api/rules?job_type=pull&signal=busy");
is(scalar @{ good('GET', "$api/rules")->{items} }, 1, 'a rule is dropped');
good('DELETE', "$api/signals/busy?force=true");
good('PUT', "$api/tenants/acme", { max_live => 100 });
is(good('GET', "$api/tenants")->{items}[0]{max_live}, 100, 'tenants');
good('POST', "$api/stop", { reason => 'test' });
is($node->safe_psql('postgres', 'SELECT reason FROM jobq.stopped'), 'test', 'stop');
good('POST', "$api/start");
is(good('POST', "$api/drain", { timeout => '1 s' })->{idle}, JSON::PP::false, 'drain: a claimed job runs');
good('POST', "$api/start");

# ---------- schedules ----------

my $when = { job_type => 'pull', cron => '0 3 * * *' };
good('POST', "$api/schedules", { name => $_, %$when, payload => { token => 't' } }) foreach 'nightly', 'daily';
good('POST', "$api/schedules", { name => 'nightly', %$when, tenant => 'acme', timezone => 'Europe/Berlin' });
bad('POST', "$api/schedules", { name => 'nightly', %$when }, '409 42710', 'an existing schedule');
bad('POST', "$api/schedules", { name => 'x', job_type => 'pull', cron => '61 * * * *' }, '400 22023 cron', 'a bad expression');
is_deeply([ map { [ @$_{qw(name tenant payload)} ] } @{ good('GET', "$api/schedules?search=NIGHT")->{items} } ],
	[ [ 'nightly', undef, { token => '[redacted]' } ], [ 'nightly', 'acme', {} ] ], 'schedules by a part of the name');
$page = good('GET', "$api/schedules?limit=2");
is_deeply([ map { $_->{name} } @{ good('GET', "$api/schedules?limit=2&cursor=$page->{next}")->{items} } ], ['nightly'], 'pages of schedules');
is_deeply([ map { $_->{tenant} } @{ good('GET', "$api/schedules?tenant=acme&status=active&job_type=pull")->{items} } ], ['acme'], 'filters');
is(good('GET', "$api/schedules/nightly?tenant=acme")->{timezone}, 'Europe/Berlin', 'a schedule of a tenant');
good('PATCH', "$api/schedules/nightly", { cron => '0 4 * * *', max_runs => 9 });
good('PATCH', "$api/schedules/nightly", { reset => ['max_runs'] });
is_deeply([ @{ good('GET', "$api/schedules/nightly") }{qw(cron max_runs timezone)} ], [ '0 4 * * *', undef, 'UTC' ], 'a schedule is changed');
good('POST', "$api/schedules/nightly/pause", { reason => 'r', duration => '1 hour' });
is_deeply([ map { good('GET', "$api/schedules/$_")->{status} } 'nightly', 'nightly?tenant=acme' ], [ 'paused', 'active' ], 'and paused');
good('POST', "$api/schedules/nightly/resume");
my $run = good('POST', "$api/schedules/nightly/run", { tick => '2026-01-01T04:00:00Z' })->{id};
is(good('POST', "$api/schedules/nightly/backfill", { since => '2026-01-02', until => '2026-01-04' })->{n}, 2, 'a backfill');
my @runs = @{ good('GET', "$api/schedules/nightly/runs")->{items} };
is_deeply([ scalar(@runs), $runs[2]{id}, $runs[2]{metadata}{tick} =~ /^2026-01-01/ ], [ 3, $run, 1 ], 'its runs');
is_deeply(good('GET', "$api/schedules/nightly/runs?tenant=acme")->{items}, [], 'not those of another tenant');
good('POST', "$api/schedules", { %$when, name => 'hourly', job_type => 'step' });
$run = good('POST', "$api/schedules/hourly/run")->{id};
$node->safe_psql('postgres', q{SELECT count(*) FROM jobq.enqueue_many('step', array_fill('{}'::jsonb, '{1001}'))});
is_deeply([ map { $_->{id} } @{ good('GET', "$api/schedules/hourly/runs")->{items} } ], [$run], 'behind many newer jobs of its type, too');
$node->safe_psql('postgres', q{SELECT jobq.cancel_jobs('step')});
good('DELETE', "$api/schedules/$_") foreach 'hourly', 'daily';
bad('GET', "$api/schedules/daily", undef, '404', 'a dropped schedule');
bad('DELETE', "$api/schedules/daily", undef, '404', 'drop it again');
my $ticks = good('GET', "$api/next_runs?cron=0+3+*+*+*&n=2&since=2026-01-01T00:00:00Z&timezone=Europe%2FBerlin");
is_deeply([ map { s/T/ /r } @{ $ticks->{items} } ], [ '2026-01-01 02:00:00+00:00', '2026-01-02 02:00:00+00:00' ], 'next ticks');
bad('GET', "$api/next_runs", undef, '400 cron', 'without an expression');

# ---------- values that were hidden ----------

my $shown = { secret => [ { token => '[redacted]' } ] };
my $secret = good('POST', "$api/jobs", { job_type => 'pull', payload => { secret => [ { token => 't', x => '[redacted]' } ] }, delay => '1 hour' })->{id};
bad('PATCH', "$api/jobs/$secret", { payload => $shown }, '400 payload', 'a hidden value is not written back');
is($node->safe_psql('postgres', "SELECT payload FROM jobq.jobs WHERE id = '$secret'"), '{"secret": [{"x": "[redacted]", "token": "t"}]}', 'the job keeps its own');
good('PATCH', "$api/jobs/$secret", { payload => { secret => [ { token => 'u', x => '[redacted]' } ] } });
good('POST', "$api/jobs/$secret/cancel");
bad('POST', "$api/jobs/$secret/rerun", { payload => $shown }, '400 payload', 'nor with a rerun');
bad('POST', "$api/jobs", { job_type => 'pull', metadata => { token => '[redacted]' } }, '400 metadata', 'nor with a new job');
bad('PATCH', "$api/schedules/nightly", { payload => $shown }, '400 payload', 'nor with a schedule');
is($node->safe_psql('postgres', "SELECT payload FROM jobq.schedules WHERE name = 'nightly' AND tenant IS NULL"), '{"token": "t"}', 'which keeps its own, too');
bad('POST', "$api/workflows", { name => 'x', steps => [ { key => 'a', job_type => 'step', payload => $shown } ] }, '400 steps', 'nor with steps');
$secret = good('POST', "$api/jobs", { job_type => 'step' })->{id};
my ($mine) = grep { $_->{id} eq $secret } @{ good('POST', "$api/claim", { job_types => ['step'], max_jobs => 100, lease => '1 min' })->{items} };
good('POST', "$api/jobs/$secret/complete", { lease_token => $mine->{lease_token}, result => $shown });

# ---------- workflows ----------

is(good('POST', "$api/workflows", { name => 'flow', steps => [ { key => 'a', job_type => 'step', payload => { n => $_, secret => { token => 1 } } },
		{ key => 'm', job_type => 'step', after => ['a'], map => '$.input.list' }, { key => 'go', event => 'go' } ] })->{version}, $_, "version $_") foreach 1, 2;
is_deeply([ map { [ @$_{qw(name version)} ] } @{ good('GET', "$api/workflows")->{items} } ], [ [ 'flow', 2 ] ], 'workflows');
is_deeply([ map { [ @$_{qw(version is_active)} ] } @{ good('GET', "$api/workflows/flow")->{items} } ], [ [ 2, JSON::PP::true ], [ 1, JSON::PP::false ] ], 'versions');
is($_->{steps}[0]{payload}{secret}{token}, '[redacted]', 'their steps are redacted')
  foreach good('GET', "$api/workflows")->{items}[0], @{ good('GET', "$api/workflows/flow")->{items} };
my ($problem) = grep { $_->{problem} } @{ good('POST', "$api/workflows/check", { steps => [ { key => 'a', job_type => 'none' } ] })->{items} };
like($problem->{problem}, qr/none/, 'a check');
my $flow = good('POST', "$api/jobs", { job_type => 'flow', payload => { list => [ 1, 2 ] } })->{id};
my $old = good('POST', "$api/jobs", { job_type => 'flow', payload => { list => [] } })->{id};
wait_for_sql($node, "SELECT count(*) = 2 FROM jobq.workflow_runs WHERE status = 'running'", 'the runs have begun');
is_deeply([ map { $_->{id} } @{ good('GET', "$api/runs?workflow=flow&status=running")->{items} } ], [ $old, $flow ], 'runs');
$page = good('GET', "$api/runs?limit=1");
is_deeply([ map { $_->{id} } @{ good('GET', "$api/runs?limit=1&cursor=$page->{next}")->{items} } ], [$flow], 'pages of runs');
wait_for_sql($node, "SELECT count(*) = 3 FROM jobq.jobs WHERE workflow_id = '$flow'", 'the tasks are there');
my $whole = good('GET', "$api/runs/$flow");
is_deeply([ $whole->{run}{workflow}, scalar @{ $whole->{steps} }, [ sort map { $_->{task_key} } @{ $whole->{tasks} } ], $whole->{maps} ], [ 'flow', 3, [qw(a go m)], [] ],
	'a run');
is($whole->{steps}[0]{payload}{secret}{token}, '[redacted]', 'redacted');
is_deeply([ map { $_->{task_key} } @{ good('GET', "$api/runs/$flow/tasks?task_key=a")->{items} } ], ['a'], 'tasks');
good('POST', "$api/runs/$flow/pause", { reason => 'r' });
is(good('GET', "$api/runs/$flow")->{run}{paused_reason}, 'r', 'a run is paused');
good('POST', "$api/runs/$flow/resume");
good('POST', "$api/runs/$flow/event", { event => 'go', data => { x => 1 } });
bad('POST', "$api/runs/$flow/event", { event => 'go' }, '409', 'an event that was sent');
bad('POST', "$api/runs/$unknown/event", { event => 'go' }, '404', 'to no run');
bad('POST', "$api/runs/$flow/retry", undef, '409', 'a run that has not failed');
bad('GET', "$api/runs/$ids[0]", undef, '404', 'a job that is no run');
bad('GET', "$api/runs/$ids[0]/tasks", undef, '404 P0002', 'its tasks');
bad('GET', "$api/$_", undef, '404 42704', "a list below what is not there: $_") foreach qw(workflows/none schedules/none/runs);
$node->safe_psql('postgres', "SELECT jobq.cancel_job('$old')");

# ---------- what happened ----------

good('GET', "$api/events?limit=1");
$page = good('GET', "$api/events?limit=1");
my $page2 = good('GET', "$api/events?limit=1&cursor=$page->{next}");
isnt($page->{items}[0]{id}, $page2->{items}[0]{id}, 'pages of events');
is(join(' ', keys %{ { map { $_->{job_type} => 1 } @{ good('GET', "$api/events?job_type=pull&since=2001-01-01")->{items} } } }), 'pull', 'filters of events');
$node->safe_psql('postgres', "INSERT INTO jobq.alerts (severity, title, message) VALUES ('high', 't', 'm'), ('high', 't2', 'm')");
$page = good('GET', "$api/alerts?severity=high&limit=1");
is(join(' ', map { $_->{title} } @{ $page->{items} }, @{ good('GET', "$api/alerts?severity=high&limit=1&cursor=$page->{next}")->{items} }), 't2 t', 'pages of alerts');

# ---------- the seeds ----------

my $seeds = good('GET', '/admin/jobs?type=pull&collection_id=acme&limit=1');
is(scalar @{ $seeds->{jobs} }, 1, 'jobs');
is($seeds->{next}, 1, 'the offset of the next page');
is_deeply([ sort keys %{ $seeds->{counts} } ], [ qw(blocked cancelled completed error pending retry running skipped) ], 'counts of all statuses');
is_deeply($seeds->{counts}{completed}, { n => 1, exact => JSON::PP::true }, 'a count');
ok((grep { $_ eq 'pull' } @{ $seeds->{job_types} }), 'job types');
isnt(good('GET', '/admin/jobs?type=pull&collection_id=acme&limit=1&offset=1')->{jobs}[0]{id}, $seeds->{jobs}[0]{id}, 'the next page');
is(scalar(@{ good('GET', '/admin/jobs?status=&type=&collection_id=&limit=&offset=')->{jobs} }), scalar(@{ good('GET', '/admin/jobs')->{jobs} }),
	'empty fields of a form are not given');
good('POST', '/intentions/cancel_job', { job_id => $again });
bad('POST', '/intentions/cancel_job', { job_id => $again }, '409', 'a wrong state');
is_deeply(good('POST', '/intentions/retry_job', { job_id => $again }), { ok => JSON::PP::true }, 'retry_job');
bad('POST', '/intentions/retry_job', { job_id => $unknown }, '404', 'an unknown job');
$node->safe_psql('postgres', q{INSERT INTO jobq.disk_log SELECT clock_timestamp() + interval '1 minute' - make_interval(secs => n), path, 100, 9, percent, 'ok'
	FROM generate_series(1, 70) n, (VALUES ('/full', 99), ('/empty', 1)) v(path, percent)
	UNION ALL SELECT clock_timestamp() - interval '1 hour', '/gone', 100, 9, 100, 'ok'});
my $disk = good('GET', '/admin/resources/disk');
is($disk->{current}{path}, '/full', 'the fullest disk');
is_deeply([ map { my $path = $_; scalar(grep { $_->{path} eq $path } @{ $disk->{readings} }) } qw(/full /empty /gone) ], [ 60, 60, 0 ], 'sixty readings of each');
$node->safe_psql('postgres', q{DELETE FROM jobq.disk_log WHERE path IN ('/full', '/empty', '/gone')});
good('PUT', "$api/signals/livekit", { active => JSON::PP::false });
good('POST', '/admin/resources/update_rule', { job_type => 'pull', base_priority => 4, cpu_weight => 2, max_concurrent => 9, timeout_seconds => 90,
		livekit_priority_adj => -20, block_during_livekit => JSON::PP::true });
good('POST', '/admin/resources/update_rule', { job_type => 'pull', signal => 'livekit', priority_adj => -7 });
is($node->safe_psql('postgres', "SELECT base_priority, cpu_weight, max_concurrent, timeout, r.priority_adj, r.block
	 FROM jobq.job_types t JOIN jobq.pressure_rules r ON r.type_id = t.id WHERE t.name = 'pull' AND r.signal = 'livekit'"),
	'4|2|9|00:01:30|-7|t', 'update_rule changes what it names, and nothing else');
good('POST', '/admin/resources/update_rule', { job_type => 'pull', $_ => 3 }) foreach qw(base_priority cpu_weight max_concurrent);
is($node->safe_psql('postgres', q{SELECT base_priority, cpu_weight, max_concurrent, timeout FROM jobq.job_types WHERE name = 'pull'}), '3|3|3|00:01:30', 'each alone');
good('POST', '/admin/resources/update_rule', { job_type => 'pull', signal => 'livekit', priority_adj => -6, block_during_livekit => JSON::PP::false });
my $rule = q{SELECT r.priority_adj, r.block FROM jobq.job_types t JOIN jobq.pressure_rules r ON r.type_id = t.id WHERE t.name = 'pull' AND r.signal = 'livekit'};
is($node->safe_psql('postgres', $rule), '-6|f', 'the two names of a rule in one call');
my $locked = $node->background_psql('postgres');
$locked->query_safe("BEGIN; SELECT FROM jobq.job_types WHERE name = 'pull' FOR UPDATE");
my $audit = $node->safe_psql('postgres', 'SELECT max(id) FROM jobq.audit');
my @both;
my %chief = basic('chief', 'c');    # which has made no requests yet: of boss the limit of a second may be near
foreach my $part ({ priority_adj => -9 }, { block => JSON::PP::true })
{
	my $text = encode_json({ job_type => 'pull', signal => 'livekit', %$part });

	push @both, connect_web($web);
	syswrite($both[-1], "POST /admin/resources/update_rule HTTP/1.1\r\nHost: a\r\nAuthorization: $chief{Authorization}\r\n"
		  . "Content-Type: application/json\r\nContent-Length: " . length($text) . "\r\n\r\n$text");
	wait_for_sql($node, 'SELECT count(*) = ' . @both . q{ FROM pg_stat_activity WHERE usename = 'chief' AND wait_event_type = 'Lock'}, 'a change waits for the type');
}
$locked->query_safe('COMMIT');
$locked->quit;
like((read_all($_))[0], qr{^HTTP/1.1 200 }, 'a change') foreach @both;
is($node->safe_psql('postgres', $rule), '-9|t', 'two changes at once: none is lost');
is($node->safe_psql('postgres', "SELECT by, action, object, old ->> 'priority_adj', old ->> 'block', new ->> 'priority_adj', new ->> 'block' FROM jobq.audit WHERE id > $audit ORDER BY id"),
	"chief|set_pressure_rule|pull/livekit|-6|false|-9|false\nchief|set_pressure_rule|pull/livekit|-9|false|-9|true", 'the audit has both');
bad('POST', '/admin/resources/update_rule', { job_type => 'pull' }, '400', 'nothing to change');
bad('POST', '/admin/resources/update_rule', { job_type => 'pull', priority_adj => 3 }, '400 signal', 'no signal');
bad('POST', '/admin/resources/update_rule', { job_type => 'pull', timeout_seconds => 1e30 }, '400 22023 timeout', 'a timeout beyond all intervals');
like((ask($web, 'GET', '/metrics', %boss))[1], qr/^# TYPE jobq_/m, 'metrics');
my (undef, undef, $headers) = ask($web, 'GET', '/metrics', headers => { basic('boss', 'b'), Accept => 'application/openmetrics-text' });
like($headers->{'content-type'}, qr{^application/openmetrics-text}, 'OpenMetrics');
(undef, undef, $headers) = ask($web, 'GET', '/metrics', headers => { basic('boss', 'b'), Accept => 'text/plain, application/openmetrics-text;q=0' });
like($headers->{'content-type'}, qr{^text/plain}, 'not if it is refused');
like(good('GET', '/health')->{status}, qr/^(?:healthy|degraded)$/, 'health');

# ---------- arguments ----------

bad('POST', "$api/jobs", { payload => {} }, '400 job_type', 'a missing argument');
bad('POST', "$api/jobs", { job_type => 'pull', prioritty => 1 }, '400 prioritty', 'an unknown argument');
bad('GET', "$api/jobs?limit=2&statu=x", undef, '400 statu', 'an unknown parameter');
bad('POST', "$api/jobs", { job_type => 'pull', priority => '1' }, '400 priority', 'a string for a number');
bad('POST', "$api/jobs", { job_type => 'pull', priority => 1.5 }, '400 priority', 'a fraction');
bad('POST', "$api/jobs", { job_type => 'pull', priority => 200 }, '400 22003 priority', 'a number out of range');
bad('POST', "$api/jobs", { job_type => 7 }, '400 job_type', 'a number for a string');
bad('POST', "$api/jobs", { job_type => 'none' }, '404 42704', 'an unknown job type');
bad('POST', "$api/jobs", { job_type => 'pull', payload => undef }, '400 22023 payload', 'a null payload');
bad('POST', "$api/jobs", { job_type => 'pull', delay => 'soon' }, '400 22007 delay', 'a bad interval');
bad('POST', "$api/jobs", '{"job_type":"pull","job_type":"tool"}', '400 job_type', 'an argument twice');
bad('POST', "$api/jobs", '{"job_type":"pull"', '400', 'a broken body');
bad('POST', "$api/jobs", '[1]', '400', 'a body that is no object');
bad('POST', "$api/jobs", '{"job_type":"pull","payload":{"a":"\\u0000"}}', '400 payload', 'a zero byte');
bad('GET', "$api/jobs/x", undef, '400 id', 'an id that is none');
bad('GET', "$api/jobs?limit=201", undef, '400 limit', 'a page that is too long');
bad('GET', "$api/jobs?limit=1&limit=2", undef, '400 limit', 'a parameter twice');
bad('GET', "$api/jobs?cursor=%27", undef, '400 cursor', 'a bad cursor');
bad('GET', "$api/jobs?cursor=abc", undef, '400 cursor', 'a cursor of another list');
is(good('GET', "$api/jobs?since=-infinity&until=infinity&limit=1")->{items}[0]{id}, good('GET', "$api/jobs?limit=1")->{items}[0]{id}, 'all times');
is_deeply(good('GET', "$api/jobs?since=infinity")->{items}, [], 'no time');
bad('GET', "$api/jobs?status=late", undef, '400 22P02 status', 'an unknown status');
bad('GET', "$api/jobs?job_type=%FF", undef, '400 job_type', 'not UTF-8');
bad('GET', "$api/jobs?payload_contains=%7B", undef, '400 payload_contains', 'a filter that is not JSON');
bad('GET', "$api/nothing", undef, '404', 'an unknown path');
is((ask($web, 'PUT', "$api/jobs", %boss, body => {}))[2]{allow}, 'GET, POST', 'the methods of a path');

# Why, errors, resources, audit.
my $snoozed = good('GET', "$api/jobs/$z->{id}/why");
is_deeply([ $snoozed->{status}, map { $_->{code} } @{ $snoozed->{reasons} } ], [ 'pending', 'scheduled' ], 'why');
my ($group) = @{ good('GET', "$api/errors?job_type=pull")->{items} };
is_deeply([ @$group{qw(job_type error_code n)} ], [ 'pull', 'E1', 1 ], 'groups of errors');
is_deeply([ map { scalar @{ good('GET', "$api/errors?job_type=pull&error_code=$_")->{items} } } 'E1', 'E2', '' ], [ 1, 0, 0 ], 'of a code');
ok(exists good('GET', '/admin/resources')->{running}, 'resources');
$page = good('GET', "$api/audit?limit=1&action=stop_all");
is_deeply([ @{ $page->{items}[0] }{qw(by action)}, $page->{next} ], [ 'boss', 'stop_all', undef ], 'the audit');
my %audited = map { my $many = $_; $many => { map { $_->{object_type} => 1 } @{ good('GET', "$api/audit?limit=200&many=$many")->{items} } } } qw(true false);
ok($audited{false}{job} && !$audited{true}{job} && $audited{true}{job_type} && !$audited{false}{job_type}, 'calls for single jobs, and others');

# statistics: the session's user reads all tenants
my $overview = good('GET', "$api/overview");
my ($pull) = grep { $_->{job_type} eq 'pull' } @{ $overview->{types} };
cmp_ok($pull->{enqueued} // 0, '>', 0, 'the overview has the counters of a type');
ok(exists $overview->{health}{status}, 'and health');
ok(ref good('GET', "$api/$_")->{items} eq 'ARRAY', $_) foreach qw(workers lanes series limits/usage);

# Nothing of an argument is ever part of a statement.
my $quote = q{'; DROP TABLE jobq.queue; --{limit}{args}$1};
(my $encoded = $quote) =~ s/([^\w])/sprintf '%%%02X', ord $1/ge;
bad('GET', "$api/jobs?job_type=$encoded", undef, '404 42704', 'a quote in a parameter');
bad('GET', "$api/types/$encoded", undef, '404', 'in a path');
bad('POST', "$api/jobs", { job_type => $quote }, '404 42704', 'in a body');
is($node->safe_psql('postgres', 'SELECT count(*) > 0 FROM jobq.queue'), 't', 'the queue is there');

# ---------- rights ----------

my %reader = (headers => { basic('reader', 'r') });
my (undef, $mine) = ask($web, 'GET', "$api/jobs", %reader);
is(join(' ', sort { $a cmp $b } keys %{ { map { $_->{tenant} => 1 } @{ $mine->{items} } } }), 'acme', 'a reader sees its tenant');
my ($beta) = $node->safe_psql('postgres', "SELECT id FROM jobq.jobs WHERE tenant = 'beta' LIMIT 1");
is(status_of($web, 'GET', "$api/jobs/$beta", %reader), 404, 'a job of another one does not exist for it');
is(status_of($web, 'POST', "$api/jobs/$ids[0]/cancel", %reader), 403, 'it changes nothing');
is(status_of($web, 'POST', "$api/stop", %reader, body => { reason => 'x' }), 403, 'and stops nothing');
is(status_of($web, 'GET', '/metrics', %reader), 403, 'and has no metrics');

# ---------- the table itself ----------

my $openapi = good('GET', "$api/openapi.json");
is($openapi->{openapi}, '3.1.0', 'openapi.json');
my %paths = %{ $openapi->{paths} };
cmp_ok(scalar keys %paths, '>', 40, 'lists the paths');
is_deeply([ sort keys %{ $paths{"$api/types/{name}"} } ], [ 'delete', 'get', 'patch' ], 'with their methods');
is_deeply($paths{"$api/jobs"}{post}{requestBody}{content}{'application/json'}{schema}{required}, ['job_type'], 'and arguments');
# Every GET of the table answers, with ids and names that exist.
foreach my $path (sort keys %paths)
{
	next unless $paths{$path}{get} && $path !~ /\{token\}/;
	next if $paths{$path}{get}{responses}{200}{content}{'text/event-stream'};	# without an end
	my $id = $path =~ /runs/ ? $flow : $ids[0];
	my $name = $path =~ /schedules/ ? 'nightly' : $path =~ /workflows/ ? 'flow' : 'pull';
	(my $real = $path) =~ s/\{id\}/$id/;
	$real =~ s/\{name\}/$name/;
	$real .= '?cron=@daily' if $path =~ /next_runs/;
	my $status = status_of($web, 'GET', $real, %boss);

	is($status, 200, "GET $path");
}

# A page ends after 4 MB.
$node->safe_psql('postgres', "SELECT jobq.enqueue('tool', jsonb_build_object('seconds', n, 'x', repeat('x', 900000))) FROM generate_series(1, 7) n");
$page = good('GET', "$api/jobs?job_type=tool&limit=7");
my $rest = good('GET', "$api/jobs?job_type=tool&limit=7&cursor=$page->{next}");
ok(@{ $page->{items} } < 7 && @{ $page->{items} } + @{ $rest->{items} } == 7, 'a page of large jobs is shorter, the next one has the rest');

is(stop_web($web), 0, 'it ends');
done_testing();
