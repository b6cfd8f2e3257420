# jobq.why and what a caller may see: jobs of other tenants do not exist for it, and are named in no
# answer.  Callers in a loop do not slow the dispatcher.  A standby answers for itself.

use strict;
use warnings;

use IPC::Run ();
use JSON::PP ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('why_rights', 'jobq.max_sql_workers = 4', 'fsync = off', 'max_connections = 60', 'hot_standby_feedback = on');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE TABLE gate (name text);
CREATE FUNCTION waits(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  WHILE NOT EXISTS (SELECT FROM public.gate WHERE name = p->>'gate') AND p ? 'gate' LOOP
    PERFORM pg_sleep(0.01);
  END LOOP;
END $$;
SELECT jobq.create_job_type('mail', 'waits(jsonb)'), jobq.create_job_type('secret', 'waits(jsonb)'), jobq.create_job_type('one', 'waits(jsonb)', max_concurrent => 1);
SELECT jobq.create_job_type('fifo', 'waits(jsonb)', options => '{"key_order": "fifo"}');
CREATE ROLE reader LOGIN; CREATE ROLE app LOGIN; CREATE ROLE worker LOGIN; CREATE ROLE boss LOGIN; CREATE ROLE stranger LOGIN;
SELECT jobq.grant_access('reader', 'read', 'acme'), jobq.grant_access('app', 'enqueue', 'acme'), jobq.grant_access('worker', 'work', 'acme'),
  jobq.grant_access('boss', 'admin');
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub sql { return $node->safe_psql('postgres', $_[0]); }

sub as
{
	my ($role, $sql) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', $sql, extra_params => [ '-U', $role, '-v', 'VERBOSITY=sqlstate' ], on_error_stop => 1);

	return $rc == 0 ? $out : $err =~ /ERROR:\s+(\w{5})/ ? $1 : $err;
}

# ---------- jobs of others ----------

my $own = sql(q{SELECT jobq.enqueue('mail', delay => '1h', tenant => 'acme')});
my $below = sql(q{SELECT jobq.enqueue('mail', delay => '1h', tenant => 'acme/eu')});
my $foreign = sql(q{SELECT jobq.enqueue('mail', delay => '1h', tenant => 'beta')});
my $enqueued = as('app', q{SELECT jobq.enqueue('mail', delay => '1h', tenant => 'acme')});
is(as('reader', "SELECT jobq.why('$_')->'reasons'->0->>'code'"), 'scheduled', 'a reader sees its tenant') foreach $own, $below, $enqueued;
is(as('reader', "SELECT jobq.why('$foreign')"), 'P0002', 'and no other');
is(as('boss', "SELECT jobq.why('$foreign')->'reasons'->0->>'code'"), 'scheduled', 'an administrator sees all');
is(as($_, "SELECT jobq.why('$own')"), '42501', "$_ has no right to call it") foreach 'app', 'worker', 'stranger';
is(as('reader', "SET search_path = pg_temp; SET enable_indexscan = off; SELECT jobq.why('$own')->>'status'"), "pending", 'settings of the caller change nothing');

# the holder of a key: a job of another type, of the caller's tenant or of none
my $holder = sql(q{SELECT jobq.enqueue('mail', '{"gate": "a"}', tenant => 'acme', concurrency_key => 'k')});
wait_status($node, 'postgres', $holder, 'running');
my $id = sql(q{SELECT jobq.enqueue('mail', tenant => 'acme', concurrency_key => 'k')});
is(as('reader', "SELECT r->>'holder' FROM jsonb_array_elements(jobq.why('$id')->'reasons') r WHERE r->>'code' = 'key'"), $holder, 'a holder in sight');
sql(q{SELECT jobq.grant_access('reader', 'read', 'beta', '{mail}')});
sql(qq{SELECT jobq.enqueue('secret', '{"gate": "b"}', tenant => 'beta', concurrency_key => 'k2')});
wait_for_sql($node, q{SELECT count(*) = 1 FROM jobq.jobs WHERE job_type = 'secret' AND status = 'running'}, 'a job of a type that is not the reader\'s');
$id = sql(q{SELECT jobq.enqueue('mail', tenant => 'beta', concurrency_key => 'k2')});
is(as('boss', "SELECT r->>'holder' IS NOT NULL FROM jsonb_array_elements(jobq.why('$id')->'reasons') r WHERE r->>'code' = 'key'"), 't', 'its holder is named to some');
is(as('reader', "SELECT r->>'holder' IS NULL FROM jsonb_array_elements(jobq.why('$id')->'reasons') r WHERE r->>'code' = 'key'"), 't', 'and not to others');

# a limit that others use up: their number is known, nothing else
sql(q{SELECT jobq.enqueue('one', '{"gate": "c"}', tenant => 'hidden customer'), jobq.enqueue('one', tenant => 'hidden customer')});
wait_for_sql($node, q{SELECT count(*) = 1 FROM jobq.jobs WHERE job_type = 'one' AND status = 'running'}, 'the limit is full');
$id = sql(q{SELECT jobq.enqueue('one', tenant => 'acme')});
my $answer = as('reader', "SELECT jobq.why('$id')");
is(JSON::PP->new->decode($answer)->{ahead}{n}, 1, 'jobs of others are ahead');
unlike($answer, qr/hidden|$foreign/, 'they have no name');
is(sql("SELECT jobq.cancel_jobs('one', include_running => true)"), '3', 'the limit is free again');

# ---------- rows of the caller's own transaction, isolation ----------

is(sql("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT jobq.why('$own')->'reasons'->0->>'code'; COMMIT"), 'scheduled', 'REPEATABLE READ');
is(sql("BEGIN READ ONLY; SELECT jobq.why('$own')->'reasons'->0->>'code'; COMMIT"), 'scheduled', 'READ ONLY');

# ---------- callers in a loop ----------

my @waiting = split /\n/, sql(q{SELECT jobq.enqueue('mail', delay => '1h', tenant => 'acme') FROM generate_series(1, 20)});
my @loops = map {
	IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-U', 'reader', '-c',
			"DO \$\$ BEGIN LOOP PERFORM jobq.why('$waiting[$_ % 20]'); END LOOP; END \$\$" ], '<', \undef, '>', \my $out, '2>', \my $err)
} 1 .. 20;
wait_for_sql($node, q{SELECT count(*) = 20 FROM pg_stat_activity WHERE usename = 'reader' AND query LIKE 'DO%'}, 'twenty sessions ask without end');
my $n = 200;
my $seconds = seconds_of
{
	sql("SELECT jobq.enqueue('mail', tenant => 'acme') FROM generate_series(1, $n)");
	wait_for_sql($node, qq{SELECT count(*) = $n FROM jobq.history h JOIN jobq.job_types t ON t.id = h.type_id AND t.name = 'mail' WHERE h.status = 'completed'}, 'jobs run meanwhile');
};
cmp_ok($seconds, '<', 30, 'the dispatcher has time for them');
my $asked = sql(q{SELECT jobq.why(id)->>'status' FROM jobq.queue ORDER BY id LIMIT 1});
ok($asked ne '', 'another caller has its answer');
is(sql("SELECT jobq.health()->'checks'->'dispatcher'->>'status'"), 'healthy', 'the dispatcher is healthy');
sql(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'reader'});
$_->finish foreach @loops;
is(as('reader', "SELECT jobq.why('$own')->'reasons'->0->>'code'"), 'scheduled', 'sessions that were terminated have left their places');

