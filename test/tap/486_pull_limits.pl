# Limits hold exactly for pulled jobs, with several clients that claim at the same time; freed
# room reaches a waiting claim.

use strict;
use warnings;

use POSIX qw(mkfifo);
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

# No sweep: only publications of commits start jobs.
my $node = jobq_server('limits', 'max_connections = 60', 'fsync = off', "jobq.sweep_interval = '1h'", 'jobq.max_concurrent = 2000');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE FUNCTION gate(p jsonb) RETURNS void LANGUAGE sql AS 'SELECT pg_advisory_xact_lock(1)';
-- Ends all claimed jobs of some types.
CREATE FUNCTION complete_all(types text[] DEFAULT NULL) RETURNS bigint LANGUAGE sql AS $$
  SELECT count(*) FROM (SELECT jobq.complete(q.id, q.lease_token) AS done FROM jobq.queue q JOIN jobq.job_types t ON t.id = q.type_id
    WHERE q.status = 'running' AND q.lease_token IS NOT NULL AND (types IS NULL OR t.name = ANY (types))) c WHERE done
$$;
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub one { return $node->safe_psql('postgres', $_[0]); }

my @clients = map { $node->background_psql('postgres', on_error_stop => 0) } 1 .. 6;
my $open = $node->background_psql('postgres', on_error_stop => 0);	# has open transactions
my $calls = 0;
my $claims = q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Extension' AND query LIKE '%jobq.claim%' AND state = 'active'};

# Sends a statement of one value to a client, without waiting for it.
sub start
{
	my ($client, $sql) = @_;
	my $call = ++$calls;

	$client->{stdin} .= "SELECT 'answer $call: ' || ($sql);\n";
	$client->{run}->pump_nb;
	return $call;
}

sub answer
{
	my ($client, $call) = @_;

	return $client->query_until(qr/answer $call: .*\n/, '') =~ /answer $call: (.*)/ ? $1 : undef;
}

# The sum of what all clients claim at the same time.
sub all_claim
{
	my ($types, $jobs) = @_;
	my @started = map { start($_, "SELECT count(*) FROM jobq.claim('{$types}', $jobs)") } @clients;
	my $sum = 0;

	$sum += answer($clients[$_], $started[$_]) foreach 0 .. $#clients;
	return $sum;
}

# A client waits for a job; what frees the room; then the client has one.
sub reaches_waiting
{
	my ($type, $frees, $what) = @_;
	my $call = start($clients[0], "SELECT coalesce(string_agg(job_type, ','), 'none') FROM jobq.claim('{$type}', wait => '20s')");

	# a room that time frees may be there before the claim is seen to wait
	$frees eq 'SELECT' || $node->poll_query_until('postgres', $claims) or die 'no waiting claim';
	one($frees);
	return is(answer($clients[0], $call), $type, $what);
}

