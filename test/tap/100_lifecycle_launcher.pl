# The launcher: a dispatcher in each database that has the extension, in no other, and one only.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('launcher', 'restart_after_crash = on');
$node->start;
my $server_pid = $node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');

# ---------- databases with a dispatcher ----------

wait_for_sql($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'jobq launcher'",
	'the launcher runs');
# a short-lived dispatcher looks once at each database
wait_for_sql($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'jobq dispatcher'", 'no dispatcher stays where there is no extension');

$node->safe_psql('postgres', 'CREATE EXTENSION jobq');
wait_dispatcher($node, 'postgres', 'CREATE EXTENSION starts the dispatcher');

$node->safe_psql('postgres', "CREATE DATABASE $_") foreach qw(one two three);
$node->safe_psql('one', 'BEGIN; CREATE EXTENSION jobq; ROLLBACK');
$node->safe_psql('two', 'BEGIN; SAVEPOINT s; CREATE EXTENSION jobq; ROLLBACK TO s; CREATE EXTENSION jobq; COMMIT');
wait_dispatcher($node, 'two', 'also in a second database, in a transaction block');
wait_for_sql($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'jobq dispatcher' AND datname = 'one'",
	'none stays after a CREATE EXTENSION that was rolled back');
$node->safe_psql('one', 'CREATE EXTENSION jobq');
wait_dispatcher($node, 'one', 'and one after the next that is not');

# a job of its own in each
foreach my $db (qw(postgres one two))
{
	sleeper_types($node, $db);
	my $id = $node->safe_psql($db, q{SELECT jobq.enqueue('sleeper', '{"what": "first"}')});
	wait_status($node, $db, $id, 'completed', "a job of $db has run");
	is($node->safe_psql($db, 'SELECT what FROM done'), 'first', 'there');
}

# templates get none; a database made from one is found at its first call
$node->safe_psql('template1', 'CREATE EXTENSION jobq');
$node->safe_psql('three', 'CREATE EXTENSION jobq');
wait_dispatcher($node, 'three', 'a later database has its dispatcher');
is(scalar jobq_pids($node, 'dispatcher', 'template1'), 0, 'the template has none');
my $seconds;
foreach (1 .. 10)	# tolerates one stall of the machine
{
	$node->safe_psql('postgres', 'DROP DATABASE IF EXISTS copy');
	$seconds = seconds_of { $node->safe_psql('postgres', 'CREATE DATABASE copy') };
	last if $seconds < 3;
}
cmp_ok($seconds, '<', 3, sprintf 'CREATE DATABASE does not wait (%.1f s)', $seconds);
my ($rc, undef, $err) = $node->psql('copy', 'SELECT jobq.health()');
is($rc, 0, 'a call in the copy');
wait_dispatcher($node, 'copy', 'brings its dispatcher');
$node->safe_psql('template1', 'DROP EXTENSION jobq');
$node->safe_psql('copy', 'ALTER DATABASE copy IS_TEMPLATE true; SELECT pg_reload_conf()');
wait_for_sql($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'jobq dispatcher' AND datname = 'copy'",
	'a database that becomes a template loses it');
$node->safe_psql('copy', 'SELECT jobq.health()');
$node->safe_psql('copy', 'ALTER DATABASE copy IS_TEMPLATE false');
ok($node->poll_query_until('copy', "SELECT jobq.health()->'checks'->'dispatcher'->>'latency_ms' IS NOT NULL"),
	'and has it back when it is no template and jobq is called');

# ---------- lost processes are replaced ----------

my $dispatcher = dispatcher($node, 'one');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($dispatcher)");
my $second = wait_dispatcher($node, 'one', 'a terminated dispatcher comes back', $dispatcher);

my %before = map { $_ => dispatcher($node, $_) } qw(postgres one two three copy);
foreach my $round (1, 2)
{
	my ($launcher) = jobq_pids($node, 'launcher');
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($launcher)");
	wait_for_sql($node, "SELECT count(*) = 1 FROM pg_stat_activity"
		  . " WHERE backend_type = 'jobq launcher' AND pid <> $launcher",
		"a terminated launcher comes back ($round)");
}
# the launcher has looked at all databases once it has started the missing process
$node->safe_psql('postgres', 'CREATE DATABASE four');
$node->safe_psql('four', 'CREATE EXTENSION jobq');
wait_dispatcher($node, 'four', 'the new launcher works');
is_deeply({ map { $_ => dispatcher($node, $_) } keys %before }, \%before, 'and has left all dispatchers alone');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($before{two})");
wait_dispatcher($node, 'two', 'it restarts a dispatcher that its predecessor started', $before{two});

# ---------- jobq.databases ----------

$node->append_conf('postgresql.conf', "jobq.databases = 'one, two'");
$node->reload;
wait_for_sql($node, "SELECT string_agg(datname, ' ' ORDER BY datname) = 'one two' FROM pg_stat_activity"
	  . " WHERE backend_type = 'jobq dispatcher'", 'jobq.databases takes dispatchers away');
is($node->safe_psql('three', q{SELECT jobq.health()->'checks'->'dispatcher'->>'message'}),
	'jobq.databases leaves this database out', 'health() says why nothing runs');
(undef, undef, $err) = $node->psql('postgres', q{SELECT jobq.enqueue('sleeper', delay => '1h'); SELECT jobq.enqueue('sleeper', delay => '1h')});
is(scalar(() = $err =~ /WARNING:  the job is stored, but nothing runs jobs in database "postgres"/g), 1, 'enqueue warns, once a session');
(undef, undef, $err) = $node->psql('postgres', q{SELECT jobq.schedule('yearly', '@yearly', 'sleeper')});
like($err, qr/WARNING:  the schedule is stored, but nothing runs jobs in database "postgres"/, 'so does schedule');
$node->append_conf('postgresql.conf', "jobq.databases = '-'");
$node->reload;
wait_for_sql($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'jobq dispatcher'",
	'"-" leaves none');
$node->append_conf('postgresql.conf', "jobq.databases = ''");
$node->reload;
wait_for_sql($node, "SELECT count(*) = 6 FROM pg_stat_activity WHERE backend_type = 'jobq dispatcher'",
	'empty brings all back');

# ---------- a crash of the server ----------

is($node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()'), $server_pid, 'nothing of ours has restarted the server');
my $log = -s $node->logfile;
my $victim = $node->background_psql('postgres', on_error_stop => 0);
my $victim_pid = $victim->query('SELECT pg_backend_pid()');
kill 'KILL', $victim_pid;
$node->wait_for_log(qr/database system is ready to accept connections/, $log);
$victim->{run}->finish;
wait_for_sql($node, "SELECT count(*) = 6 FROM pg_stat_activity WHERE backend_type = 'jobq dispatcher'",
	'after a crash of the server every dispatcher is back');
my $id = $node->safe_psql('two', q{SELECT jobq.enqueue('sleeper', '{"what": "after"}')});
wait_status($node, 'two', $id, 'completed', 'and jobs run');

# ---------- a database that is closed for a time ----------

sub gone { return wait_for_sql($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = '@{[ $_[1] // 'two' ]}' AND backend_type LIKE 'jobq%'", $_[0]); }

# the schedule is due in years: it keeps a conductor there
$node->safe_psql('two', q{SELECT jobq.schedule('rare', '0 0 29 2 *', 'sleeper')});
sub conducted { return wait_for_sql($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = 'two' AND backend_type = 'jobq conductor'", $_[0]); }
conducted('a conductor');
$log = -s $node->logfile;
$node->safe_psql('postgres', 'ALTER DATABASE two ALLOW_CONNECTIONS false');
gone('a closed database has no process of jobq');
$node->safe_psql('postgres', 'ALTER DATABASE two ALLOW_CONNECTIONS true');
wait_dispatcher($node, 'two', 'it comes back');
conducted('so does the conductor');
$node->append_conf('postgresql.conf', "jobq.databases = '-'");
$node->reload;
gone('a database that jobq.databases leaves out has none either');
$node->append_conf('postgresql.conf', "jobq.databases = ''");
$node->reload;
conducted('back again');
unlike(slurp_file($node->logfile, $log), qr/FATAL/, 'processes leave without a word');
$node->safe_psql('postgres', 'ALTER DATABASE two ALLOW_CONNECTIONS false');
gone('closed again');
$node->safe_psql('postgres', 'ALTER DATABASE two ALLOW_CONNECTIONS true');
wait_dispatcher($node, 'two', 'opened again, it has its dispatcher at once');

# One that has not noticed before it is opened again stays, and does its work.
sub switches { return slurp_file("/proc/$_[0]/status") =~ /^voluntary_ctxt_switches:\s+(\d+)/m ? $1 : -1; }

my $stayed = 0;
foreach (1 .. 10)
{
	conducted('a conductor');
	my $unaware = dispatcher($node, 'two');
	my ($launcher) = jobq_pids($node, 'launcher');
	freeze($node, $unaware);
	$node->safe_psql('postgres', 'ALTER DATABASE two ALLOW_CONNECTIONS false');
	wait_for_sql($node, q{SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = 'two' AND backend_type = 'jobq conductor'}, 'closed: the conductor leaves');
	my $before = switches($launcher);
	$node->safe_psql('postgres', 'ALTER DATABASE two ALLOW_CONNECTIONS true');
	$node->poll_query_until('postgres', 'SELECT true') while switches($launcher) == $before;  # it sleeps again
	kill 'CONT', $unaware;
	wait_status($node, 'two', $node->safe_psql('two', q{SELECT jobq.enqueue('sleeper', '{"seconds": 0.01}')}), 'completed', 'opened again: jobs run');
	$stayed = dispatcher($node, 'two') eq $unaware;
	last if $stayed;
}
SKIP:
{
	skip 'the machine is too slow: after a second the dispatcher is terminated', 1 unless $stayed;
	pass('also with the dispatcher that has not noticed');
}
$node->safe_psql('postgres', 'ALTER DATABASE two ALLOW_CONNECTIONS false');
$node->restart;
wait_for_sql($node, "SELECT count(*) = 5 FROM pg_stat_activity WHERE backend_type = 'jobq dispatcher'", 'the others run after a restart');
$node->safe_psql('postgres', q{UPDATE pg_database SET datallowconn = true WHERE datname = 'two'});
wait_dispatcher($node, 'two', 'so has one that was closed at the start, by whatever command it is opened');
$node->safe_psql('two', q{SELECT jobq.pause_job_type('sleeper', 'test')});
foreach my $call (q{SELECT jobq.start_all()}, q{SELECT count(*) FROM jobq.list_jobs()}, q{SELECT jobq.cancel_jobs('sleeper')}, q{SELECT jobq.alter_job_type('sleeper', base_priority => 1)},
	q{SELECT jobq.heartbeat(gen_random_uuid(), gen_random_uuid())}, q{SELECT jobq.resume_job_type('sleeper')})
{
	$node->safe_psql('postgres', q{UPDATE pg_database SET datallowconn = false WHERE datname = 'two'});
	$node->reload;
	gone('closed');
	# the launcher does not hear of this
	$node->safe_psql('postgres', q{UPDATE pg_database SET datallowconn = true WHERE datname = 'two'});
	$node->safe_psql('two', $call);
	wait_dispatcher($node, 'two', "asked for by $call");
}
foreach ([ 'two', 'renamed' ], [ 'renamed', 'two' ])
{
	my ($former, $name) = @$_;

	$node->safe_psql('postgres', "ALTER DATABASE $former ALLOW_CONNECTIONS false");
	gone('closed', $former);
	$node->safe_psql('postgres', "ALTER DATABASE $former RENAME TO $name");
	$node->safe_psql('postgres', "ALTER DATABASE $name ALLOW_CONNECTIONS true");
	wait_dispatcher($node, $name, "closed, renamed from $former to $name and opened");
	wait_status($node, $name, $node->safe_psql($name, q{SELECT jobq.enqueue('sleeper')}), 'completed', 'jobs run there');
}
$node->safe_psql('postgres', 'ALTER DATABASE two CONNECTION LIMIT 0');
$node->restart;
wait_dispatcher($node, 'two', 'a limit of no connections is none for jobq');
$node->safe_psql('postgres', 'ALTER DATABASE two CONNECTION LIMIT -1');

# ---------- standby and promotion ----------

$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
$id = $node->safe_psql('postgres', q{SELECT jobq.enqueue('sleeper', '{"what": "later"}', delay => '1h')});
$node->wait_for_catchup($standby, 'replay');
is(scalar(jobq_pids($standby, 'launcher')), 0, 'no launcher on a standby');
is($standby->safe_psql('postgres', "SELECT status FROM jobq.jobs WHERE id = '$id'"), 'pending', 'its jobs can be read');
is($standby->safe_psql('postgres', q{SELECT jobq.health()->'checks'->'dispatcher'->>'message'}),
	'this server is a standby: jobs run on the primary', 'health() reports the standby');
$node->stop('immediate');
$standby->promote;
wait_for_sql($standby, "SELECT count(*) = 6 FROM pg_stat_activity WHERE backend_type = 'jobq dispatcher'",
	'promotion starts the dispatchers');
$id = $standby->safe_psql('two', q{SELECT jobq.enqueue('sleeper', '{"what": "promoted"}')});
wait_status($standby, 'two', $id, 'completed', 'and jobs run');
$standby->stop;

# ---------- too few of everything ----------

my $small = jobq_server('small', 'max_worker_processes = 2', 'jobq.max_databases = 2');
my $small_since = time;
$small->start;
$small->safe_psql('postgres', 'CREATE EXTENSION jobq');
$small->wait_for_log(qr/WARNING:\s+could not start a jobq dispatcher: out of background worker slots/);
sleeper_types($small, 'postgres');
$id = $small->safe_psql('postgres', q{SELECT jobq.enqueue('sleeper', '{"what": "kept"}')});
is($small->safe_psql('postgres', "SELECT status FROM jobq.jobs WHERE id = '$id'"), 'pending', 'without workers a job is stored');
is($small->safe_psql('postgres', q{SELECT jobq.health()->'checks'->'dispatcher'->>'message'}),
	'there is no free background worker: increase max_worker_processes', 'health() says why it waits');
my $warnings = () = slurp_file($small->logfile) =~ /out of background worker slots/g;
cmp_ok($warnings, '<=', 1 + (time - $small_since) / 60, 'one warning a minute, however often it was tried');
$small->append_conf('postgresql.conf', 'max_worker_processes = 20');
$small->restart;
wait_status($small, 'postgres', $id, 'completed', 'the job runs once there are workers');
$small->safe_psql('postgres', 'CREATE DATABASE one');
$small->safe_psql('postgres', 'CREATE DATABASE two');
$small->safe_psql('one', 'CREATE EXTENSION jobq');
wait_dispatcher($small, 'one', 'the second of two databases');
$small->safe_psql('two', 'CREATE EXTENSION jobq');
is($small->safe_psql('two', q{SELECT jobq.health()->'checks'->'dispatcher'->>'message'}),
	'jobq.max_databases are in use', 'the third is told that it is one too many');
$small->safe_psql('postgres', 'DROP DATABASE one');
$small->safe_psql('two', 'SELECT jobq.health()');
wait_dispatcher($small, 'two', 'and gets the place of one that is dropped');
$small->stop;

# ---------- not preloaded ----------

$small->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$small->start;
is($small->safe_psql('postgres', q{SELECT jobq.health()->'checks'->'dispatcher'->>'message'}),
	'jobq is not in shared_preload_libraries: jobs are stored and nothing runs them', 'health() without preload');
is($small->safe_psql('postgres', q{SELECT jobq.health()->>'status'}), 'unhealthy', 'is unhealthy');
$small->safe_psql('postgres', 'CREATE DATABASE late');
($rc, undef, $err) = $small->psql('late', 'CREATE EXTENSION jobq');
is($rc, 0, 'CREATE EXTENSION works without preload');
sqlstate_is($small, 'late', "LOAD 'jobq'; SET jobq.max_lanes = 1", '55P02', 'its settings are known');
$small->stop;

done_testing();