# a cancel ends the wait
my $pid = dispatcher($node, 'postgres');
freeze($node, $pid);
is(as('reader', "SET statement_timeout = '200ms'; SELECT jobq.why('$own')"), '57014', 'statement_timeout ends the wait for an answer');
is(as('reader', "SELECT jobq.why('$own')->'reasons'->0->>'code'"), 'dispatcher', 'without it the dispatcher is the reason');
kill 'CONT', $pid;
is(as('reader', "SELECT jobq.why('$own')->'reasons'->0->>'code'"), 'scheduled', 'it goes on');

# ---------- a standby ----------

$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('why_standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
$node->wait_for_catchup($standby, 'replay');
is($standby->safe_psql('postgres', "SELECT jobq.why('$own')->'reasons'->0->>'message'"), 'this server is a standby: jobs run on the primary', 'a standby says so');
is($standby->safe_psql('postgres', "SELECT jobq.why(id)->>'status' FROM jobq.history WHERE status = 'completed' LIMIT 1"), 'completed', 'ended jobs have their status');
sqlstate_is($standby, 'postgres', 'SELECT jobq.why(gen_random_uuid())', 'P0002', 'unknown ones are unknown');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM jobq.error_groups()'), '0', 'error_groups reads there');
is($standby->safe_psql('postgres', q{SELECT jsonb_typeof(jobq.resources()->'running')}), 'array', 'and resources');
sqlstate_is($standby, 'postgres', "SELECT jobq.pause_job_type('mail')", '25006', 'a management call is refused');
$standby->stop;
$node->stop;
done_testing();
