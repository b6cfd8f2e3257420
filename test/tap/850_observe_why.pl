# jobq.why: a scenario for each code.  The reason is there, with what it waits for;
# when it is removed, the job starts.

use strict;
use warnings;

use JSON::PP ();
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('why', 'jobq.max_sql_workers = 4', 'jobq.max_concurrent = 6', 'fsync = off');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE ROLE runner LOGIN;
CREATE TABLE gate (name text);
GRANT SELECT ON gate TO runner;
CREATE FUNCTION ok(p jsonb) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION waits(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  WHILE NOT EXISTS (SELECT FROM public.gate WHERE name = coalesce(p->>'gate', 'open')) LOOP
    PERFORM pg_sleep(0.01);
  END LOOP;
END $$;
CREATE FUNCTION fails_once(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF (jobq.current_job()).runs = 1 THEN
    RAISE 'told to';
  END IF;
END $$;
SELECT jobq.create_job_type('plain', 'ok(jsonb)');
SELECT jobq.create_job_type('retried', 'fails_once(jsonb)', backoff_base => '1h', backoff_jitter => 0);
SELECT jobq.create_job_type('waits', 'waits(jsonb)');
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub sql { return $node->safe_psql('postgres', $_[0]); }

sub why { return JSON::PP->new->decode(sql("SELECT jobq.why('$_[0]')")); }

sub codes { return join ' ', map { $_->{code} } @{ $_[0]{reasons} }; }

sub enqueue
{
	my ($type, $args) = @_;

	return sql("SELECT jobq.enqueue('$type'" . ($args // '') . ')');
}

# Waits until why() names these codes for the job; returns its answer.
sub named
{
	my ($id, $codes, $what) = @_;

	$node->poll_query_until('postgres',
		"SELECT string_agg(r->>'code', ' ' ORDER BY i) = '$codes' FROM jsonb_array_elements(jobq.why('$id')->'reasons') WITH ORDINALITY e(r, i)");
	my $why = why($id);
	is(codes($why), $codes, $what);
	return $why;
}

sub starts
{
	my ($id, $what) = @_;

	ok($node->poll_query_until('postgres', "SELECT status IN ('running', 'completed') FROM jobq.jobs WHERE id = '$id'"), "$what: then it starts");
	my $why = why($id);
	is(codes($why), '', "$what: without a reason");
	return $why;
}

# Waits until jobq.stat_lanes names the code.
sub held
{
	my ($type, $code, $what) = @_;

	return wait_for_sql($node, "SELECT held_by = '$code' FROM jobq.stat_lanes WHERE job_type = '$type'", "$what is held by $code");
}

sub running
{
	my ($id) = @_;

	wait_status($node, 'postgres', $id, 'running');
	return $id;
}

sub seconds_are
{
	my ($why, $seconds, $what) = @_;

	return ok(abs($why->{start_in_s} - $seconds) < 60, "$what: start_in_s is about $seconds");
}

my $id;
my $why;

# ---------- scheduled, retry, after, workflow ----------

$id = enqueue('plain', q{, delay => '1h'});
$why = named($id, 'scheduled', 'delay');
like($why->{reasons}[0]{until}, qr/^\d{4}-\d\d-\d\dT\d\d:/, 'until is ISO 8601');
seconds_are($why, 3600, 'delay');
is_deeply($why->{ahead}, { n => 0, exact => JSON::PP::true }, 'nothing is ahead');
is($why->{status}, 'pending', 'its status');
sql("SELECT jobq.alter_job('$id', scheduled_for => now())");
$why = starts($id, 'delay');
is($why->{start_in_s}, undef, 'a job that has started has no start_in_s');

$id = enqueue('retried');
$why = named($id, 'retry', 'a failed attempt');
seconds_are($why, 3600, 'backoff');
sql("SELECT jobq.retry_job('$id')");
starts($id, 'retry');

my $parent = enqueue('plain', q{, delay => '1h'});
$id = enqueue('plain', ", after => '{$parent}'");
$why = named($id, 'after', 'a parent that has not ended');
is($why->{status}, 'blocked', 'it is blocked');
is($why->{reasons}[0]{holder}, $parent, 'by its parent');
sql("SELECT jobq.alter_job('$parent', scheduled_for => now())");
starts($id, 'parent');
my @parents = map { enqueue('plain', q{, delay => '1h'}) } 1 .. 2;
sql(q{SELECT jobq.create_job_type('dies', 'fails_once(jsonb)', max_attempts => 1, options => '{"alert": false}')});
my $dead = enqueue('dies');
$node->poll_query_until('postgres', "SELECT status = 'error' FROM jobq.jobs WHERE id = '$dead'");
$id = enqueue('plain', ", after => '{$parents[0],$parents[1],$dead}'");
is_deeply([ map { "$_->{code} $_->{holder}" } @{ why($id)->{reasons} } ], [ map { "after $_" } $parents[0], $dead, $parents[1] ], 'each of several parents is named, a dead letter, too');
like(why($id)->{reasons}[1]{message}, qr/dead letter/, 'as such');
sql("SELECT jobq.cancel_job(i) FROM unnest('{$id,$parents[0],$parents[1]}'::uuid[]) i");

# ---------- type_paused, breaker, stopped, signal, filter ----------

sql("SELECT jobq.pause_job_type('plain', 'maintenance')");
$id = enqueue('plain');
is(named($id, 'type_paused', 'a paused type')->{reasons}[0]{until}, undef, 'a pause without end');
sql("SELECT jobq.pause_job_type('plain', duration => '2h')");
$node->poll_query_until('postgres', "SELECT jobq.why('$id')->'reasons'->0->>'until' IS NOT NULL");
seconds_are(why($id), 7200, 'a pause with an end');
my $second = enqueue('plain');
is(named($second, 'type_paused', 'a second job')->{ahead}{n}, 1, 'has the first ahead');
sql(q{SELECT count(jobq.enqueue('plain')) FROM generate_series(1, 9997)});
is_deeply(named(enqueue('plain'), 'type_paused', 'one behind many')->{ahead}, { n => 9999, exact => JSON::PP::true }, 'counts all of them');
is_deeply(named(enqueue('plain'), 'type_paused', 'and one more')->{ahead}, { n => 10000, exact => JSON::PP::false }, 'at least 10,000');
sql("SELECT jobq.resume_job_type('plain')");
starts($_, 'resumed') foreach $id, $second;

sql(q{SELECT jobq.create_job_type('broken', 'fails_once(jsonb)', backoff_base => '1ms', options => '{"breaker": {"failures": 1, "pause": "1h"}}')});
$id = enqueue('broken');
$why = named($id, 'breaker', 'an open breaker');
like($why->{reasons}[0]{message}, qr/breaker of job type "broken" is open/, 'its message');
seconds_are($why, 3600, 'breaker');
$second = enqueue('broken');
held('broken', 'breaker', 'its lane');
sql("SELECT jobq.cancel_job('$second')");	# it would fail and open the breaker again
sql("SELECT jobq.resume_job_type('broken')");
starts($id, 'breaker');

sql("SELECT jobq.stop_all('test')");
$id = enqueue('plain');
named($id, 'stopped', 'stop_all');
sql('SELECT jobq.start_all()');
starts($id, 'start_all');

sql("SELECT jobq.set_signal('busy', true), jobq.set_pressure_rule('plain', 'busy', block => true)");
$id = enqueue('plain');
is(named($id, 'signal', 'a signal that blocks')->{reasons}[0]{holder}, 'busy', 'is the holder');
sql("SELECT jobq.set_signal('busy', false)");
starts($id, 'signal');

sql('ALTER SYSTEM SET jobq.job_type_filter = \'-plain\'');
$node->reload;
$id = enqueue('plain');
named($id, 'filter', 'jobq.job_type_filter');
sql('ALTER SYSTEM RESET jobq.job_type_filter');
$node->reload;
starts($id, 'filter');

# ---------- limit, shared_limit, rate, weight ----------

sql("SELECT jobq.create_job_type('one', 'waits(jsonb)', max_concurrent => 1)");
my $first = running(enqueue('one', q{, '{"gate": "one"}'}));
$id = enqueue('one');
named($id, 'limit', 'max_concurrent');
$second = enqueue('one');
$why = named($second, 'limit behind', 'and the next one');
is_deeply($why->{ahead}, { n => 1, exact => JSON::PP::true }, 'has one ahead');
sql("INSERT INTO gate VALUES ('one'), ('open')");
starts($_, 'limit') foreach $id, $second;
sql('DELETE FROM gate');

sql(q{SELECT jobq.set_limit('api', 1), jobq.create_job_type('left', 'waits(jsonb)', options => '{"limits": ["api"]}'),
	jobq.create_job_type('right', 'waits(jsonb)', options => '{"limits": ["api"]}')});
$first = running(enqueue('left'));
$id = enqueue('right');
is(named($id, 'shared_limit', 'a shared limit')->{reasons}[0]{holder}, 'api', 'is the holder');
sql("SELECT jobq.set_limit('api', 2)");
starts($id, 'shared limit');
sql("INSERT INTO gate VALUES ('open')");

sql("SELECT jobq.create_job_type('rated', 'ok(jsonb)', rate_limit => 1, rate_window => '1h')");
starts(enqueue('rated'), 'the first of an hour');
$id = enqueue('rated');
$why = named($id, 'rate', 'a full window');
seconds_are($why, 3600, 'rate');
$second = enqueue('rated');
seconds_are(named($second, 'rate behind', 'and the next one'), 7200, 'one window later');
sql("SELECT jobq.alter_job_type('rated', rate_limit => 100)");
starts($_, 'rate') foreach $id, $second;
sql('DELETE FROM gate');

sql('ALTER SYSTEM SET jobq.max_weight = 4');
$node->reload;
sql("SELECT jobq.create_job_type('heavy', 'waits(jsonb)', cpu_weight => 3)");
$first = running(enqueue('heavy', q{, '{"gate": "heavy"}'}));
$id = enqueue('heavy');
named($id, 'weight', 'cpu_weight');
is(sql("SELECT jobq.resources()->'weight'"), '{"max": 4, "used": 3}', 'resources() has the weight');
is(sql("SELECT r->>'id' FROM jsonb_array_elements(jobq.resources()->'running') r"), $first, 'and the job that runs');
sql("INSERT INTO gate VALUES ('heavy'), ('open')");
starts($id, 'weight');
sql('ALTER SYSTEM RESET jobq.max_weight');
$node->reload;
sql('DELETE FROM gate');

# ---------- key, tenant_turn, max_running ----------

$first = running(enqueue('waits', q{, '{"gate": "key"}', concurrency_key => 'k'}));
$id = enqueue('plain', q{, concurrency_key => 'k'});
is(named($id, 'key', 'a concurrency key')->{reasons}[0]{holder}, $first, 'its holder');
sql("INSERT INTO gate VALUES ('key')");
starts($id, 'key');
sql(q{SELECT jobq.create_job_type('fifo', 'ok(jsonb)', options => '{"key_order": "fifo"}')});
$first = enqueue('fifo', q{, concurrency_key => 'f', delay => '1h'});
$id = enqueue('fifo', q{, concurrency_key => 'f'});
is(named($id, 'key', 'an earlier job of the key')->{reasons}[0]{holder}, $first, 'its holder');
sql("SELECT jobq.cancel_job('$first')");
starts($id, 'fifo');

sql("SELECT jobq.set_tenant_quota('acme', max_running => 1)");
$first = running(enqueue('waits', q{, '{"gate": "acme"}', tenant => 'acme'}));
$id = enqueue('plain', q{, tenant => 'acme'});
$why = named($id, 'limit', 'max_running of its tenant');
unlike($why->{reasons}[0]{message}, qr/acme/, 'no message names a tenant');
sql("INSERT INTO gate VALUES ('acme')");
starts($id, 'max_running');

sql(q{SELECT jobq.create_job_type('fair', 'waits(jsonb)', max_concurrent => 1, options => '{"fair_by": "tenant"}')});
$first = running(enqueue('fair', q{, '{"gate": "fair"}', tenant => 'a'}));
enqueue('fair', q{, tenant => 'b'});
$id = enqueue('fair', q{, tenant => 'a'});
$why = named($id, 'limit tenant_turn', 'the turn of another tenant');
ok(!$why->{ahead}{exact}, 'what is ahead can only be estimated');
sql("INSERT INTO gate VALUES ('fair'), ('open')");
starts($id, 'turn');
sql('DELETE FROM gate');

# ---------- slots, no_worker, behind ----------

my @busy = map { running(enqueue('waits', ", '{\"gate\": \"slots\"}'")) } 1 .. 4;
$id = enqueue('plain');
like(named($id, 'slots', 'all workers are busy')->{reasons}[0]{message}, qr/max_sql_workers is 4/, 'the setting is named');
my $urgent = enqueue('waits', q{, priority => 10});
named($urgent, 'slots', 'a job of higher priority comes first');
$why = named($id, 'slots behind', 'the other one is behind');
is($why->{ahead}{n}, 1, 'one is ahead');
is($why->{start_in_s}, undef, 'no time of its start is known');
sql("INSERT INTO gate VALUES ('slots'), ('open')");
starts($_, 'slots') foreach $urgent, $id;
sql('DELETE FROM gate');

sql("SELECT jobq.create_job_type('pulled')");
$id = enqueue('pulled');
like(named($id, 'no_worker', 'no claim')->{reasons}[0]{message}, qr/no claim waits/, 'its message');
is(sql("SELECT id FROM jobq.claim('{pulled}')"), $id, 'a claim gets it');
is(codes(why($id)), '', 'then it runs');

sql(q{SELECT jobq.create_workflow('flow', '[{"key": "a", "job_type": "pulled"}, {"key": "b", "job_type": "plain", "after": ["a"]}]')});
my $run = enqueue('flow');
$node->poll_query_until('postgres', "SELECT count(*) = 2 FROM jobq.queue WHERE workflow_id = '$run'");
my %task = map { split /\|/ } split /\n/, sql("SELECT task_key, id FROM jobq.queue WHERE workflow_id = '$run'");
is(named($task{b}, 'workflow', 'a task after another one')->{reasons}[0]{holder}, $task{a}, 'waits for it');
held('pulled', 'no_worker', 'its lane');
sql("SELECT jobq.pause_workflow('$run')");
$why = named($task{a}, 'workflow', 'a task of a paused run');
like($why->{reasons}[0]{message}, qr/run is paused/, 'its message');
sql("SELECT jobq.resume_workflow('$run')");
named($task{a}, 'no_worker', 'the run goes on');
sql("SELECT jobq.complete(id, lease_token) FROM jobq.claim('{pulled}') WHERE id = '$task{a}'");
starts($task{b}, 'workflow');

sql('ALTER SYSTEM SET jobq.max_concurrent = 1');	# the claimed job
$node->reload;
$id = enqueue('plain');
like(named($id, 'slots', 'jobq.max_concurrent')->{reasons}[0]{message}, qr/max_concurrent is 1/, 'its message');
sql('ALTER SYSTEM RESET jobq.max_concurrent');
$node->reload;
starts($id, 'max_concurrent');

# ---------- role, node ----------

sql("SELECT jobq.create_job_type('of_role', 'waits(jsonb)', run_as => 'runner')");
# Without LOGIN a worker of PostgreSQL 17 and later connects all the same.
sql('REVOKE CONNECT ON DATABASE postgres FROM PUBLIC');
$id = enqueue('of_role');
wait_for_sql($node, "SELECT jobq.why('$id')->'reasons'->0->>'code' = 'role'", 'role');
like(why($id)->{reasons}[0]{message}, qr/can connect as role "runner"/, 'role: no worker can connect');
sql('GRANT CONNECT ON DATABASE postgres TO PUBLIC');
sql("INSERT INTO gate VALUES ('open')");
starts($id, 'role');

my $dir = PostgreSQL::Test::Utils::tempdir();
sql("SELECT jobq.create_job_type('tool', command => '{$dir/tool}', options => '{\"output\": \"none\"}')");
$id = enqueue('tool');
$why = named($id, 'node', 'a tool that cannot be started');
ok(defined $why->{reasons}[0]{until}, 'it is tried again');
sql("SELECT jobq.alter_job_type('tool', command => '{/bin/true}')");
starts($id, 'node');

# ---------- helper ----------

# A helper that is lost again and again is started later each time.
$why = {};
foreach (1 .. 1000)
{
	my $read = sub { return eval { slurp_file($_[0]) } // '' };	# any process may end meanwhile

	kill 'KILL', grep { $read->("/proc/$_/comm") =~ /^jobq-helper/ } map { split ' ', $read->("/proc/$_/task/$_/children") }
	  split /\n/, sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'jobq exec worker'");
	$id = enqueue('tool');
	$why = why($id);
	last if codes($why) eq 'helper';
}
is(codes($why), 'helper', 'a helper that is lost again and again');
is($why->{reasons}[0]{message}, 'jobq-helper was lost and is started again', 'its message');
starts($id, 'helper');

# ---------- dispatcher, identity ----------

my $holder = $node->background_psql('postgres');
$id = enqueue('plain', q{, delay => '1h'});
$holder->query_safe("BEGIN; SELECT FROM jobq.queue WHERE id = '$id' FOR UPDATE");
named($id, 'scheduled dispatcher', 'an open transaction holds the row');
$holder->query_safe('ROLLBACK');
named($id, 'scheduled', 'it has ended');
$holder->quit;
like(sql("SELECT jobq.why(jobq.enqueue('plain'))->'reasons'->0->>'message'"), qr/has not been committed/, 'dispatcher: a job of an open transaction');

sql("ALTER SYSTEM SET jobq.databases = '-'");
$node->reload;
wait_for_sql($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'jobq dispatcher'", 'no dispatcher');
$id = enqueue('plain');
like(named($id, 'dispatcher', 'no dispatcher')->{reasons}[0]{message}, qr/jobq.databases/, 'and why');
sql('ALTER SYSTEM RESET jobq.databases');
$node->reload;
starts($id, 'dispatcher');

my $pid = wait_dispatcher($node, 'postgres', 'one dispatcher');
freeze($node, $pid);
$id = enqueue('plain');
$why = why($id);
is(codes($why), 'dispatcher', 'a dispatcher that does not answer');
like($why->{reasons}[0]{message}, qr/does not answer/, 'its message');
kill 'CONT', $pid;
starts($id, 'it goes on');

sql('UPDATE jobq.home SET database = database');	# as a restored dump has it
$id = enqueue('plain', q{, delay => '1ms'});
$node->poll_query_until('postgres', "SELECT jobq.why('$id')->'reasons'->0->>'code' = 'identity'");
is(why($id)->{reasons}[0]{code}, 'identity', 'a restored database');
sql('SELECT jobq.adopt()');
starts($id, 'adopt');

# ---------- errors ----------

sqlstate_is($node, 'postgres', 'SELECT jobq.why(gen_random_uuid())', 'P0002', 'an unknown job');
sqlstate_is($node, 'postgres', 'SELECT jobq.why(NULL)', '22004', 'NULL');

$node->stop;
done_testing();
