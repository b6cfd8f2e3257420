# Debian's pg_cron in the same server enqueues jobs, by connections and by background workers, in
# its own database and in another one.  The server's clock is set to three seconds before a minute,
# so each tick is pg_cron's own.

use strict;
use warnings;

use FindBin;
use ClockTest;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

# The server's version, when pg_cron can be expected: make deps installs the
# package where Debian has one.
sub packaged
{
	my ($pg_config) = @_;
	my ($major) = `$pg_config --version` =~ /(\d+)/;

	return if `$pg_config --bindir` !~ m{^/usr/lib/postgresql/$major/bin$};
	return `apt-cache madison postgresql-$major-cron 2>/dev/null` ? $major : undef;
}

my $pg_config = $ENV{JOBQ_PG_CONFIG} // 'pg_config';
chomp(my $share = `$pg_config --sharedir`);
if (!-e "$share/extension/pg_cron.control")
{
	my $major = packaged($pg_config);
	die "pg_cron is missing: install postgresql-$major-cron (make deps)\n" if $major;
	plan skip_all => 'pg_cron is not packaged for this server';
}

my %faked = fake_clock();

# No sweep comes to help: a job starts by the wake-up of its commit.
my $node = jobq_server('pgcron', "shared_preload_libraries = 'jobq,pg_cron'", 'max_worker_processes = 40',
	'max_connections = 40', 'track_commit_timestamp = on', "jobq.sweep_interval = '1h'", 'fsync = off');
$node->append_conf('postgresql.conf', "cron.host = '" . $node->host . "'");