sub enqueue
{
	my ($type, $n, $more) = @_;

	return one("SELECT count(jobq.enqueue('$type', jsonb_build_object('n', n)" . ($more // '') . ")) FROM generate_series(1, $n) n");
}

sub clear
{
	one('SELECT jobq.cancel_jobs(name, include_running => true) FROM jobq.job_types');
	one(q{SELECT count(*) FROM (SELECT jobq.fail(id, lease_token, 'end') FROM jobq.queue WHERE lease_token IS NOT NULL) f});
	is(one(q{SELECT count(*) FROM jobq.claim(NULL, 1000)}), 0, 'no job is left');	# and the dispatcher knows it: it may hand out a cancelled job
	return is(one('SELECT count(*) FROM jobq.queue'), 0, 'no row is left');
}

# ---------- max_concurrent ----------

one(q{SELECT jobq.create_job_type('five', max_concurrent => 5, max_attempts => 9, backoff_base => '0'), jobq.create_job_type('many', max_concurrent => 200)});
enqueue('five', 5);
one(q{SELECT jobq.cancel_jobs('five')});
enqueue('five', 1);
enqueue('many', 1);
is(one(q{SELECT count(*) FROM jobq.claim('{five,many}', 9)}), 2, 'a claim passes cancelled jobs');
clear();
enqueue('five', 1500);
is(all_claim('five', 1000), 5, 'max_concurrent 5: six claims of 1,000 jobs get five');
is(all_claim('five', 1), 0, 'a seventh gets none');
is(one(q{SELECT complete_all()}), 5, 'they end');
is($open->query_safe(q{BEGIN; SELECT count(*) FROM jobq.claim('{five}', 3)}), 3, 'an open claim has three');
is(all_claim('five', 1000), 2, 'the others get two');
$open->query_safe('ROLLBACK');
is(all_claim('five', 1000), 3, 'its rollback gives three to the others');
reaches_waiting('five', q{SELECT jobq.complete(id, lease_token) FROM jobq.queue WHERE lease_token IS NOT NULL LIMIT 1}, 'complete reaches a waiting claim');
reaches_waiting('five', q{SELECT jobq.fail(id, lease_token, 'x', retry_after => '1h') FROM jobq.queue WHERE lease_token IS NOT NULL LIMIT 1}, 'fail reaches it');
reaches_waiting('five', q{SELECT jobq.snooze_job(id, lease_token, '1h') FROM jobq.queue WHERE lease_token IS NOT NULL LIMIT 1}, 'snooze_job reaches it');
reaches_waiting('five', q{SELECT jobq.skip_job(id, lease_token) FROM jobq.queue WHERE lease_token IS NOT NULL LIMIT 1}, 'skip_job reaches it');
reaches_waiting('five', q{SELECT jobq.alter_job_type('five', max_concurrent => 6)}, 'a higher limit reaches it');
one(q{SELECT jobq.complete(id, lease_token) FROM jobq.queue WHERE lease_token IS NOT NULL LIMIT 1});
one(q{SELECT count(*) FROM jobq.claim('{five}', lease => '1s')});
reaches_waiting('five', 'SELECT', 'the end of a lease reaches it');
one(q{SELECT jobq.complete(id, lease_token) FROM jobq.queue WHERE lease_token IS NOT NULL LIMIT 1});
$open->query_safe(q{BEGIN; SELECT count(*) FROM jobq.claim('{five}')});
reaches_waiting('five', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction'}, 'the end of a client with an open claim reaches it');
$open = $node->background_psql('postgres', on_error_stop => 0);
one(q{SELECT jobq.alter_job_type('five', max_concurrent => 4)});
is(all_claim('five', 1), 0, 'a lower limit: six are running');
is(one(q{SELECT count(*) FROM (SELECT jobq.complete(id, lease_token) FROM jobq.queue WHERE lease_token IS NOT NULL LIMIT 3) c}), 3, 'three end');
is(all_claim('five', 2), 1, 'one starts');
clear();
enqueue('many', 450);
is(all_claim('many', 1000), 200, 'max_concurrent 200, in several rounds');
is(one('SELECT complete_all()'), 200, 'they end');
is(one(q{SELECT count(*) FROM jobq.claim('{many}', 1000)}), 200, 'the next 200');
clear();

# ---------- weights ----------

one(q{SELECT jobq.create_job_type('three', cpu_weight => 3), jobq.create_job_type('light'), jobq.create_job_type('none', cpu_weight => 0),
  jobq.create_job_type('heavy', cpu_weight => 11)});
one('ALTER SYSTEM SET jobq.max_weight = 10');
$node->reload;
wait_for_sql($node, q{SELECT current_setting('jobq.max_weight') = '10'}, 'jobq.max_weight is 10');
one('SELECT jobq.reload()');
enqueue($_, 20) foreach qw(three light none);
is(all_claim('three', 20), 3, 'weight 3 of 10: three');
is(all_claim('light', 20), 1, 'one of weight 1 beside them');
is(all_claim('none', 20), 20, 'weight 0 is free');
reaches_waiting('light', q{SELECT complete_all('{three}') > 0}, 'completions of heavier jobs reach a waiting claim');
is(all_claim('light', 20), 8, 'ten in all');
clear();
enqueue($_, 2) foreach qw(heavy light);
is(one(q{SELECT string_agg(job_type, ',') FROM jobq.claim('{heavy,light}', 9)}), 'heavy', 'a job above the weight runs alone');
is(all_claim('light,heavy', 1), 0, 'no other one beside it');
one('SELECT complete_all()');
is(one(q{SELECT string_agg(job_type, ',') FROM jobq.claim('{heavy}', 9)}), 'heavy', 'then the next one');
one('SELECT complete_all()');
is(all_claim('light', 9), 2, 'then the light ones');
clear();

# ---------- pressure ----------

one(q{SELECT jobq.set_signal('strain', true), jobq.set_pressure_rule(NULL, 'strain', max_weight => 4)});
enqueue('light', 20);
is(all_claim('light', 9), 4, 'pressure: max_weight 4');
reaches_waiting('light', q{SELECT jobq.set_signal('strain', false)}, 'the end of the pressure reaches a waiting claim');
is(all_claim('light', 9), 5, 'ten again');
clear();
one(q{SELECT jobq.set_pressure_rule(NULL, 'strain'), jobq.set_pressure_rule('light', 'strain', block => true), jobq.set_signal('strain', true)});
enqueue($_, 20) foreach qw(light none);
is(all_claim('light', 9), 0, 'a type is blocked');
is(all_claim('none', 9), 20, 'another one is not');
reaches_waiting('light', q{SELECT jobq.set_pressure_rule('light', 'strain')}, 'the end of the rule reaches a waiting claim');
clear();
one('ALTER SYSTEM RESET jobq.max_weight');
$node->reload;
wait_for_sql($node, q{SELECT current_setting('jobq.max_weight') = '0'}, 'jobq.max_weight is off');
one('SELECT jobq.reload()');
enqueue($_, 2) foreach qw(light none);
is(one(q{SELECT string_agg(job_type, ',') FROM jobq.claim('{none,light}', 3)}), 'light,light,none', 'types of equal priority in time order');
clear();
one(q{SELECT jobq.set_pressure_rule('light', 'strain', priority_adj => -5)});
enqueue($_, 2) foreach qw(light none);
is(one(q{SELECT string_agg(job_type, ',') FROM jobq.claim('{none,light}', 3)}), 'none,none,light', 'pressure lowers a priority');
one(q{SELECT jobq.set_pressure_rule('light', 'strain')});
clear();

# ---------- rates ----------

one(q{SELECT jobq.create_job_type('rated', rate_limit => 7, rate_window => '1h', max_attempts => 9),
  jobq.set_limit('api', rate_limit => 9, rate_window => '1h'),
  jobq.create_job_type('api 1', options => '{"limits": ["api"]}'), jobq.create_job_type('api 2', options => '{"limits": ["api"]}')});
enqueue($_, 100) foreach 'rated', 'api 1', 'api 2';
is($open->query_safe(q{BEGIN; SELECT count(*) FROM jobq.claim('{rated}', 3)}), 3, 'three starts in an open claim');
is(all_claim('rated', 3), 4, 'rate_limit 7: the others get four');
$open->query_safe('ROLLBACK');
is(all_claim('rated', 100), 3, 'a claim that is rolled back is no start');
one('SELECT complete_all()');
is(all_claim('rated', 100), 0, 'an end gives no start back');
is(all_claim('api 1', 2), 9, 'a shared rate limit');
is(all_claim('api 2,api 1', 2), 0, 'is shared');
my $former = dispatcher($node, 'postgres');
one("SELECT pg_terminate_backend($former)");
wait_dispatcher($node, 'postgres', 'another dispatcher', $former);
is(all_claim('rated,api 2,api 1', 2), 0, 'it knows the starts');
one(q{SELECT jobq.set_limit('api', rate_limit => 11, rate_window => '1h')});
is(all_claim('api 2', 100), 2, 'two more');
clear();
one(q{SELECT jobq.alter_job_type('rated', rate_limit => 2, rate_window => '2s')});
one(q{SELECT jobq.alter_job_type('rated', max_concurrent => 0)});
enqueue('rated', 20);
all_claim('rated', 2);	# none is left in this window
reaches_waiting('rated', 'SELECT', 'the next window reaches a waiting claim');
clear();

# ---------- another dispatcher finds leases behind jobs that wait ----------

one(q{SELECT jobq.create_job_type('behind', max_concurrent => 1),
  jobq.set_limit('beside', max_concurrent => 1), jobq.create_job_type('beside', options => '{"limits": ["beside"]}'),
  jobq.create_job_type('beside called', 'gate(jsonb)', options => '{"limits": ["beside"]}')});
# more than are read in a turn
$open->query_safe(q{BEGIN; SELECT jobq.enqueue_many('behind', array_fill('{}'::jsonb, ARRAY[4000])) FROM generate_series(1, 2)});
$open->query_safe(q{SELECT count(*) FROM jobq.enqueue_many('beside', array_fill('{}'::jsonb, ARRAY[40]))});
enqueue($_, 1) foreach 'behind', 'beside';
is(one("SELECT count(*) FROM jobq.claim('{$_}', lease => '1h')"), 1, "$_: a claimed job") foreach 'behind', 'beside';
$open->query_safe('COMMIT');
$former = dispatcher($node, 'postgres');
one("SELECT pg_terminate_backend($former)");
wait_dispatcher($node, 'postgres', 'another dispatcher', $former);
is(all_claim($_, 2), 0, "$_: jobs that were enqueued before the claimed one do not hide it") foreach 'behind', 'beside';
my $called = one(q{SELECT jobq.enqueue('beside called')});
one('SELECT jobq.health()') foreach 1 .. 2;
is(one("SELECT status FROM jobq.jobs WHERE id = '$called'"), 'pending', 'a SQL job of that limit waits, too');
is(one("SELECT jobq.drain('100ms')"), 'f', 'and drain knows of them');
one('SELECT jobq.start_all()');
is(one("SELECT complete_all('{behind,beside}')"), 2, 'they end');
wait_status($node, 'postgres', $called, 'completed', 'the SQL job runs');
is(all_claim($_, 2), 1, "$_: one of the others is had") foreach 'behind', 'beside';
clear();

# ---------- a limit shared with a SQL type ----------

one(q{SELECT jobq.set_limit('both', max_concurrent => 3), jobq.create_job_type('pulled', options => '{"limits": ["both"]}'),
  jobq.create_job_type('called', 'gate(jsonb)', options => '{"limits": ["both"]}')});
my $gate = $node->background_psql('postgres');
$gate->query_safe('SELECT pg_advisory_lock(1)');
enqueue('called', 2);
wait_for_sql($node, q{SELECT count(*) = 2 FROM jobq.jobs WHERE job_type = 'called' AND status = 'running'}, 'two SQL jobs run');
enqueue('pulled', 10);
is(all_claim('pulled', 9), 1, 'one pulled job beside them');
enqueue('called', 2);
reaches_waiting('pulled', q{SELECT complete_all('{pulled}')}, 'its end reaches the claim');
is(one(q{SELECT count(*) FROM jobq.jobs WHERE status = 'running'}), 3, 'three in all');
one(q{SELECT complete_all('{pulled}')});
wait_for_sql($node, q{SELECT count(*) = 3 FROM jobq.jobs WHERE job_type = 'called' AND status = 'running'}, 'the third SQL job runs when a pulled one has ended');
is(all_claim('pulled', 9), 0, 'no room for a pulled one');
my $wait = start($clients[0], q{SELECT count(*) FROM jobq.claim('{pulled}', 9, wait => '20s')});
wait_for_sql($node, $claims, 'a claim waits for room');
$gate->query_safe('SELECT pg_advisory_unlock(1)');
cmp_ok(answer($clients[0], $wait), '>=', 1, 'ends of SQL jobs reach a waiting claim');
all_claim('pulled', 9);
one(q{SELECT complete_all('{pulled}')});	# they may have all the room
wait_for_sql($node, q{SELECT count(*) = 0 FROM jobq.jobs WHERE job_type = 'called' AND status IN ('pending', 'running')}, 'all SQL jobs end');
all_claim('pulled', 9);
is(one(q{SELECT count(*) FROM jobq.queue WHERE status = 'running'}), 3, 'three pulled ones run');
clear();

# ---------- concurrency keys ----------

one(q{SELECT jobq.create_job_type('keyed', max_attempts => 9), jobq.create_job_type('keyed twice', options => '{"concurrency_per_key": 2}'),
  jobq.create_job_type('fifo', options => '{"key_order": "fifo"}', max_attempts => 9), jobq.create_job_type('keyed sql', 'gate(jsonb)')});
enqueue('keyed', 12, q{, concurrency_key => 'k' || n % 3});
is(all_claim('keyed', 9), 3, 'three keys: three jobs');
is(one(q{SELECT count(DISTINCT concurrency_key) FROM jobq.queue WHERE status = 'running'}), 3, 'one of each');
is(one(q{SELECT complete_all()}) . all_claim('keyed', 1), '33', 'then the next three');
reaches_waiting('keyed', q{SELECT jobq.complete(id, lease_token) FROM jobq.queue WHERE lease_token IS NOT NULL LIMIT 1}, 'a free key reaches a waiting claim');
clear();
enqueue('keyed', 4, q{, concurrency_key => 'k', tenant => 't' || n % 2});
is(all_claim('keyed', 9), 2, 'a key counts for each tenant');
clear();
enqueue('keyed twice', 12, q{, concurrency_key => 'k' || n % 3});
is(all_claim('keyed twice', 9), 6, 'concurrency_per_key 2');
clear();
enqueue('fifo', 3, q{, concurrency_key => 'a'});
enqueue('fifo', 1, q{, concurrency_key => 'b'});
is(one(q{SELECT string_agg(payload->>'n', ',') FROM jobq.claim('{fifo}', 9)}), '1,1', 'fifo: the first one of each key');
one(q{SELECT jobq.fail(id, lease_token, 'x', retry_after => '1h') FROM jobq.queue WHERE concurrency_key = 'a' AND lease_token IS NOT NULL});
is(all_claim('fifo', 9), 0, 'its retry blocks the key');
one(q{SELECT jobq.cancel_job(id) FROM jobq.queue WHERE concurrency_key = 'a' AND status = 'retry'});
is(one(q{SELECT string_agg(payload->>'n', ',') FROM jobq.claim('{fifo}', 9)}), '2', 'after its end the second one starts');
clear();
$gate->query_safe('SELECT pg_advisory_lock(1)');
enqueue('keyed sql', 1, q{, concurrency_key => 'k'});
wait_for_sql($node, q{SELECT count(*) = 1 FROM jobq.jobs WHERE status = 'running'}, 'a SQL job has the key');
enqueue('keyed', 1, q{, concurrency_key => 'k'});
is(all_claim('keyed', 9), 0, 'a pulled one waits');
reaches_waiting('keyed', q{SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted}, 'the end of the SQL job reaches a waiting claim');
eval { $gate->quit };
clear();

# ---------- tenants ----------

one(q{SELECT jobq.create_job_type('fair', options => '{"fair_by": "tenant"}'), jobq.create_job_type('fair 2', options => '{"fair_by": "tenant"}')});
enqueue('fair', 200, q{, tenant => 'big'});
enqueue('fair', 3, q{, tenant => 'small'});
is(one(q{SELECT string_agg(tenant, ',') FROM (SELECT tenant FROM jobq.claim('{fair}', 6) LIMIT 6) c}), 'big,small,big,small,big,small', 'tenants in turn');
is(all_claim('fair', 10), 60, 'then the one that has jobs');
is(one(q{SELECT count(*) FROM jobq.queue WHERE tenant = 'small' AND status = 'running'}), 3, 'none of the other is left');
clear();
one(q{SELECT jobq.set_tenant_quota('acme', max_running => 4), jobq.create_job_type('plain')});
enqueue($_, 10, q{, tenant => CASE n % 2 WHEN 0 THEN 'acme' ELSE 'acme/eu' END}) foreach qw(fair plain);
enqueue('plain', 5, q{, tenant => 'other'});
is(all_claim('fair,plain', 9), 9, 'max_running 4 of a tenant, five of another');
is(one(q{SELECT count(*) FROM jobq.queue WHERE status = 'running' AND tenant LIKE 'acme%'}), 4, 'four of it');
one(q{SELECT count(*) FROM (SELECT jobq.complete(id, lease_token) FROM jobq.queue WHERE lease_token IS NOT NULL AND tenant LIKE 'acme%' LIMIT 2) c});
is(all_claim('fair,plain', 9), 2, 'two ends, two starts');
$open->query_safe(q{BEGIN; SELECT complete_all()});
is(all_claim('fair', 9), 0, 'ends count from their commit on');
$open->query_safe('COMMIT');
is(all_claim('fair,plain', 9), 4, 'then');
clear();

# SQL jobs, tools and claimed jobs of a tenant count together.
my $fifo = PostgreSQL::Test::Utils::tempdir() . '/gate';	# a tool waits until it is opened for writing
mkfifo($fifo, 0666) or die "mkfifo: $!";
one(qq{SELECT jobq.create_job_type('gated', 'gate(jsonb)'), jobq.create_job_type('gated tool', command => '{/bin/cat,$fifo}', options => '{"output": "none"}')});

# So many jobs of the tenant run, and no client gets a further one.
sub full_with
{
	my ($expected, $what) = @_;
	my $running = q{SELECT string_agg(n || ' ' || job_type, ', ' ORDER BY job_type) FROM (SELECT job_type, count(*) AS n FROM jobq.jobs WHERE status = 'running' GROUP BY 1) r};

	wait_for_sql($node, "SELECT ($running) = '$expected'", $what);
	is(all_claim('plain', 9), 0, 'a claim gets none');
	return is(one($running), $expected, 'and it stays so');
}

$gate = $node->background_psql('postgres');
$gate->query_safe('SELECT pg_advisory_lock(1)');
enqueue($_, 1, q{, tenant => 'acme'}) foreach 'gated', 'gated tool';
wait_for_sql($node, q{SELECT count(*) = 2 FROM jobq.jobs WHERE status = 'running'}, 'a SQL job and a tool of the tenant run');
enqueue('plain', 9, q{, tenant => CASE n % 2 WHEN 0 THEN 'acme' ELSE 'acme/eu' END});
is(all_claim('plain', 9), 2, 'two claimed jobs beside them');
full_with('1 gated, 1 gated tool, 2 plain', 'four in all');
reaches_waiting('plain', q{SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted}, 'the end of the SQL job reaches a waiting claim');
eval { $gate->quit };
full_with('1 gated tool, 3 plain', 'four in all without it');
reaches_waiting('plain', "COPY (SELECT 1) TO '$fifo'", 'the end of the tool reaches a waiting claim');
full_with('4 plain', 'four claimed jobs');
$gate = $node->background_psql('postgres');
$gate->query_safe('SELECT pg_advisory_lock(1)');
enqueue($_, 1, q{, tenant => 'acme/eu', priority => 1}) foreach 'gated', 'gated tool';
full_with('4 plain', 'no SQL job or tool starts beside them');
one(q{SELECT count(*) FROM (SELECT jobq.complete(id, lease_token) FROM jobq.queue WHERE lease_token IS NOT NULL LIMIT 2) c});
full_with('1 gated, 1 gated tool, 2 plain', 'the ends of two reach both');
$gate->query_safe('SELECT pg_advisory_unlock(1)');
$gate->quit;
one("COPY (SELECT 1) TO '$fifo'");
wait_for_sql($node, q{SELECT count(*) = 0 FROM jobq.queue WHERE status = 'running' AND lease_token IS NULL}, 'both end');
clear();

one(q{SELECT jobq.set_tenant_quota('acme', max_live => 3)});
enqueue('plain', 3, q{, tenant => 'acme'});
is(all_claim('plain', 9), 3, 'three live jobs are claimed');
sqlstate_is($node, 'postgres', q{SELECT jobq.enqueue('plain', tenant => 'acme')}, '53400', 'claimed jobs are in the quota of live ones');
one(q{SELECT jobq.complete(id, lease_token) FROM jobq.queue LIMIT 1});
sqlstate_is($node, 'postgres', q{SELECT jobq.enqueue('plain', tenant => 'acme')}, '00000', 'an end makes room');
clear();

# ---------- order ----------

one(q{SELECT jobq.create_job_type('high', base_priority => 10)});
one(q{SELECT jobq.enqueue(t, jsonb_build_object('n', n), priority => p) FROM (VALUES (1, 'plain', 0), (2, 'high', NULL), (3, 'plain', 10), (4, 'high', -1),
  (5, 'plain', 50), (6, 'light', 0)) v(n, t, p) ORDER BY n});
is(one(q{SELECT string_agg(payload->>'n', ',') FROM jobq.claim(NULL, 10)}), '5,2,3,1,6,4', 'a claim of all types: priority, then time');
clear();
enqueue('five', 20);
is(all_claim('five', 1000), 4, 'after all of it the limits count from zero');
$_->quit foreach @clients, $open;

# ---------- a cancel ----------

# Waits until the listener has heard of the type.
sub hears
{
	my ($listener, $what) = @_;

	foreach (1 .. 100 * $PostgreSQL::Test::Utils::timeout_default)
	{
		return pass($what) if $listener->query('SELECT pg_sleep(0.01)') =~ /notification "jobq_heard"/;
	}
	return fail($what);
}

one(q{SELECT jobq.create_job_type('heard')});
my $listener = $node->background_psql('postgres');
$listener->query_safe('LISTEN jobq_heard');
my $heard = one(q{SELECT jobq.enqueue('heard')});
hears($listener, 'a job is notified');
is(one(q{SELECT count(*) FROM jobq.claim('{heard}', 2)}), 1, 'it is claimed');
is(one(q{SELECT count(*) FROM jobq.claim('{heard}')}), 0, 'and its row was read');
one("SELECT jobq.cancel_job('$heard')");
hears($listener, 'its cancel is notified without a sweep');
$listener->quit;

# ---------- one unique key ----------

# Both jobs of a key wait after a failure: open claims do not have both.
one(q{SELECT jobq.create_job_type('both wait', max_attempts => 9)});
my $claim = q{SELECT string_agg(id::text, ' ') FROM jobq.claim('{both wait}'};
foreach my $end ('COMMIT', 'ROLLBACK')
{
	my $older = one(q{SELECT jobq.enqueue('both wait', unique_key => 'k')});
	my $token = one(q{SELECT lease_token FROM jobq.claim('{both wait}')});
	my $newer = one(q{SELECT jobq.enqueue('both wait', unique_key => 'k', on_conflict => 'replace')});

	is(one("$claim)"), '', "$end: the newer job waits for the older one");
	one("SELECT jobq.fail('$older', '$token', 'no', retry_after => '0')");
	is($clients[0]->query_safe("BEGIN; $claim)"), $newer, 'an open claim has the newer job, which is due for longer');
	is($clients[1]->query_safe("BEGIN; $claim)"), '', 'another open claim does not have the older one');
	$clients[0]->query_safe($end);
	is(one("$claim, wait => '20s')"), $newer, 'it is returned') if $end eq 'ROLLBACK';
	is(one("$claim)"), '', 'the older one waits');
	is(one("SELECT jobq.complete(id, lease_token) FROM jobq.queue WHERE id = '$newer'"), 't', 'until the newer one has ended');
	is(one("$claim)"), '', 'but the open claim still has its row locked');
	$clients[1]->query_safe($end);
	is(one("$claim, wait => '20s')"), $older, 'then it is claimed');
	one("SELECT jobq.complete(id, lease_token) FROM jobq.queue WHERE id = '$older'");
}

# ---------- a claim that comes while the queue can't be read ----------

one(q{SELECT jobq.create_job_type('passed'); CREATE ROLE works_a LOGIN; SELECT jobq.grant_access('works_a', 'work', 'a', '{passed}')});
my $works_a = $node->background_psql('postgres', extra_params => [ '-U', 'works_a' ]);
my $call = start($works_a, "SELECT count(*) FROM jobq.claim('{passed}', wait => '2s')");
wait_for_sql($node, $claims, 'a claim of one tenant waits');
one(q{SELECT jobq.enqueue('passed', tenant => 'b')});
is(answer($works_a, $call), 0, "another tenant's job is passed over");
$works_a->quit;
one(q{SELECT jobq.enqueue('passed', priority => 5)});
$open->query_safe('BEGIN; LOCK TABLE jobq.queue IN ACCESS EXCLUSIVE MODE');
$call = start($clients[0], "SELECT count(*) FROM jobq.claim('{passed}', 2, wait => '20s')");
wait_for_sql($node, $claims, 'a claim waits');
my $turns = one('SELECT loops FROM jobq.stat_dispatcher');
wait_for_sql($node, "SELECT loops > $turns + 3 FROM jobq.stat_dispatcher", 'for several turns of the dispatcher');
$open->query_safe('ROLLBACK');
is(answer($clients[0], $call), 2, 'it has both jobs when the queue can be read');
done_testing();
