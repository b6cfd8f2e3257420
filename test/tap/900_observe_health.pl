# jobq.health(): the status of every part, and the reason when no job runs.

use strict;
use warnings;

use JSON::PP ();
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $json = JSON::PP->new;
# an answer after 100 ms is degraded: a loaded machine is as slow
my $node = jobq_server('health', 'jobq.health_dead_letters = 3', 'max_connections = 50', 'jobq.health_latency = 10s');
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION jobq');
sleeper_types($node, 'postgres');
$node->safe_psql('postgres', <<'END');
CREATE FUNCTION broken(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'broken'; END $$;
SELECT jobq.create_job_type('broken', 'broken(jsonb)', max_attempts => 1);
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub health
{
	my ($db, $latency) = @_;
	my $set = defined $latency ? "SET jobq.health_latency = '$latency'; " : '';

	return $json->decode($node->safe_psql($db // 'postgres', $set . 'SELECT jobq.health()'));
}

# ---------- shape ----------

my $h = health();
is($h->{status}, 'healthy', 'all is well') or diag explain $h;
is_deeply([ sort keys %$h ], [qw(checks details status)], 'three parts');
is_deeply([ sort keys %{ $h->{checks} } ],
	[qw(dead_letters disk dispatcher helper horizon identity notify_queue queues schedules slots workers)], 'eleven checks');
is_deeply([ sort keys %{ $h->{details} } ],
	[qw(active_workers dead_letter_count oldest_waiting_job total_queues)], 'four details');
is($h->{checks}{$_}{status}, 'healthy', "$_ is healthy") foreach sort keys %{ $h->{checks} };
my %members = (dispatcher => [qw(latency_ms status)], workers => [qw(can_start claimed count long_handlers status)],
	queues => [qw(oldest_waiting_s paused status stopped)], dead_letters => [qw(count status)]);
is_deeply([ sort keys %{ $h->{checks}{$_} } ], $members{$_}, "members of $_") foreach sort keys %members;
cmp_ok($h->{checks}{dispatcher}{latency_ms}, '>', 0, 'the dispatcher has answered');
is($h->{checks}{workers}{can_start}, 5 - $h->{checks}{workers}{count}, 'four SQL workers and one for tools could run');
is($h->{details}{total_queues}, 4, 'job types are counted');

# ---------- dead letters ----------

my @dead = map { $node->safe_psql('postgres', "SELECT jobq.enqueue('broken')") } 1 .. 2;
wait_status($node, 'postgres', $_, 'error') foreach @dead;
$h = health();
is($h->{checks}{dead_letters}{status} . $h->{checks}{dead_letters}{count}, 'degraded2', 'two dead letters: degraded');
is($h->{status}, 'degraded', 'so is the whole');
is($h->{details}{dead_letter_count}, 2, 'counted in the details');
my $since = q{(jobq.health() #>> '{checks,%s,since}')::timestamptz};
is($node->safe_psql('postgres', sprintf("SELECT $since = min(completed_at) FROM jobq.dead_letters", 'dead_letters')), 't', 'since the first of them');
wait_status($node, 'postgres', $node->safe_psql('postgres', "SELECT jobq.enqueue('broken')"), 'error');
is(health()->{status}, 'unhealthy', 'three are unhealthy');
$node->safe_psql('postgres', q{SELECT jobq.purge_dead_letters(older_than => '0')});
is(health()->{status}, 'healthy', 'none are healthy') or diag($node->safe_psql('postgres', 'SELECT jobq.health()'));

# ---------- queues ----------

$node->safe_psql('postgres', "SELECT jobq.enqueue('sleeper', delay => '1 day')");
$h = health();
is($h->{checks}{queues}{oldest_waiting_s}, undef, 'a job that is not due does not wait');
$node->safe_psql('postgres', "SELECT jobq.pause_job_type('sleeper', 'a test')");
$h = health();
is($h->{checks}{queues}{paused} . $h->{status}, '1healthy', 'a paused type is counted, and nothing waits for it');
my $waits = $node->safe_psql('postgres', "SELECT jobq.enqueue('sleeper')");
$h = health();
is($h->{checks}{queues}{status}, 'degraded', 'now a job waits for it');
like($h->{checks}{queues}{message}, qr/paused/, 'health() reports it');
is($node->safe_psql('postgres', sprintf("SELECT $since = paused_at FROM jobq.job_types WHERE name = 'sleeper'", 'queues')), 't', 'since its pause');
$node->safe_psql('postgres', "SELECT jobq.stop_all('a test')");
is($node->safe_psql('postgres', sprintf("SELECT $since = since FROM jobq.stopped", 'queues')), 't', 'or since all jobs were stopped');
$node->safe_psql('postgres', "SELECT jobq.start_all()");
$node->safe_psql('postgres', "SELECT jobq.resume_job_type('sleeper')");
wait_status($node, 'postgres', $waits, 'completed');
is(health()->{status}, 'healthy', 'and not any more');

# four workers are busy: the fifth job waits, and the oldest of all lanes is the one named
my @busy = map { $node->safe_psql('postgres', q{SELECT jobq.enqueue('sleeper', '{"seconds": 600}')}) } 1 .. 4;
wait_status($node, 'postgres', $_, 'running') foreach @busy;
my @waiting = map {
	$node->safe_psql('postgres', "SELECT jobq.enqueue('sleeper', '{\"seconds\": 600}', priority => $_)")
} 0, 5, -5;
wait_for_sql($node, "SELECT (jobq.health()->'checks'->'queues'->>'oldest_waiting_s')::float8 > 0.3", 'the oldest ages');
$h = health();
is($h->{details}{oldest_waiting_job}, $waiting[0], 'it is named') or diag explain [ \@busy, \@waiting ];
is($h->{details}{active_workers}, $h->{checks}{workers}{count}, 'workers are counted');
cmp_ok($h->{checks}{workers}{count}, '>=', 4, 'all of them');
wait_for_sql($node, q{SELECT jobq.health()->'checks'->'workers'->'long_handlers' = '4' FROM set_config('jobq.long_handler', '1ms', true)},
	'their handlers are long');
is($node->safe_psql('postgres', "SET jobq.long_handler = $_; SELECT jobq.health()->'checks'->'workers'->'long_handlers'"), 0, "or not: $_")
	foreach "'1d'", 0;
$node->safe_psql('postgres', "SELECT jobq.cancel_jobs('sleeper', include_running => true)");
wait_status($node, 'postgres', $_, 'cancelled') foreach @busy;

# ---------- the holder of the horizon ----------

my $holder = $node->background_psql('postgres');
my $pid = $holder->query_safe('SELECT pg_backend_pid()');
$holder->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
$node->safe_psql('postgres', 'CREATE TABLE x AS SELECT 1; DROP TABLE x');
# other sessions may hold it briefly
wait_for_sql($node, q{SELECT jobq.health() #>> '{checks,horizon,holder}' LIKE 'client backend with PID } . $pid . q{ %'}, 'a session holds it');
$h = health();
like($h->{checks}{horizon}{holder}, qr/client backend with PID $pid \(idle in transaction\)/, 'a session is named');
cmp_ok($h->{checks}{horizon}{held_s}, '>=', 0, 'and for how long');
$holder->query_safe('ROLLBACK');
$holder->quit;
$node->safe_psql('postgres', "BEGIN; CREATE TABLE y (); PREPARE TRANSACTION 'held'");
$node->safe_psql('postgres', 'CREATE TABLE x AS SELECT 1; DROP TABLE x');
wait_for_sql($node, q{SELECT jobq.health() #>> '{checks,horizon,holder}' LIKE 'prepared transaction %'}, 'a prepared transaction is named');
$node->safe_psql('postgres', "ROLLBACK PREPARED 'held'");

# A check whose cause has no time of its own: since a call has found it, in a row.
my $first = q{SET jobq.health_min_workers = 90; SELECT jobq.health() #>> '{checks,workers,since}'};
my $found = $node->safe_psql('postgres', "SELECT clock_timestamp(); $first");
my ($asked, $noted) = split /\n/, $found;
is($node->safe_psql('postgres', "SELECT timestamptz '$noted' BETWEEN '$asked' AND clock_timestamp()"), 't', 'too few workers, since this call');
is($node->safe_psql('postgres', $first), $noted, 'the next one says the same');
is($node->safe_psql('postgres', q{SELECT jobq.health()->'checks'->'workers' ? 'since'}), 'f', 'nothing while they are enough');
cmp_ok($node->safe_psql('postgres', "SELECT timestamptz '$noted' < '" . $node->safe_psql('postgres', $first) . q{'}), 'eq', 't', 'and then it begins again');

# ---------- rights ----------

$node->safe_psql('postgres', 'CREATE ROLE watcher LOGIN');
sqlstate_is($node, 'postgres', 'SET ROLE watcher; SELECT jobq.health()', '42501', 'a role without the right may not call it');
$node->safe_psql('postgres', 'GRANT EXECUTE ON FUNCTION jobq.health TO watcher; CREATE SCHEMA trap AUTHORIZATION watcher');
is($node->safe_psql('postgres', "SET ROLE watcher; SET search_path = trap; SELECT jobq.health()->>'status'"),
	'healthy', 'a role with EXECUTE needs no other right');
is($node->safe_psql('postgres', "SET ROLE watcher; SELECT jobq.health() IS NOT NULL, current_user, current_setting('enable_seqscan')"),
	't|watcher|on', 'and has its own role and settings afterwards');
is($node->safe_psql('postgres', "BEGIN READ ONLY; SELECT jobq.health()->>'status'"), 'healthy', 'also in a read-only transaction');

# ---------- the reason when no job runs ----------

# a command that needs the queue is running
my $session = $node->background_psql('postgres');
$session->query_safe('SET client_min_messages = warning; BEGIN; ALTER EXTENSION jobq UPDATE');
$h = health();
is($h->{checks}{dispatcher}{status}, 'healthy', 'a suspended dispatcher answers');
$session->query_safe('COMMIT');
$session->quit;

# a dispatcher that does not answer
my $dispatcher = dispatcher($node, 'postgres');
freeze($node, $dispatcher);
$h = health('postgres', '100ms');
is("$h->{checks}{dispatcher}{status} $h->{checks}{dispatcher}{message}", 'unhealthy the dispatcher does not answer',
	'a dispatcher that does not answer');
is($h->{checks}{dispatcher}{latency_ms}, undef, 'has no latency');
is($h->{status}, 'unhealthy', 'and makes the whole unhealthy');
kill 'CONT', $dispatcher;
wait_for_sql($node, "SELECT jobq.health()->>'status' = 'healthy'", 'it is back');

# the message about a dispatcher that takes at least so long, with the limit $latency
sub said_of_slow
{
	my ($latency, $takes) = @_;
	my $asks = $node->background_psql('postgres');
	my $answer;

	freeze($node, $dispatcher);
	$asks->query_safe("SET jobq.health_latency = '$latency'");
	$asks->query_until(qr/asking/, "\\echo asking\nSELECT 'dispatcher: ' || (jobq.health()->'checks'->'dispatcher')::text;\n\\echo answered\n");
	# it waits for the dispatcher, or has given up already, and then waits that long again
	wait_for_sql($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE '%dispatcher: %' AND pid <> pg_backend_pid()
	  AND (state = 'idle' OR wait_event_type = 'Extension')}, 'it is asked');
	my $asked = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
	wait_for_sql($node, "SELECT clock_timestamp() > timestamptz '$asked' + '$takes'", "$takes ago");
	kill 'CONT', $dispatcher;
	$answer = $asks->query_until(qr/answered/, '');
	$asks->quit;
	return $answer;
}

like(said_of_slow('100ms', '150ms'), qr/dispatcher: \{"since": "[^"]+", "status": "(degraded", "message": "the dispatcher is slower|unhealthy)/,
	'is slower than it should be') or diag 'more than a second counts as no answer';
like(said_of_slow('1min', '1100ms'), qr/dispatcher: \{"status": "healthy"/, 'may take longer than a second');

# no worker, and none may start
$node->safe_psql('postgres', 'CREATE DATABASE idle');
$node->safe_psql('idle', 'CREATE EXTENSION jobq');
wait_dispatcher($node, 'idle', 'another database has its dispatcher');
is(health('idle')->{checks}{workers}{status}, 'healthy', 'where workers can start, none has to run');
$node->safe_psql('idle', 'ALTER DATABASE idle SET jobq.max_sql_workers = 0');
$node->safe_psql('idle', 'SELECT jobq.reload()');
ok($node->poll_query_until('idle', q{SELECT jobq.health()->'checks'->'slots'->>'sql_workers' = '0 of 0'}), 'its new dispatcher has the setting');
$h = $json->decode($node->safe_psql('idle', 'SELECT jobq.health()'));
is("$h->{checks}{workers}{status} $h->{checks}{workers}{can_start}", 'unhealthy 0', 'where none can, that is unhealthy');
$h = $json->decode($node->safe_psql('idle', 'SET jobq.health_min_workers = 0; SELECT jobq.health()'));
is($h->{checks}{workers}{status}, 'healthy', 'unless no type needs any');
$node->safe_psql('postgres', 'DROP DATABASE idle');

# limits of its own
$node->safe_psql('postgres', "ALTER DATABASE postgres SET jobq.health_min_workers = 10");
$h = health();
is($h->{checks}{workers}{status}, 'degraded', 'fewer workers than wanted');
$node->safe_psql('postgres', 'ALTER DATABASE postgres RESET jobq.health_min_workers');

# ---------- a setting of one database ----------

$dispatcher = dispatcher($node, 'postgres');
$node->safe_psql('postgres', "ALTER DATABASE postgres SET jobq.job_type_filter = '-sleeper'; SELECT jobq.reload()");
$dispatcher = wait_dispatcher($node, 'postgres', 'jobq.reload() brings a new dispatcher', $dispatcher);
$waits = $node->safe_psql('postgres', q{SELECT jobq.enqueue('sleeper')});
my $tool = $node->safe_psql('postgres', q{SELECT jobq.enqueue('tool', '{"seconds": 0.1}')});
wait_status($node, 'postgres', $tool, 'completed', 'which runs other types');
is($node->safe_psql('postgres', "SELECT status FROM jobq.jobs WHERE id = '$waits'"), 'pending', 'but not that one');
$node->safe_psql('postgres', 'ALTER DATABASE postgres RESET jobq.job_type_filter; SELECT jobq.reload()');
wait_status($node, 'postgres', $waits, 'completed', 'until the setting is gone');

# ---------- identity ----------

my $stored = $node->safe_psql('postgres', q{SELECT jobq.enqueue('sleeper', delay => '1h')});
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump';
$node->command_ok([ 'pg_dump', '-Fc', '-f', $dump, $node->connstr('postgres') ], 'pg_dump');
$node->safe_psql('postgres', 'CREATE DATABASE restored');
$node->command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr('restored'), $dump ], 'pg_restore');
$h = health('restored');
is($h->{checks}{identity}{status}, 'unhealthy', 'a restored queue is not ours');
like($h->{checks}{identity}{message}, qr/jobq\.adopt/, 'health() says what to do');
$node->safe_psql('restored', 'SELECT jobq.adopt()');
is(health('restored')->{checks}{identity}{status}, 'healthy', 'once done, it is ours');

$node->stop;
done_testing();
