# options.lease_follows_connection: the end of the connection that claimed a job ends its lease.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('connections', 'max_connections = 40', 'fsync = off',
	"jobq.sweep_interval = '1h'");    # no sweep finds the end of a connection
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
SELECT jobq.create_job_type('bound', max_attempts => 20, backoff_base => '0', max_concurrent => 1, options => '{"lease_follows_connection": true}'),
  jobq.create_job_type('free', max_attempts => 20, backoff_base => '0');
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub one { return $node->safe_psql('postgres', $_[0]); }

sub session { return $node->background_psql('postgres', on_error_stop => 0); }

# Claims a job of the type in a session, which keeps id and token in `claims`.
sub claim
{
	my ($session, $type) = @_;

	return is($session->query_safe("INSERT INTO claims SELECT id, lease_token, job_type FROM jobq.claim('{$type}', lease => '30min', wait => '10s');
		SELECT count(*) FROM jobq.queue WHERE status = 'running' AND type_id = (SELECT id FROM jobq.job_types WHERE name = '$type')"), 1,
		"a job of type $type is claimed");
}

my $charged = 0;

# True once the job of type bound waits again, its attempt failed.
sub is_freed
{
	my ($how) = @_;

	$charged++;
	wait_for_sql($node, "SELECT status = 'retry' AND attempts = $charged AND error_code = 'lease_expired' FROM jobq.jobs WHERE job_type = 'bound'", "$how: the job is freed");
	is(one("SELECT error_msg FROM jobq.jobs WHERE job_type = 'bound'"), 'the lease has ended: the connection that claimed the job is gone', "$how: the reason");
	return is(one("SELECT string_agg(jobq.heartbeat(id, token), ',') FROM claims WHERE type = 'bound'"), join(',', ('lost') x $charged), "$how: the token is lost");
}

one(q{CREATE TABLE claims (id uuid, token uuid, type text); SELECT jobq.enqueue('bound'), jobq.enqueue('free')});
my $s = session();
claim($s, 'bound');
claim($s, 'free');
is(one(q{SELECT string_agg(jobq.heartbeat(id, token), ',') FROM claims}), 'ok,ok', 'another connection sends heartbeats');
$s->quit;
is_freed('the client has closed its connection');
is(one(q{SELECT status, attempts FROM jobq.jobs WHERE job_type = 'free'}), 'running|1', 'a lease without the option goes on');

$s = session();
claim($s, 'bound');
$s->{run}->kill_kill;
is_freed('kill -9 of the client');

$s = session();
my $pid = $s->query_safe('SELECT pg_backend_pid()');
claim($s, 'bound');
one("SELECT pg_terminate_backend($pid)");
is_freed('pg_terminate_backend');
eval { $s->quit };

# ---------- a new dispatcher ----------

$s = session();
claim($s, 'bound');
my ($former) = jobq_pids($node, 'dispatcher');
one("SELECT pg_terminate_backend($former)");
wait_dispatcher($node, 'postgres', 'another dispatcher', $former);
one(q{SELECT jobq.health()});
is(one(q{SELECT status FROM jobq.jobs WHERE job_type = 'bound'}), 'running', 'a new dispatcher keeps the lease of a session that is there');
is(one(q{SELECT count(*) FROM jobq.claim('{bound}')}), 0, 'which counts');
$s->quit;
is_freed('the end of the connection after that');

# ---------- a claim that is not committed ----------

$s = session();
$s->query_safe(q{BEGIN; SELECT FROM jobq.claim('{bound}', wait => '10s')});
$s->{run}->kill_kill;
wait_for_sql($node, q{SELECT count(*) = 0 FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'}, 'its session has ended');
$s = session();
claim($s, 'bound');
is(one(q{SELECT attempts FROM jobq.jobs WHERE job_type = 'bound'}), $charged + 1, 'a claim before COMMIT is given back uncharged');

# ---------- restarts ----------

$node->restart;
wait_dispatcher($node, 'postgres', 'the dispatcher runs after a restart');
is_freed('a restart of the server');
is(one(q{SELECT status FROM jobq.jobs WHERE job_type = 'free'}), 'running', 'which the other lease survives');
eval { $s->quit };
$s = session();
claim($s, 'bound');
$node->stop('immediate');
$node->start;
wait_dispatcher($node, 'postgres', 'the dispatcher runs after a crash');
is_freed('a crash of the server');
eval { $s->quit };

# ---------- ends ----------

$s = session();
claim($s, 'bound');
is(one(q{SELECT bool_or(jobq.complete(id, token)) FROM claims WHERE type = 'bound'}), 't', 'another connection completes the job');
$s->quit;
is(one(q{SELECT status FROM jobq.jobs WHERE job_type = 'bound'}), 'completed', 'it stays completed');
done_testing();