sub value { return $node->safe_psql($_[1] // 'postgres', $_[0]); }

my $offset = 0;

sub step_clock
{
	my ($seconds) = @_;

	$offset += $seconds;
	set_clock($offset);
	return;
}

# Starts or restarts the server with the faked clock.
sub with_clock
{
	my ($start) = @_;
	local %ENV = (%ENV, %faked);

	return $node->$start;
}

with_clock('start');
value('CREATE EXTENSION pg_cron; CREATE EXTENSION jobq; CREATE DATABASE shop; CREATE ROLE clerk LOGIN; GRANT USAGE ON SCHEMA cron TO clerk');
value('CREATE EXTENSION jobq', 'shop');
note 'pg_cron ' . value(q{SELECT extversion FROM pg_extension WHERE extname = 'pg_cron'});

foreach my $db (qw(postgres shop))
{
	value(<<'END', $db);
CREATE FUNCTION caller_of(name text) RETURNS jsonb LANGUAGE sql AS $$
  SELECT jsonb_build_object('name', name, 'xid', pg_current_xact_id()::text, 'role', current_user,
                            'process', (SELECT backend_type FROM pg_stat_activity WHERE pid = pg_backend_pid()))
$$;
CREATE FUNCTION report(p jsonb) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION flaky(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF (jobq.current_job()).attempts = 1 THEN RAISE EXCEPTION 'the printer is out of paper'; END IF;
END $$;
SELECT jobq.create_job_type(t, 'report(jsonb)') FROM unnest('{report,held,secret}'::text[]) t;
SELECT jobq.create_job_type('flaky', 'flaky(jsonb)', max_attempts => 3, backoff => 'fixed', backoff_base => '0.1s');
SELECT jobq.pause_job_type('held');
SELECT jobq.grant_access('clerk', 'enqueue', job_types => '{report}');
END
}

# ---------- pg_cron's jobs, inactive until a tick is wanted ----------

my %command = (
	own => q{SELECT jobq.enqueue('report', caller_of('own'), unique_key => 'nightly')},
	clerk => q{SELECT jobq.enqueue('report', caller_of('clerk'))},
	flaky => q{SELECT jobq.enqueue('flaky', caller_of('flaky'))},
	held => q{SELECT jobq.enqueue('held', caller_of('held'), unique_key => 'nightly')},
	gated => q{DO 'BEGIN PERFORM jobq.enqueue(''report'', caller_of(''gated'')), pg_advisory_xact_lock(1); END'},
	undone => q{DO 'BEGIN PERFORM jobq.enqueue(''report'', caller_of(''undone'')); RAISE ''no report today''; END'},
	unknown => q{SELECT jobq.enqueue('unknown', caller_of('unknown'))},
	refused => q{SELECT jobq.enqueue('secret', caller_of('refused'))});
my %role = (clerk => 'clerk', refused => 'clerk');

# One transaction makes all of them and ends them inactive: no minute that ends meanwhile runs one.
my @made;
foreach my $name (sort keys %command)
{
	my $role = $role{$name} // value('SELECT current_user');
	push @made, "SET SESSION AUTHORIZATION $role", "SELECT cron.schedule('$name', '* * * * *', \$cron\$$command{$name}\$cron\$)";
}
push @made, 'RESET SESSION AUTHORIZATION',
  q{SELECT cron.schedule_in_database('other', '* * * * *', $$SELECT jobq.enqueue('report', caller_of('other'))$$, 'shop')},
  'UPDATE cron.job SET active = false';
value(join(';', 'BEGIN', @made, 'COMMIT'));

my $runs;    # the newest run of pg_cron before a tick

# Columns of the first run of that name in this tick.
sub details
{
	my ($name, $columns) = @_;

	return value("SELECT $columns FROM seen WHERE jobname = '$name' ORDER BY runid LIMIT 1");
}

# Columns of the first job that a process of this kind enqueued under that name.
sub job_of
{
	my ($name, $process, $columns, $db) = @_;

	return value("SELECT $columns FROM jobq.jobs WHERE payload->>'name' = '$name' AND payload->>'process' = '$process'"
		  . ' ORDER BY created_at LIMIT 1', $db);
}

# Compares a job's start and its commit; the transaction's id is in the payload.
sub starts_at_commit
{
	my ($name, $process, $db) = @_;
	my ($order, $ms) = split /\|/, job_of($name, $process, <<'END', $db);
started_at >= pg_xact_commit_timestamp((payload->>'xid')::xid),
round(1000 * extract(epoch FROM started_at - pg_xact_commit_timestamp((payload->>'xid')::xid)), 1)
END
	is($order, 't', "$name: the job starts after the commit");
	cmp_ok($ms, '<', 25_000, 'without a sweep');
	note "$name: $ms ms after the commit";
	return;
}

# A transaction of pg_cron waits before its commit: its job starts afterwards, other jobs before.
sub open_gate
{
	my ($gate, $process) = @_;

	wait_for_sql($node, q{SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}, 'a command waits before its commit');
	my $marker = value(q{SELECT jobq.enqueue('report')});
	wait_status($node, 'postgres', $marker, 'completed', 'a later job runs');
	my $opened = value(q{SELECT clock_timestamp()});
	$gate->quit;
	wait_for_sql($node, "SELECT bool_or(status = 'completed') FROM jobq.jobs WHERE payload->>'name' = 'gated'"
		  . " AND payload->>'process' = '$process'", 'its job runs');
	is(job_of('gated', $process, "started_at > '$opened'"), 't', 'not before');
	starts_at_commit('gated', $process);
	return;
}

# One minute of pg_cron: all commands are due at once.  They run in processes of that kind.
sub tick
{
	my ($process) = @_;
	my $me = value('SELECT current_user');
	my $gate = $node->background_psql('postgres');

	$runs = value('SELECT coalesce(max(runid), 0) FROM cron.job_run_details');
	$gate->query_safe('SELECT pg_advisory_lock(1)');
	value('UPDATE cron.job SET active = true');
	step_clock((57 - value('SELECT extract(second FROM clock_timestamp())::int')) % 60);

	# With background workers pg_cron 1.4 waits for one that runs before it sees to
	# others: the gate comes first.
	open_gate($gate, $process);
	wait_for_sql($node, 'SELECT count(DISTINCT jobid) = ' . (1 + keys %command)
		  . " FROM cron.job_run_details WHERE runid > $runs AND status IN ('succeeded', 'failed')", "all commands have ended");
	# A command that is not active any more when pg_cron looks after it has "job canceled" as its
	# message.
	value('DROP TABLE IF EXISTS seen');
	value("CREATE TABLE seen AS SELECT d.*, j.jobname FROM cron.job_run_details d JOIN cron.job j USING (jobid) WHERE runid > $runs");
	value('UPDATE cron.job SET active = false');

	ok($node->poll_query_until($_->[1], "SELECT bool_or(status = 'completed') FROM jobq.jobs"
			  . " WHERE payload->>'name' = '$_->[0]' AND payload->>'process' = '$process'"), "$_->[0]: its job completes")
	  foreach [ 'own', 'postgres' ], [ 'clerk', 'postgres' ], [ 'flaky', 'postgres' ], [ 'other', 'shop' ];
	my $columns = q{status, attempts, payload->>'role'};
	is(job_of('own', $process, $columns), "completed|1|$me", "enqueued by a $process in its own database");
	is(job_of('other', $process, $columns, 'shop'), "completed|1|$me", 'in another one');
	is(job_of('clerk', $process, $columns), 'completed|1|clerk', 'by a role with a grant');
	is(job_of('flaky', $process, $columns), "completed|2|$me", 'one that failed is retried');
	is(value(q{SELECT message FROM jobq.events WHERE job_id = '} . job_of('flaky', $process, 'id') . q{' AND type = 'failed'}),
		'the printer is out of paper', 'its events tell of the failure');
	is(details($_, 'status'), 'succeeded', "$_: pg_cron knows the enqueue") foreach qw(own other clerk flaky gated);
	starts_at_commit('own', $process);
	starts_at_commit('other', $process, 'shop');
	starts_at_commit('clerk', $process);

	is(details($_, 'status'), 'failed', "$_: the enqueue fails") foreach qw(undone unknown refused);
	like(details('undone', 'return_message'), qr/no report today/, 'job_run_details has the error');
	like(details('unknown', 'return_message'), qr/job type "unknown" does not exist/, 'that of an unknown type');
	like(details('refused', 'return_message'), qr/permission denied to enqueue a job of type "secret"/, 'that of a refused type');
	is(value(q{SELECT count(*) FROM jobq.jobs WHERE payload->>'name' IN ('undone', 'unknown', 'refused')}), 0, 'and there is no job');
	return;
}

wait_dispatcher($node, $_, "the dispatcher of $_ runs") foreach qw(postgres shop);
tick('client backend');

$node->append_conf('postgresql.conf', "cron.use_background_workers = on\nshared_preload_libraries = 'pg_cron,jobq'");
with_clock('restart');
wait_dispatcher($node, $_, "the dispatcher of $_ runs again") foreach qw(postgres shop);
tick('pg_cron');

# a job that waits is the job of the next tick
cmp_ok(value(q{SELECT count(*) FROM cron.job_run_details JOIN cron.job USING (jobid) WHERE jobname = 'held' AND status = 'succeeded'}),
	'>=', 2, 'two ticks have enqueued one unique key');
is(value(q{SELECT count(*) FROM jobq.jobs WHERE job_type = 'held'}), 1, 'that is one job');
value(q{SELECT jobq.resume_job_type('held')});
wait_for_sql($node, q{SELECT status = 'completed' FROM jobq.jobs WHERE job_type = 'held'}, 'which runs');

# pg_cron's schedules become jobq's (docs/from-cron.md)
value(q{SELECT cron.schedule('0 5 * * 1-5', $$SELECT jobq.enqueue('report')$$)});
my ($move) = slurp_file("$FindBin::Bin/../../docs/from-cron.md") =~ /^(BEGIN;\n.*?^COMMIT;)$/ms;
value(q{DELETE FROM cron.job WHERE jobname IS NOT NULL; } . $move);
is(value('SELECT cron, timezone, job_type FROM jobq.schedules'), '0 5 * * 1-5|UTC|report', 'a schedule of jobq instead of one of pg_cron');
is(value('SELECT count(*) FROM cron.job'), 0, 'which is gone');

unlike(slurp_file($node->logfile), qr/PANIC|TRAP|exited with exit code [2-9]|terminated by signal/, 'nothing has crashed');
$node->stop;
done_testing();
