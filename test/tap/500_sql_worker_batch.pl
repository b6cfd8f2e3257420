# Short jobs share commits, invisibly to handlers: contention costs no attempt, no state leaks from
# one job into the next, a failing or a slow job does not affect others.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use Time::HiRes qw(time);

my $node = jobq_server('batch', 'max_connections = 30', 'jobq.max_sql_workers = 4', 'fsync = off');
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION jobq');
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub scalar_of { return $node->safe_psql('postgres', $_[0]); }

# A type with this plpgsql body; p is the payload.
sub type
{
	my ($name, $body, $args) = @_;

	$args //= 'max_attempts => 1';
	scalar_of("CREATE FUNCTION $name(p jsonb) RETURNS void LANGUAGE plpgsql AS \$\$ BEGIN $body END \$\$;
	  SELECT jobq.create_job_type('$name', '$name(jsonb)', $args)");
	return;
}

# Runs the enqueued jobs of all types together; returns the duration in seconds.
sub run_paused
{
	my ($enqueue, @types) = @_;
	my $list = join ',', @types;
	my $began;

	scalar_of("SELECT jobq.pause_job_type(t) FROM unnest('{$list}'::text[]) t; $enqueue");
	$began = time;
	scalar_of("SELECT jobq.resume_job_type(t) FROM unnest('{$list}'::text[]) t");
	$node->poll_query_until('postgres', 'SELECT NOT EXISTS (SELECT FROM jobq.queue)') or fail("jobs of $list are left");
	return time - $began;
}

# Numbers 1..n go to the types in turn, in one order.
sub in_turn
{
	my ($n, @types) = @_;
	my $list = join ',', @types;

	return "SELECT count(jobq.enqueue(('{$list}'::text[])[1 + n % " . @types . "], jsonb_build_object('n', n)))"
	  . " FROM generate_series(1, $n) n";
}

sub outcome_is
{
	my ($type, $expected, $what) = @_;

	return is(scalar_of("SELECT string_agg(format('%s %s', status, coalesce(code, '-')) || ' ' || n, ', ' ORDER BY status, code)
	  FROM (SELECT status, error_code AS code, count(*) AS n FROM jobq.jobs WHERE job_type = '$type' GROUP BY 1, 2) x"),
		$expected, $what);
}

# ---------- contention: four workers, two hundred rows ----------

scalar_of('CREATE TABLE acct (id int PRIMARY KEY, v bigint NOT NULL) WITH (fillfactor = 20);
  INSERT INTO acct SELECT n, 0 FROM generate_series(0, 199) n');
type('contend', q{UPDATE public.acct SET v = v + 1 WHERE id = (p->>'n')::int * 7919 % 200;});
type('singly', q{UPDATE public.acct SET v = v + 1 WHERE id = (p->>'n')::int * 7919 % 200;},
	q{max_attempts => 1, options => '{"batch": false}'});
type('untouched', q{NULL;});
my %took;
# they take as long, normally; bench/ compares the speeds
my $tries = 0;
until ($tries == 3 || ($tries > 0 && $took{contend} < 5 * $took{singly}))
{
	$tries++;
	$took{$_} = run_paused(in_turn(3000, $_), $_) foreach qw(contend singly);
}
outcome_is('contend', 'completed - ' . 3000 * $tries, 'each updated one of 200 rows');
is(scalar_of('SELECT sum(v) FROM acct'), 6000 * $tries, '!once');
is(scalar_of("SELECT count(*) FROM jobq.jobs WHERE attempts <> 1"), 0, 'no attempt was charged for the company');
is(scalar_of("SELECT count(*) FROM jobq.events WHERE type = 'failed'"), 0, 'no deadlock or lock timeout came to light');
cmp_ok($took{contend}, '<', 5 * $took{singly}, sprintf 'rows of others hold no batch: %.1f s in batches, %.1f s one by one',
	@took{qw(contend singly)});

# ---------- a failing job ----------

type('tenth', q{INSERT INTO public.seen VALUES ((p->>'n')::int);
  IF (p->>'n')::int % 10 = 0 THEN RAISE 'number %', p->>'n' USING ERRCODE = 'XX999'; END IF;});
scalar_of('CREATE TABLE seen (n int)');
run_paused(in_turn(1000, 'tenth'), 'tenth');
outcome_is('tenth', 'completed - 900, error XX999 100', 'a failing job fails alone');
is(scalar_of('SELECT count(*) || \' \' || count(*) FILTER (WHERE n % 10 = 0) FROM seen'), '900 0', 'and writes nothing');
is(scalar_of("SELECT count(*) FROM jobq.jobs WHERE job_type = 'tenth' AND error_msg <> 'number ' || (payload->>'n')"), 0,
	'each has its own message');

# ---------- temporary tables ----------

type('temp', q{CREATE TEMP TABLE scratch (n int) ON COMMIT DROP; INSERT INTO scratch VALUES ((p->>'n')::int);
  ASSERT (SELECT count(*) = 1 FROM scratch);});
type('kept', q{CREATE TEMP TABLE kept (n int); INSERT INTO kept VALUES (1);});
run_paused(in_turn(399, qw(temp kept untouched)), qw(temp kept untouched));
outcome_is('temp', 'completed - 133', 'ON COMMIT DROP');
outcome_is('kept', 'completed - 133', 'a temporary table is gone with its job');

# ---------- constraints ----------

scalar_of('CREATE TABLE parent (id int PRIMARY KEY); INSERT INTO parent VALUES (1);
  CREATE TABLE late (n int, id int REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
  CREATE TABLE prompt (n int, id int REFERENCES parent DEFERRABLE INITIALLY IMMEDIATE)');
type('deferred', q{INSERT INTO public.late VALUES ((p->>'n')::int, 1 + ((p->>'n')::int % 7 = 0)::int);});
type('relaxed', q{SET CONSTRAINTS ALL DEFERRED; INSERT INTO public.prompt VALUES (0, 2); DELETE FROM public.prompt WHERE n = 0;});
type('strict', q{
  BEGIN
    INSERT INTO public.prompt VALUES (1, 2);
  EXCEPTION WHEN foreign_key_violation THEN RETURN;
  END;
  RAISE 'the constraint was deferred by another job';});
run_paused(in_turn(1050, qw(deferred relaxed strict)), qw(deferred relaxed strict));
outcome_is('deferred', 'completed - 300, error 23503 50', 'a deferred foreign key fails the job that wrote the row');
is(scalar_of('SELECT count(*) || \' \' || count(DISTINCT n) FROM late'), '300 300', '!the rows of the others are there');
outcome_is('relaxed', 'completed - 350', 'SET CONSTRAINTS works');
outcome_is('strict', 'completed - 350', 'and does not leak');

# ---------- settings ----------

type('setter', q{PERFORM set_config('work_mem', '77MB', false); SET search_path = pg_catalog; SET my.setting = 'leak';
  SET LOCAL statement_timeout = '1h'; SET lock_timeout = '1h'; SET DateStyle = 'German'; SET SESSION AUTHORIZATION DEFAULT;});
type('reader', q{
  IF current_setting('work_mem') = '77MB' OR current_setting('my.setting', true) <> '' OR current_setting('DateStyle') LIKE 'German%'
     OR current_setting('search_path') = 'pg_catalog' OR current_setting('lock_timeout') = '1h'
     OR current_setting('statement_timeout') = '1h' THEN
    RAISE 'a setting leaked: % % %', current_setting('work_mem'), current_setting('my.setting', true), current_setting('search_path');
  END IF;});
run_paused(in_turn(1000, qw(setter reader)), qw(setter reader));
outcome_is('setter', 'completed - 500', 'SET works');
outcome_is('reader', 'completed - 500', 'and ends with its job');

# ---------- locks, cursors, prepared statements ----------

type('locker', q{PERFORM pg_advisory_xact_lock(42), pg_advisory_lock(43); LOCK TABLE public.late IN SHARE MODE;});
type('holder', q{EXECUTE 'PREPARE leftover AS SELECT 1'; EXECUTE 'DECLARE held CURSOR WITH HOLD FOR SELECT 1';});
type('unlocked', q{
  IF EXISTS (SELECT FROM pg_locks WHERE pid = pg_backend_pid()
              AND (locktype = 'advisory' OR (relation = 'public.late'::regclass AND mode = 'ShareLock'))) THEN
    RAISE 'a lock leaked';
  END IF;
  IF EXISTS (SELECT FROM pg_prepared_statements WHERE name = 'leftover') OR EXISTS (SELECT FROM pg_cursors WHERE name = 'held') THEN
    RAISE 'a statement or cursor leaked';
  END IF;});
run_paused(in_turn(900, qw(locker holder unlocked)), qw(locker holder unlocked));
outcome_is('locker', 'completed - 300', 'locks are got');
outcome_is('holder', 'completed - 300', 'statements are prepared, cursors held');
outcome_is('unlocked', 'completed - 300', 'and gone before the next job');

# ---------- notifications ----------

type('notify', q{NOTIFY ping, 'same';});
type('pg_notify', q{PERFORM pg_notify('ping', 'same');});
my $listener = $node->background_psql('postgres');
$listener->query_safe('LISTEN ping');
run_paused(in_turn(200, qw(notify untouched)), qw(notify untouched));

# The number of notifications received, up to one that was sent after them
sub heard
{
	my $text = '';

	scalar_of(q{NOTIFY ping, 'last'});
	foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		$text .= $listener->query('SELECT pg_sleep(0.1)');
		last if $text =~ /payload "last"/;
	}
	return scalar(() = $text =~ /notification "ping" with payload "same"/g);
}

is(heard(), 100, 'equal notifications of 100 jobs are 100');
run_paused(in_turn(200, qw(pg_notify untouched)), qw(pg_notify untouched));
is(heard(), 100, "those of pg_notify(), too");
$listener->quit;

# ---------- one slow job ----------

scalar_of('CREATE TABLE passed (by int)');
type('mixed', q{IF p ? 'slow' THEN WHILE NOT EXISTS (SELECT FROM public.passed) LOOP PERFORM pg_sleep(0.01); END LOOP; END IF;});
my $normal = run_paused(in_turn(1000, qw(mixed untouched)), qw(mixed untouched));
my $slow;
scalar_of("SELECT jobq.pause_job_type(t) FROM unnest('{mixed,untouched}'::text[]) t");
scalar_of(in_turn(300, qw(mixed untouched)));
$slow = scalar_of(q{SELECT jobq.enqueue('mixed', '{"slow": true}')});
scalar_of(in_turn(700, qw(mixed untouched)));
my $began = scalar_of('SELECT clock_timestamp()');
scalar_of("SELECT jobq.resume_job_type(t) FROM unnest('{mixed,untouched}'::text[]) t");
wait_for_sql($node, "SELECT count(*) = 1 AND min(id::text) = '$slow' FROM jobq.queue", 'no job waits for a slow one');
my $delayed = scalar_of("SELECT extract(epoch FROM max(completed_at) - '$began') FROM jobq.jobs
  WHERE job_type IN ('mixed', 'untouched') AND id <> '$slow'");
note sprintf 'a thousand short jobs took %.2f s beside one that did not end, %.2f s without it', $delayed, $normal;
scalar_of('INSERT INTO passed VALUES (1)');
wait_status($node, 'postgres', $slow, 'completed', 'which runs to its end');
is(scalar_of("SELECT attempts || ' ' || (SELECT count(*) FROM jobq.events WHERE job_id = '$slow') FROM jobq.jobs WHERE id = '$slow'"),
	'1 0', 'and the slow one was not charged for being so');
is(scalar_of("SELECT count(*) FROM jobq.jobs WHERE attempts <> 1"), 0, 'no job was charged');

# ---------- after a slow run a type runs alone, for two seconds ----------

scalar_of('CREATE TABLE stamps (round int, xact text, at timestamptz)');
type('stamped', q{IF p ? 'slow' THEN PERFORM pg_sleep(0.2); END IF;
  INSERT INTO public.stamps VALUES ((p->>'round')::int, pg_current_xact_id(), clock_timestamp());});
my $rounds = 0;

# How many transactions sixty short jobs take
sub transactions
{
	$rounds++;
	run_paused(qq{SELECT count(*) FROM jobq.enqueue_many('stamped', array_fill('{"round": $rounds}'::jsonb, '{60}'))}, 'stamped');
	return scalar_of("SELECT count(DISTINCT xact) FROM stamps WHERE round = $rounds");
}

sub share_commits
{
	my ($what) = @_;

	foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		return pass($what) if transactions() < 60;
	}
	return fail($what);
}

my $alone = 0;
# on a stalled machine the two seconds may pass before the sixty have run: then the result proves
# nothing
foreach my $try (1 .. 20)
{
	share_commits("sixty short jobs share commits, before a slow run ($try)");
	my $id = scalar_of(q{SELECT jobq.enqueue('stamped', '{"slow": true}')});
	wait_status($node, 'postgres', $id, 'completed', 'the slow one');
	$alone = transactions();
	last if scalar_of("SELECT (SELECT max(at) FROM stamps WHERE round = $rounds) < completed_at + interval '2 s'
	  FROM jobq.jobs WHERE id = '$id'") eq 't';
}
is($alone, 60, 'right after it each has a commit of its own');
share_commits('later they share commits again');

# ---------- runs that get longer, none of them long ----------

# a separate role: it has one worker when the jobs are handed out
scalar_of('CREATE ROLE later LOGIN');
type('longer', q{PERFORM pg_sleep((p->>'s')::float8);}, q{run_as => 'later', max_attempts => 1});
scalar_of('GRANT EXECUTE ON FUNCTION longer TO later');
my $workers = 0;
# once is enough: on a stalled machine the others may come too late
foreach my $try (1 .. 10)
{
	for (1 .. 6)
	{
		my $id = scalar_of(q{SELECT jobq.enqueue('longer', '{"s": 0}')});
		wait_status($node, 'postgres', $id, 'completed', 'a short run');
	}
	scalar_of(qq{SELECT count(*) FROM jobq.enqueue_many('longer', array_fill('{"s": 0.06, "try": $try}'::jsonb, ARRAY[40]))});
	$node->poll_query_until('postgres', 'SELECT NOT EXISTS (SELECT FROM jobq.queue)') or fail('jobs are left');
	$workers = scalar_of("SELECT count(DISTINCT worker) FROM jobq.jobs WHERE job_type = 'longer' AND payload->>'try' = '$try'");
	last if $workers > 1;
}
cmp_ok($workers, '>', 1, "what was handed to one worker goes to others ($workers)");

# ---------- cancelled all at once: hundreds have begun, and are not committed ----------

type('bulk', 'NULL;');
foreach my $call (q{cancel_jobs('bulk', include_running => true)}, q{purge_tenant('acme')}, q{drop_job_type('bulk', force => true)})
{
	my $cancelled = 0;

	# they end soon, and the session may be delayed
	foreach my $try (1 .. 20)
	{
		scalar_of(q{SELECT jobq.create_job_type('bulk', 'bulk(jsonb)', max_attempts => 1) WHERE NOT EXISTS (SELECT FROM jobq.job_types WHERE name = 'bulk' AND dropped_at IS NULL)});
		is(errors_of($node, 'postgres', "DELETE FROM jobq.history; SELECT count(*) FROM jobq.enqueue_many('bulk', array_fill('{}'::jsonb, '{60000}'), tenant => 'acme'); SELECT jobq.$call"), '00000', "$call while they run");
		$node->poll_query_until('postgres', 'SELECT NOT EXISTS (SELECT FROM jobq.queue)') or fail("$call: jobs are left");
		last if $call =~ /purge/;
		is(scalar_of("SELECT count(*) FROM jobq.jobs WHERE job_type = 'bulk' AND status IN ('completed', 'cancelled')"), 60000, "$call: none is missing");
		$cancelled = scalar_of("SELECT count(*) FROM jobq.jobs WHERE job_type = 'bulk' AND status = 'cancelled'");
		last if $cancelled > 0;
	}
	cmp_ok($cancelled, '>', 0, "$call: some were cancelled") unless $call =~ /purge/;
}

$node->stop;
done_testing();
