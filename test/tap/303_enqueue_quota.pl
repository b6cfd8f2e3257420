# Quotas of tenants under concurrency: never exceeded, no enqueue is refused while there is room or
# waits for the end of another transaction; restarts, crashes and prepared transactions change
# nothing.

use strict;
use warnings;

use IPC::Run ();
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('quota', 'jobq.max_sql_workers = 2');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE FUNCTION ok(p jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT p';
SELECT jobq.create_job_type('held', 'ok(jsonb)'), jobq.create_job_type('runs', 'ok(jsonb)');
SELECT jobq.pause_job_type('held');
SELECT jobq.set_tenant_quota('acme', max_live => 10);
CREATE TABLE seen (n int);
-- enqueues, some of which are rolled back, and cancels; notes how many jobs there are
CREATE PROCEDURE hammer(rounds int) LANGUAGE plpgsql AS $$
BEGIN
  FOR i IN 1..rounds LOOP
    BEGIN
      PERFORM jobq.enqueue('held', tenant => 'acme/' || i % 3, unique_key => CASE WHEN i % 7 = 0 THEN 'key' END);
      PERFORM jobq.enqueue('held', tenant => 'acme');
      IF i % 5 = 0 THEN RAISE SQLSTATE 'XX001'; END IF;
    EXCEPTION WHEN SQLSTATE '53400' OR SQLSTATE 'XX001' THEN
      NULL;
    END;
    IF random() < 0.2 THEN ROLLBACK; ELSE COMMIT; END IF;
    PERFORM jobq.cancel_job(id) FROM (SELECT id FROM jobq.queue ORDER BY random() LIMIT 1) q WHERE random() < 0.5;
    COMMIT;
    INSERT INTO seen SELECT count(*) FROM jobq.queue;
    COMMIT;
  END LOOP;
END $$;
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub sql
{
	my ($text) = @_;

	return $node->safe_psql('postgres', $text);
}

sub enqueue
{
	my ($tenant, $type) = @_;

	return errors_of($node, 'postgres', sprintf q{SELECT jobq.enqueue('%s', tenant => '%s')}, $type // 'held', $tenant);
}

# Fills the quota one by one, and returns the number of jobs.
sub fill
{
	my $n = 0;

	$n++ while $n < 20 && enqueue('acme') eq '00000';
	return $n;
}

# ---------- many at once ----------

my $seed = seed();
my @sessions = map {
	IPC::Run::start([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'), '-c', setseed($seed, $_), '-c', 'CALL hammer(150)' ],
		'<', \undef, '>', \my $out, '2>', \my $err)
} 1 .. 6;
ok((grep { $_->finish } @sessions) == 6, 'six sessions enqueue, roll back and cancel');
cmp_ok(sql('SELECT max(n) FROM seen'), '<=', 10, 'never more than the quota');
cmp_ok(sql('SELECT count(*) FROM seen'), '==', 900, 'seen often');
my $live = sql('SELECT count(*) FROM jobq.queue');
is(fill(), 10 - $live, 'and all the room that is left is there');
cmp_ok(sql('SELECT count(*) FROM jobq.quota_jobs'), '<', 100, 'what counts is not piled up');

# ---------- transactions of others ----------

sql('SELECT jobq.cancel_jobs(payload_contains => \'{}\')');
my $open = $node->background_psql('postgres', on_error_stop => 1);
$open->query_safe(q{BEGIN; SELECT jobq.enqueue('held', tenant => 'acme') FROM generate_series(1, 8)});
is($node->safe_psql('postgres', q{SET lock_timeout = '30s'; SELECT jobq.enqueue('held', tenant => 'acme') IS NOT NULL}), 't', 'an open transaction does not block');
is(enqueue('acme'), '00000', 'its jobs count');
is(enqueue('acme'), '53400', 'up to the quota');
$open->query_safe('ROLLBACK');
is(fill(), 8, 'rolled-back ones do not');
$open->query_safe(q{BEGIN; SELECT jobq.cancel_jobs(payload_contains => '{}')});
is(enqueue('acme'), '53400', 'jobs that it cancels count');
$open->query_safe('COMMIT');
is(fill(), 10, 'until it has committed');

sub bytes { return errors_of($node, 'postgres', "SELECT jobq.enqueue('held', to_jsonb(repeat('x', $_[0])), tenant => 'bytes')"); }
sql(q{SELECT jobq.set_tenant_quota('bytes', max_bytes => 100), jobq.enqueue('held', to_jsonb(repeat('x', 8)), tenant => 'bytes', unique_key => 'k')});
$open->query_safe(q{BEGIN; SELECT jobq.enqueue('held', to_jsonb(repeat('x', 88)), tenant => 'bytes', unique_key => 'k', on_conflict => 'replace')});
is(bytes(28), '53400', 'a replacing payload counts');
is(bytes(8), '00000', 'in its place');
$open->query_safe('ROLLBACK');
is(bytes(78), '00000', 'until it is rolled back');
is(bytes(0), '53400', 'then the former payload counts');
sql(q{SELECT jobq.cancel_jobs(tenant => 'bytes')});
$open->quit;

# prepared
sql('SELECT jobq.cancel_jobs(payload_contains => \'{}\')');
sql(q{BEGIN; SELECT jobq.enqueue('held', tenant => 'acme') FROM generate_series(1, 9); PREPARE TRANSACTION 'nine'});
is(fill(), 1, 'a prepared transaction\'s jobs count');
$node->restart;
is(enqueue('acme'), '53400', 'after a restart, too');
sql(q{ROLLBACK PREPARED 'nine'});
is(fill(), 9, 'until it is rolled back');

# ---------- the server ends ----------

$node->stop('immediate');
$node->start;
is(enqueue('acme'), '53400', 'a crash forgets nothing');
sql(q{SELECT jobq.cancel_jobs(payload_contains => '{}')});
is(fill(), 10, 'and invents nothing');

# jobs that run and end make room
sql(q{SELECT jobq.set_tenant_quota('runner', max_live => 3)});
my $ran = 0;
foreach (1 .. 30)
{
	$ran++ if $node->poll_query_until('postgres', q{SELECT count(*) < 3 FROM jobq.queue WHERE tenant = 'runner'}) && enqueue('runner', 'runs') eq '00000';
}
is($ran, 30, 'jobs that end make room');

# ---------- enqueues per minute ----------

sql(q{SELECT jobq.set_tenant_quota('rate', enqueues_per_minute => 50)});
sql(<<'END');
CREATE TABLE admitted (at timestamptz DEFAULT clock_timestamp());
CREATE PROCEDURE enqueue_fast() LANGUAGE plpgsql AS $$
BEGIN
  FOR i IN 1..40 LOOP
    BEGIN
      PERFORM jobq.enqueue('held', tenant => 'rate');
      INSERT INTO admitted DEFAULT VALUES;
    EXCEPTION WHEN SQLSTATE '53400' THEN
      NULL;
    END;
    COMMIT;
  END LOOP;
END $$;
END
@sessions = map {
	IPC::Run::start([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'), '-c', 'CALL enqueue_fast()' ],
		'<', \undef, '>', \my $out, '2>', \my $err)
} 1 .. 4;
ok((grep { $_->finish } @sessions) == 4, 'four sessions enqueue 160 jobs');
is(sql(q{SELECT count(*) <= 50 OR max(at) - min(at) > '60 s' FROM admitted}), 't', 'fifty in a minute are admitted');
cmp_ok(sql('SELECT count(*) FROM admitted'), '>=', 50, 'no fewer');
is(sql(q{SELECT count(*) FROM jobq.quota_jobs WHERE tenant = 'rate'}), 0, 'a rate keeps no rows');
is(enqueue('other'), '00000', 'another tenant has no quota');

# ---------- a quota is changed while its tenant enqueues ----------

sql(<<'END');
SELECT jobq.set_tenant_quota('busy', max_live => 100000);
CREATE TABLE stop ();
CREATE PROCEDURE enqueue_until_stop() LANGUAGE plpgsql AS $$
DECLARE
  jobs uuid[];
BEGIN
  WHILE NOT EXISTS (SELECT FROM stop) LOOP
    jobs := '{}';
    FOR i IN 1..20 LOOP
      jobs := jobs || jobq.enqueue('held', tenant => 'busy', concurrency_key => 'key');
      COMMIT;
    END LOOP;
    DELETE FROM jobq.queue WHERE id = ANY (jobs);
    COMMIT;
  END LOOP;
END $$;
END
my @errors = ('') x 6;
@sessions = map {
	IPC::Run::start([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'), '-c', 'CALL enqueue_until_stop()' ],
		'<', \undef, '>', \my $out, '2>', \$errors[$_])
} 0 .. 5;
wait_for_sql($node, q{SELECT count(*) > 40 FROM jobq.queue WHERE tenant = 'busy'}, 'sessions enqueue');
push @errors, errors_of($node, 'postgres', join ';', map { "SELECT jobq.set_tenant_quota('busy', max_live => 100000 + $_)" } 1 .. 60);
sql('INSERT INTO stop DEFAULT VALUES');
ok((grep { $_->finish } @sessions) == 6, 'six of them, to the end');
is(join('', @errors), '00000', 'enqueues and a change of the quota do not block each other');

unlike(slurp_file($node->logfile), qr/PANIC|TRAP:|exited with exit code ([2-9]|\d\d)|by signal/, 'no process was hurt');
# A count that is cancelled leaves what was known.
$node->safe_psql('postgres', q{SELECT jobq.set_tenant_quota('wide', max_live => 20000);
  SELECT jobq.enqueue_many('held', array_fill('{}'::jsonb, ARRAY[20000]), tenant => 'wide')});
my $cancelled = 0;
foreach my $ms (1 .. 400)
{
	my ($rc, $out, $err) = $node->psql('postgres', "SET statement_timeout = '" . (1 + $ms % 40) . "ms'; SELECT jobq.enqueue('held', tenant => 'wide')");
	last if $err =~ /statement timeout/ && ++$cancelled >= 5;
}
cmp_ok($cancelled, '>=', 1, "counts were cancelled: $cancelled");
sqlstate_is($node, 'postgres', q{SELECT jobq.enqueue_many('held', array_fill('{}'::jsonb, ARRAY[100]), tenant => 'wide')}, '53400', 'the quota is full as before');

# ---------- more tenants than there is room for ----------

$node->safe_psql('postgres', "SELECT jobq.set_tenant_quota(tenant) FROM jobq.tenant_quotas");
$node->safe_psql('postgres', "SELECT jobq.set_tenant_quota('many-' || i, enqueues_per_minute => 1) FROM generate_series(1, 1024) i");
sqlstate_is($node, 'postgres', "SELECT jobq.set_tenant_quota('one too many', enqueues_per_minute => 1)", '53400', 'more than 1,024 tenants with a quota');
$node->safe_psql('postgres', "SELECT jobq.set_tenant_quota('many-' || i) FROM generate_series(1, 512) i");
$node->safe_psql('postgres', "SELECT jobq.set_tenant_quota('more-' || i, enqueues_per_minute => 1) FROM generate_series(1, 512) i");
is($node->safe_psql('postgres', <<'END'), '1024', 'each of them has the enqueue it may have');
CREATE FUNCTION enqueues(tenant text) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
  FOR i IN 0..2 LOOP
    BEGIN
      PERFORM jobq.enqueue('held', tenant => enqueues.tenant);
    EXCEPTION WHEN SQLSTATE '53400' THEN
      RETURN i;
    END;
  END LOOP;
  RETURN 3;
END $$;
SELECT sum(enqueues(tenant)) FROM jobq.tenant_quotas;
END

$node->stop;
done_testing();
