# The contract of clients: a table of scenarios, run against each client on a real server.
# README.md has the command line of a client's test worker.  SCENARIO=pattern runs those that match
# it, as "client: scenario (mode)".

use strict;
use warnings;
use Encode qw(encode);
use FindBin;
use IO::Socket::INET;
use IPC::Run ();
use JSON::PP qw(decode_json);
use ClientTest;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use Time::HiRes qw(time);

my $dir = $FindBin::Bin;

# A client joins by one line: its name, its test worker, and a command that fails if a package is
# missing.
my @psycopg = ('/usr/bin/python3', '-c', 'import psycopg');
my ($includes, $libraries) = map { (run_command([ $ENV{JOBQ_PG_CONFIG}, $_ ]))[0] } '--includedir', '--libdir';
my @cc = ('cc', '-std=c99', '-Wall', '-Werror', "-I$includes", "$dir/worker.c", glob("$dir/../../clients/c/*.c"),
	"-L$libraries", "-Wl,-rpath,$libraries", '-lpq');
my $c_worker = PostgreSQL::Test::Utils::tempdir() . '/worker';
my %python = map { $_ => 1 } qw(last_progress locks hooks swallows enqueue_many traceparent own batches limits min_batch together);
my @clients = (
	{ name => 'node', command => [ 'node', "$dir/worker.mjs" ], needs => [ 'node', '-e', qq(require("$dir/../../node_modules/pg")) ],
		can => { map { $_ => 1 } qw(prefetch hooks enqueue_many traceparent own limits together deaf locks single late_ends) } },
	{ name => 'c', command => [$c_worker], needs => [ @cc, '-o', $c_worker ], can => { map { $_ => 1 } qw(last_progress own together silent forks deaf floods locks) } },
	{ name => 'python', command => [ '/usr/bin/python3', "$dir/worker.py" ], needs => \@psycopg, can => { %python, deaf => 1 } },
	{ name => 'asyncio', command => [ '/usr/bin/python3', "$dir/worker.py" ], needs => \@psycopg, env => { JOBQ_ASYNC => 1 }, can => {%python} },
	# psql does not wait for notifications, and each of its statements is a process.
	{ name => 'shell', command => [ '/bin/bash', "$dir/worker.sh" ], needs => [ 'psql', '--version' ], modes => [qw(wait pooler)],
		share => 0.1, can => { last_progress => 1, psql => 1, batches => 1, deaf => 1, floods => 1, locks => 1 } });

# wait: a waiting claim; listen: LISTEN on a connection of its own; pooler: pgbouncer in
# transaction mode.
my @modes = qw(wait listen pooler);
my @scenarios = (
	[ 'completes', \&completes, @modes ],
	[ 'carries traceparent', \&carries_traceparent, 'wait' ],
	[ 'until empty', \&until_empty, @modes ],
	[ 'until empty, last end', \&until_empty_last_end, 'wait' ],
	[ 'large payload', \&large_payload, qw(wait pooler) ],
	[ 'fails', \&fails, qw(wait pooler) ],
	[ 'retries', \&retries, qw(wait pooler) ],
	[ 'unusual JSON', \&unusual_json, 'wait' ],
	[ 'keeps checkpoints', \&keeps_checkpoints, qw(wait pooler) ],
	[ 'works batches', \&works_batches, qw(wait pooler) ],
	[ 'full claim', \&full_claim, 'wait' ],
	[ 'types take turns', \&types_take_turns, 'wait' ],
	[ 'batch of one', \&batch_of_one, 'wait' ],
	[ 'refused result', \&refused_result, 'wait' ],
	[ 'cancel', \&cancel, @modes ],
	[ 'cancel in a heartbeat', \&cancel_in_a_heartbeat, 'listen' ],
	[ 'late listener', \&late_listener, 'listen' ],
	[ 'silent listener', \&silent_listener, 'listen' ],
	[ 'listener on a standby', \&listener_on_a_standby, 'listen' ],
	[ 'heartbeats', \&heartbeats, qw(wait pooler) ],
	[ 'lost lease', \&lost_lease, qw(wait pooler) ],
	[ 'claims ahead', \&claims_ahead, qw(wait pooler) ],
	[ 'slow handler', \&slow_handler, qw(wait pooler) ],
	[ 'concurrency of a type', \&concurrency_of_a_type, qw(wait listen) ],
	[ 'room of other types', \&room_of_other_types, 'wait' ],
	[ 'room at a claim', \&room_at_a_claim, 'wait' ],
	[ 'keeps min_batch', \&keeps_min_batch, qw(wait pooler) ],
	[ 'poison', \&poison, qw(wait pooler) ],
	[ 'connections', \&connections, @modes ],
	[ 'SIGTERM idle', \&sigterm_idle, @modes ],
	[ 'SIGTERM finishes', \&sigterm_finishes, 'wait' ],
	[ 'SIGTERM releases', \&sigterm_releases, qw(wait pooler) ],
	[ 'SIGTERM keeps progress', \&sigterm_keeps_progress, 'wait' ],
	[ 'SIGTERM after a stop', \&sigterm_rude_handler, 'wait' ],
	[ 'cancel of a rude handler', \&cancel_rude_handler, 'wait' ],
	[ 'ends after SIGTERM', \&ends_after_sigterm, 'wait' ],
	[ 'SIGTERM in psql', \&sigterm_in_psql, 'pooler' ],
	[ 'killed in claim', \&killed_in_claim, 'wait' ],
	[ 'terminated in claim', \&terminated_in_claim, qw(wait listen) ],
	[ 'terminated in run', \&terminated_in_run, @modes ],
	[ 'terminated in complete', \&terminated_in_complete, qw(wait pooler) ],
	[ 'terminated in effect', \&terminated_in_effect, qw(wait pooler) ],
	[ 'logins refused', \&logins_refused, 'wait' ],
	[ 'server restart', \&server_restart, @modes ],
	[ 'failover', \&failover, 'wait' ],
	[ 'dead token', \&dead_token, qw(wait pooler) ],
	[ 'locked row', \&locked_row, qw(wait pooler) ],
	[ 'locked rows', \&locked_rows, 'wait' ],
	[ 'locked end', \&locked_end, qw(wait pooler) ],
	[ 'locked end of many', \&locked_end_of_many, 'wait' ],
	[ 'refused end', \&refused_end, 'wait' ],
	[ 'failed complete', \&failed_complete, 'wait' ],
	[ 'threads of a handler', \&threads_of_a_handler, 'wait' ],
	[ 'own completion', \&own_completion, qw(wait pooler) ],
	[ 'late commit', \&late_commit, qw(wait pooler) ],
	[ 'reports after completion', \&reports_after_completion, 'wait' ],
	[ 'silent rollback', \&silent_rollback, 'wait' ],
	[ 'lost job of a batch', \&lost_job_of_a_batch, qw(wait pooler) ],
	[ 'claim refused', \&claim_refused, qw(wait pooler) ],
	[ 'passing errors', \&passing_errors, 'wait' ],
	[ 'too many tenants', \&too_many_tenants, 'wait' ],
	[ 'progress after a cancel', \&progress_after_a_cancel, 'wait' ],
	[ 'encodings', \&encodings, 'wait' ],
	[ 'statement_timeout', \&statement_timeout, 'wait' ],
	[ 'absent server', \&absent_server, 'wait' ],
	[ 'wrong options', \&wrong_options, 'wait' ],
	[ 'full disk', \&full_disk, 'wait' ],
	[ 'no room', \&no_room, 'wait' ],
	[ 'no process', \&no_process, 'wait' ],
	[ 'environment', \&environment, 'wait' ],
	[ 'leading zeros', \&leading_zeros, 'wait' ],
	[ 'enqueues after', \&enqueues_after, 'wait' ],
	[ 'reports while down', \&reports_while_down, 'wait' ],
	[ 'heartbeat refused', \&heartbeat_refused, 'wait' ],
	[ 'SIGTERM without answers', \&sigterm_without_answers, 'wait' ],
	[ 'SIGTERM deaf handler', \&sigterm_deaf_handler, 'wait' ],
	[ 'SIGTERM in a silent claim', \&sigterm_in_a_silent_claim, 'wait' ],
	[ 'random kills', \&random_kills, qw(wait pooler) ]);

# Scenarios that not all clients can have: what a client must be able to, and why others are not.
my %asks = (
	'claims ahead' => [ 'prefetch', 'it claims no jobs ahead' ],
	'concurrency of a type' => [ 'limits', 'it has the concurrency of the worker only' ],
	'room of other types' => [ 'limits', 'it has the concurrency of the worker only' ],
	'batch of one' => [ 'single', 'its test worker has no such handler' ],
	'room at a claim' => [ 'limits', 'it has the concurrency of the worker only' ],
	'ends after SIGTERM' => [ 'late_ends', 'its test worker has no such handler' ],
	'keeps min_batch' => [ 'min_batch', 'a type with min_batch needs a worker of its own' ],
	'locked rows' => [ 'locks', 'its heartbeats wait for the lock of each row' ],
	'types take turns' => [ 'psql', 'its claim names all types' ],
	'floods progress' => [ 'floods', 'its handler waits for answers' ],
	'threads of a handler' => [ 'forks', 'its handlers share their stop in memory' ],
	'no process' => [ 'forks', 'only C has a process for each handler' ],
	'full disk' => [ 'psql', 'it writes no files' ],
	'no room' => [ 'psql', 'it writes no files' ],
	'environment' => [ 'psql', 'it runs no commands' ],
	'leading zeros' => [ 'psql', 'its options are no texts' ],
	'SIGTERM in psql' => [ 'psql', 'it runs no psql' ],
	'ignores SIGTERM' => [ 'psql', 'scenario "SIGTERM deaf handler" has such a handler' ],
	'SIGTERM keeps progress' => [ 'last_progress', 'it reports no progress after the stop' ],
	'SIGTERM deaf handler' => [ 'deaf', 'asyncio.run() waits for a coroutine that suppresses its cancel' ],
	'own completion' => [ 'own', 'its handler writes {"settled": true} after the commit only' ],
	'late commit' => [ 'own', 'its handler writes {"settled": true} after the commit only' ],
	'reports after completion' => [ 'own', 'its handler writes {"settled": true} after the commit only' ],
	'silent rollback' => [ 'silent', 'the value that its handler returns is the result' ],
	'lost job of a batch' => [ 'together', 'each job of its batch tells its own end' ],
	'failed own complete' => [ 'swallows', 'scenario "failed complete" shows that heartbeats go on' ],
	'enqueues many' => [ 'enqueue_many', 'it has no such call' ],
	'two batch types' => [ 'batches', 'it fills a batch up after its first job' ],
	'failing hook' => [ 'hooks', 'its hooks cannot fail' ]);

push @scenarios,
  ([ 'skips', \&skips, qw(wait pooler) ],
	[ 'snoozes', \&snoozes, qw(wait pooler) ],
	[ 'reports progress', \&reports_progress, qw(wait pooler) ],
	[ 'floods progress', \&floods_progress, 'wait' ],
	[ 'logs events', \&logs_events, qw(wait pooler) ],
	[ 'enqueues many', \&enqueues_many, 'wait' ],
	[ 'mixed batch', \&mixed_batch, qw(wait pooler) ],
	[ 'two batch types', \&two_batch_types, 'wait' ],
	[ 'malformed failure', \&malformed_failure, 'wait' ],
	[ 'refused ending', \&refused_ending, 'wait' ],
	[ 'large checkpoint', \&large_checkpoint, qw(wait pooler) ],
	[ 'failing hook', \&failing_hook, 'wait' ],
	[ 'lost in complete', \&lost_in_complete, qw(wait pooler) ],
	[ 'failed own complete', \&failed_own_complete, 'wait' ],
	[ 'deadline', \&deadline, qw(wait pooler) ],
	[ 'ignores SIGTERM', \&ignores_sigterm, 'wait' ],
	[ 'second SIGTERM', \&second_sigterm, 'wait' ],
	[ 'terminated in heartbeat', \&terminated_in_heartbeat, qw(wait pooler) ],
	[ 'blocked heartbeat', \&blocked_heartbeat, qw(wait pooler) ],
	[ 'hanging heartbeat', \&hanging_heartbeat, 'wait' ],
	[ 'hanging complete', \&hanging_complete, 'wait' ],
	[ 'hanging pooler', \&hanging_pooler, 'pooler' ]);

# The gate runs these with a waiting claim only; pgbouncer is a package of the full run.
if ($ENV{JOBQ_SMOKE})
{
	my %smoke = map { $_ => 1 } 'completes', 'retries', 'cancel', 'SIGTERM releases', 'terminated in run', 'terminated in effect',
	  'unusual JSON', 'progress after a cancel', 'reports after completion', 'silent rollback', 'lost job of a batch', 'no process';

	@scenarios = grep { $smoke{ $_->[0] } } @scenarios;
	@modes = 'wait';
	$_->{modes} = [@modes] foreach @clients;
}

$ENV{SCENARIO} //= '';
my $jobs_of_kills = $ENV{KILL_JOBS} || ($ENV{JOBQ_FULL} ? 10_000 : 300);

my $node = jobq_server('clients', 'max_connections = 200', 'jobq.max_concurrent = 1000');
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION jobq');
wait_dispatcher($node, 'postgres', 'the dispatcher runs');
$node->safe_psql('postgres', <<'END');
SELECT jobq.create_job_type(name, max_attempts => tries, backoff => 'fixed', backoff_base => base::interval, backoff_jitter => 0,
    timeout => '30min')
  FROM (VALUES ('echo', 3, '10ms'), ('slow', 3, '1h'), ('fail', 3, '10ms'), ('flaky', 3, '1h'), ('raise', 2, '10ms'),
    ('effect', 1000, '10ms'), ('checkpoint', 3, '1h'), ('batch', 3, '10ms'), ('poison', 2, '10ms')) AS t (name, tries, base);
CREATE TABLE effects (job uuid NOT NULL, token uuid NOT NULL);
CREATE FUNCTION wait_at_gate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(16);
  RETURN NEW;
END $$;
CREATE TRIGGER gate BEFORE INSERT ON effects FOR EACH ROW EXECUTE FUNCTION wait_at_gate();
END
# Handlers of the scenarios about faults.
$node->safe_psql('postgres', "SELECT jobq.create_job_type(name, backoff => 'fixed', backoff_base => '1h', backoff_jitter => 0)
	FROM unnest('{note,refused,broken,report,deaf,chat,rude,variables}'::text[]) AS name");
my $pooler = {};
if (!$ENV{JOBQ_SMOKE})
{
	if (grep { -x "$_/pgbouncer" } split(/:/, $ENV{PATH}), '/usr/sbin') { $pooler = start_pooler($node) }
	elsif ($ENV{JOBQ_FULL}) { fail('pgbouncer is missing (make deps FULL=1)') }
	else { SKIP: { skip 'no pgbouncer (make deps FULL=1)', 1 } }
}
$node->safe_psql('postgres', <<'END');
SELECT jobq.create_job_type(name, max_attempts => 3, backoff => 'fixed', backoff_base => '1h', backoff_jitter => 0, timeout => '30min',
    options => '{"events": "all"}')
  FROM unnest('{skip,snooze,progress,log,mixed,other,malformed,badskip,badsnooze,badcode,longcode,big,swallow,stubborn,together}'::text[]) AS t (name);
END

our $scenario;    # the running one, for the names of its tests
my ($client, $mode, $began);
my $gates_used = 0;
my $pairs_used = 0;

foreach (@clients)
{
	$client = $_;
	if (!eval { run_log($client->{needs}) })
	{
		fail("$client->{name}: a package is missing (make deps)");
		next;
	}
	foreach my $row (@scenarios)
	{
		my ($name, $run, @in) = @$row;
		my ($ability, $reason) = @{ $asks{$name} // [] };

		if ($ability && !$client->{can}{$ability})
		{
			SKIP: { skip "$client->{name}: $name: $reason", 1 }
			next;
		}
		foreach (grep { my $m = $_; ($m ne 'pooler' || $pooler->{pid}) && grep { $_ eq $m } @{ $client->{modes} // \@modes } } @in)
		{
			$mode = $_;
			$scenario = "$client->{name}: $name ($mode)";
			next if $scenario !~ /$ENV{SCENARIO}/;
			$began = sql('SELECT clock_timestamp()');
			my $start = time;
			eval { $run->(); 1 } or fail("$scenario: $@");
			note sprintf('%s: %.1f s', $scenario, time - $start);
			end_workers($pooler->{pid});
			$node->safe_psql('postgres', "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name ~ '^worker';
				SELECT jobq.cancel_jobs(job_type => name, include_running => true) FROM jobq.job_types;
				TRUNCATE effects");
		}
	}
}
done_testing();

# ---------- steps ----------

sub worker { return start_worker($client, $node, $pooler, $mode, lease => 120, @_); }

sub sql { return $node->safe_psql('postgres', $_[0]); }

sub enqueue
{
	my ($type, $payload) = @_;

	return sql("SELECT jobq.enqueue('$type', \$json\$$payload\$json\$)");
}

# A job of type slow that runs, and the gate that it waits at.
sub slow_job
{
	my ($worker) = @_;
	my $gate = 'gate' . ++$gates_used;
	my $id = enqueue('slow', qq({"gate": "$gate"}));

	wait_log($worker, 'job_started', job_id => $id);
	return ($id, $gate);
}

# Waits until the job has the status; tests a condition, with the mark '!' in its name.
sub ends
{
	my ($id, $status, $condition, $mark) = @_;

	wait_sql($node, "SELECT status = '$status' FROM jobq.jobs WHERE id = '$id'", "the job is $status");
	return must(sql("SELECT $condition FROM jobq.jobs WHERE id = '$id'") eq 't', ($mark // '') . $condition)
	  || diag(sql("SELECT to_jsonb(j) FROM jobq.jobs j WHERE id = '$id'"));
}

sub wait_empty
{
	my ($type) = @_;

	return wait_sql($node, "SELECT sum(count) FILTER (WHERE status IN ('pending', 'retry', 'running')) = 0 FROM jobq.count_by_status('$type')", "every job of type $type ends");
}

# Ends connections of the worker; one at least must be there.
sub terminate
{
	my ($worker, $condition) = @_;

	return wait_sql($node, "SELECT count(pg_terminate_backend(pid)) > 0 FROM pg_stat_activity
		WHERE application_name = '$worker->{name}' AND $condition", "a connection with $condition is terminated");
}

# The worker still works.
sub echoes
{
	return ends(enqueue('echo', '{"n": 1}'), 'completed', q(result = '{"n": 1}'));
}

# Enqueues a job through the client; returns its id.
sub enqueue_by_client
{
	my ($type, $payload, $options, $input) = @_;
	my %env = (%{ $client->{env} // {} }, JOBQ_DSN => uri($node, 'enqueue'), JOBQ_TYPES => 'echo', JOBQ_DIR => gates());
	local @ENV{ keys %env } = values %env;
	my ($out, $err) = ('', '');

	IPC::Run::run([ @{ $client->{command} }, 'enqueue', $type, $payload, $options // () ], '<', \($input // ''), '>', \$out, '2>', \$err);
	chomp $out;
	must(scalar($out =~ /^[0-9a-f-]{36}$/), "enqueue prints the id ($out$err)");
	return $out;
}

# ---------- scenarios ----------

sub completes
{
	my $text = q({"text": "it's \"$(reboot)\" `x` %s \\\\\\\\ \n\t \u00e4\u2028\ud83d\ude00 ${HOME} *", "list": [1, 2.50, null, true], "a": {"": {}}});
	my $first = enqueue('echo', $text);
	my $worker = worker(types => 'echo', concurrency => 4);

	ends($first, 'completed', 'result = payload');
	wait_log($worker, 'job_started', job_id => $first, job_type => 'echo', attempt => 1);
	wait_log($worker, 'job_completed', job_id => $first, job_type => 'echo', attempt => 1, outcome => 'completed');
	wait_log($worker, 'span_start', job_id => $first);
	wait_log($worker, 'span_end', job_id => $first, outcome => 'completed');
	ends(enqueue('echo', $_), 'completed', 'result = payload') foreach '[]', '"text"', '12345', 'false';

	my $out = enqueue_by_client('echo', $text, q({"priority": 5, "unique_key": "it's", "metadata": {"k": [1]}}));
	ends($out, 'completed', q(result = payload AND priority = 5 AND unique_key = 'it''s' AND metadata = '{"k": [1]}'));
	return stop_worker($worker);
}

# Trace context from enqueue to the hook around the handler, beside other metadata.
sub carries_traceparent
{
	my $trace = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
	my $options = $client->{can}{traceparent} ? qq({"metadata": {"k": 1}, "traceparent": "$trace"}) : qq({"metadata": {"k": 1, "traceparent": "$trace"}});
	my $worker = worker(types => 'echo');
	my $id = enqueue_by_client('echo', '{}', $options);

	ends($id, 'completed', qq(metadata = '{"k": 1, "traceparent": "$trace"}'));
	wait_log($worker, 'span_start', job_id => $id, traceparent => $trace);
	return stop_worker($worker);
}

# The test mode: jobs that are due are run, another attempt too, and the worker ends by itself.
sub until_empty
{
	my @jobs = map { enqueue('echo', $_) } 1 .. 5;
	my $again = enqueue('flaky', '{"retry_after": "0"}');
	my $later = sql(q{SELECT jobq.enqueue('echo', delay => '1h')});
	my $worker = worker(types => 'echo,flaky', concurrency => 2, until_empty => 2);
	my $status = exit_of($worker);

	must($status == 0, "the worker ends with code 0 (wait status $status)");
	must(log_lines($worker, 'started') == ($client->{can}{psql} ? 1 : 2), 'it runs so many times');
	must(sql("SELECT bool_and(status = 'completed') FROM jobq.jobs WHERE id IN ('" . join("', '", @jobs) . "')") eq 't', 'all are completed');
	ends($again, 'completed', 'runs = 2');
	must(sql("SELECT status FROM jobq.jobs WHERE id = '$later'") eq 'pending', 'the delayed one waits');
	return must(exit_of(worker(types => 'echo', until_empty => 1)) == 0, 'without a job it ends at once');
}

# The last handler ends while a claim that was sent beside it has no answer yet: the worker asks
# once more, and does not wait for the next poll.
sub until_empty_last_end
{
	my @gates = map { 'gate' . ++$gates_used } 1, 2;
	my ($first, $last) = map { enqueue('slow', qq({"gate": "$_"})) } @gates;
	my $worker = worker(types => 'slow', concurrency => 3, until_empty => 1, poll => 60);

	wait_log($worker, 'job_started', job_id => $_) foreach $first, $last;
	my $dispatcher = dispatcher($node, 'postgres');
	freeze($node, $dispatcher);
	eval {
		open_gate($gates[0]);
		wait_log($worker, 'job_completed', job_id => $first);
		wait_sql($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = '$worker->{name}' AND query ~ 'jobq.claim'
			AND state = 'active'", 'a claim has no answer');
		open_gate($gates[1]);
		wait_log($worker, 'job_completed', job_id => $last);
	};
	my $error = $@;
	kill 'CONT', $dispatcher;
	die $error if $error;
	my $start = time;
	my $status = exit_of($worker);
	must($status == 0, "the worker ends with code 0 (wait status $status)");
	ends($last, 'completed', 'runs = 1');
	return must(time - $start < 30, sprintf('before the next poll (%.1f s)', time - $start));
}

# A payload and a result just under 1 MB, the default limit, of characters of two to four bytes:
# 11 bytes as often as they fit in.
sub large_payload
{
	my $text = encode('UTF-8', "\x{e4}\x{2028}\x{1f600}\\n" x 95_320);
	my $worker = worker(types => 'echo');
	my $id = enqueue_by_client('echo', '-', undef, qq({"text": "$text"}));

	ends($id, 'completed', q(octet_length(payload::text) BETWEEN 1048500 AND 1048576 AND result = payload
		AND payload->>'text' = repeat(U&'\00E4\2028\+01F600\000A', 95320)));
	return stop_worker($worker);
}

sub fails
{
	my $worker = worker(types => 'fail,raise,echo', concurrency => 2);
	my $permanent = enqueue('fail', q({"n": "it's"}));
	my $unforeseen = enqueue('raise', '{}');

	ends($permanent, 'error', q(error_msg = 'no such thing' AND error_code = 'E_FAIL' AND runs = 1
		AND error_details @> '{"payload": {"n": "it''s"}}'));
	wait_log($worker, 'job_failed', job_id => $permanent, outcome => 'error', error => 'no such thing');
	ends($unforeseen, 'error', q(error_msg LIKE '%boom%' AND runs = 2));
	wait_log($worker, 'job_failed', job_id => $unforeseen, outcome => 'retry', attempt => 1,
		error => sql("SELECT error_msg FROM jobq.jobs WHERE id = '$unforeseen'"));
	echoes();
	return stop_worker($worker);
}

sub retries
{
	my $worker = worker(types => 'flaky');
	my @jobs = map { enqueue('flaky', $_) } '{"retry_after": "100ms"}', '{"retry_after": 0.1}';

	ends($_, 'completed', q(attempts = 2 AND result = '{"attempts": 2}')) foreach @jobs;
	wait_log($worker, 'job_failed', job_id => $jobs[0], outcome => 'retry');
	return stop_worker($worker);
}

# JSON that a language may not be able to read costs that job at most, and no other of its claim.
sub unusual_json
{
	my $number = '{"n": 1e5000}';
	my $usual = '{"usual": true}';
	my ($digits, $other) = split /\n/, sql(qq(SELECT jobq.enqueue_many('echo', ARRAY['$number', '$usual']::jsonb[])));
	my $metadata = sql(qq(SELECT jobq.enqueue('echo', '$usual', metadata => '$number')));
	my $worker = worker(types => 'echo', concurrency => 8);

	ends($other, 'completed', 'runs = 1 AND result = payload');
	if ($client->{name} =~ /python|asyncio/)
	{
		ends($_, 'error', q(runs = 1 AND error_code = 'unreadable')) foreach $digits, $metadata;
	}
	else
	{
		ends($digits, 'completed', 'runs = 1 AND ' . ($client->{name} eq 'node' ? q(result = '{"n": null}') : 'result = payload'));
		ends($metadata, 'completed', 'runs = 1 AND result = payload');
	}
	echoes();
	return stop_worker($worker);
}

sub keeps_checkpoints
{
	my $worker = worker(types => 'checkpoint');

	ends(enqueue('checkpoint', '{}'), 'completed', q(attempts = 2 AND result = '{"resumed": {"step": 1}}'));
	return stop_worker($worker);
}

sub works_batches
{
	sql(q(SELECT count(*) FROM jobq.enqueue_many('batch', ARRAY(SELECT jsonb_build_object('n', n) FROM generate_series(1, 25) n))));
	my $worker = worker(types => 'batch,echo');

	wait_empty('batch');
	must(sql(qq(SELECT count(*) = 25 AND max((result->>'of')::int) = 10 AND bool_and(result->'n' = payload->'n')
		FROM jobq.jobs WHERE job_type = 'batch' AND status = 'completed' AND created_at > '$began')) eq 't', 'in batches of ten');
	echoes();
	return stop_worker($worker);
}

# There is room for more jobs than one claim may ask for.
sub full_claim
{
	my $worker = worker(types => 'batch,echo', concurrency => 101);

	echoes();
	return stop_worker($worker);
}

# Jobs of a type that fill all slots do not hold up those of another type.
sub types_take_turns
{
	sql(q(SELECT count(*) FROM jobq.enqueue_many('batch', ARRAY(SELECT jsonb_build_object('n', n) FROM generate_series(1, 50) n))));
	my $id = enqueue('echo', '{}');
	my $worker = worker(types => 'batch,echo');

	wait_empty('batch');
	ends($id, 'completed', qq(started_at < (SELECT max(started_at) FROM jobq.jobs WHERE job_type = 'batch' AND created_at > '$began')));
	return stop_worker($worker);
}

# A handler with a batch of 1 gets a list, too.
sub batch_of_one
{
	sql(q{SELECT jobq.create_job_type('single')});
	my $worker = worker(types => 'single');

	ends(enqueue('single', qq({"n": $_})), 'completed', qq(result = '{"n": $_, "of": 1}')) foreach 1, 2;
	return stop_worker($worker);
}

sub refused_result
{
	sql($_) foreach 'ALTER SYSTEM SET jobq.max_output = 1024', 'SELECT pg_reload_conf()';
	my $worker = worker(types => 'echo', concurrency => 2);
	my $id = enqueue('echo', '"' . 'x' x 3000 . '"');

	ends($id, 'error', 'runs = 1');
	echoes();
	sql($_) foreach 'ALTER SYSTEM RESET jobq.max_output', 'SELECT pg_reload_conf()';
	return stop_worker($worker);
}

# In mode listen the worker's next heartbeat is 1,000 s away: the notification brings the cancel.
sub cancel
{
	my $worker = worker(types => 'slow,echo', lease => $mode eq 'listen' ? 3000 : 2);
	my ($id) = slow_job($worker);

	sql("SELECT jobq.cancel_job('$id', 'no longer needed')");
	wait_log($worker, 'handler_stopped', job_id => $id, reason => 'cancel');
	ends($id, 'cancelled', 'runs = 1');
	wait_log($worker, $_, job_id => $id) foreach 'job_cancelled', 'span_end';
	echoes();
	return stop_worker($worker);
}

# The notification of a cancel comes while a heartbeat runs that has not seen it: another follows.
sub cancel_in_a_heartbeat
{
	my $worker = worker(types => 'slow,echo', lease => 3000);
	my ($id) = slow_job($worker);
	my $holder = $node->background_psql('postgres');
	my $heard = '';

	$holder->query_safe('SELECT pg_advisory_lock(17); LISTEN jobq_slow');
	sql(<<'END');
ALTER FUNCTION jobq.heartbeat RENAME TO hidden_heartbeat;
CREATE FUNCTION jobq.heartbeat(id uuid, lease_token uuid, progress numeric DEFAULT NULL, data jsonb DEFAULT NULL) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
  WHILE EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 17) LOOP
    PERFORM pg_sleep(0.02);
  END LOOP;
  RETURN 'ok';
END $$;
NOTIFY jobq_slow;
END
	my $notified = eval {
		wait_sql($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = '$worker->{name}' AND query ~ 'jobq.heartbeat'
			AND state = 'active' AND query_start < clock_timestamp() - interval '200 ms'", 'a heartbeat runs, and the next may begin');
		$holder->query('SELECT 1');
		sql("SELECT jobq.cancel_job('$id', 'no longer needed')");
		wait_for(sub { ($heard .= $holder->query('SELECT 1')) =~ /Asynchronous notification/ }, 'the cancel is notified');
	};
	sql('DROP FUNCTION jobq.heartbeat(uuid, uuid, numeric, jsonb)');
	sql('ALTER FUNCTION jobq.hidden_heartbeat RENAME TO heartbeat');
	$holder->quit;
	must($notified, 'the notification came in time');
	wait_log($worker, 'handler_stopped', job_id => $id, reason => 'cancel');
	ends($id, 'cancelled', 'runs = 1');
	return stop_worker($worker);
}

# A worker that cannot listen yet gets no notification; when it listens, it asks.
sub late_listener
{
	sql('ALTER FUNCTION jobq.channel(text) RENAME TO channel_later');
	my $worker = worker(types => 'slow,echo', lease => 3000);
	my ($id) = slow_job($worker);
	my $listener = $node->background_psql('postgres');
	my $heard = '';

	$listener->query_safe('LISTEN jobq_slow');
	sql("SELECT jobq.cancel_job('$id', 'no longer needed')");
	wait_for(sub { ($heard .= $listener->query('SELECT 1')) =~ /Asynchronous notification/ }, 'the cancel is notified');
	sql('ALTER FUNCTION jobq.channel_later(text) RENAME TO channel');
	wait_log($worker, 'handler_stopped', job_id => $id, reason => 'cancel');
	ends($id, 'cancelled', 'runs = 1');
	$listener->quit;
	return stop_worker($worker);
}

# The server of listen_dsn takes connections and does not answer: leases go on, and the worker
# polls.
sub silent_listener
{
	my $silent = IO::Socket::INET->new(Listen => 50, LocalAddr => '127.0.0.1') or die "listen: $!";
	my $worker = worker(types => 'slow,echo', lease => 3, poll => 0.1, concurrency => 2,
		listen_dsn => 'postgresql://127.0.0.1:' . $silent->sockport . '/postgres');
	my ($id, $gate) = slow_job($worker);

	lease_goes_on($id, 12);
	echoes();
	open_gate($gate);
	ends($id, 'completed', 'runs = 1');
	return stop_worker($worker);
}

# LISTEN is refused there each time, and the pauses between the tries grow.
sub listener_on_a_standby
{
	my ($primary, $standby) = failover_pair();
	my $done = eval {
		my $worker = worker(types => 'echo', poll => 0.1, listen_dsn => uri($standby, 'listener'));

		wait_log($worker, 'reconnecting');
		sleep 4;
		my $tries = log_lines($worker, 'reconnecting');
		must($tries < 12, "few tries in four seconds ($tries)");
		echoes();
		stop_worker($worker);
	};
	my $error = $@;
	$_->stop('immediate') foreach $standby, $primary;
	die $error unless $done;
	return;
}

sub heartbeats
{
	my $worker = worker(types => 'slow', lease => 1);
	my ($id, $gate) = slow_job($worker);

	wait_sql($node, "SELECT status = 'running' AND lease_expires_at > started_at + interval '4 s' FROM jobq.jobs WHERE id = '$id'",
		'the lease is renewed');
	open_gate($gate);
	ends($id, 'completed', 'runs = 1');
	return stop_worker($worker);
}

sub lost_lease
{
	my $worker = worker(types => 'slow,echo', lease => 2);
	my ($id) = slow_job($worker);

	wait_sql($node, "SELECT lease_expires_at > started_at + interval '2.3 s' FROM jobq.jobs WHERE id = '$id'",
		'the handler runs at the first heartbeat');
	signal_worker($worker, '-STOP');
	wait_sql($node, "SELECT status = 'retry' FROM jobq.jobs WHERE id = '$id'", 'the lease of a stopped process runs out');
	signal_worker($worker, '-CONT');
	wait_log($worker, 'handler_stopped', job_id => $id, reason => 'lost');
	wait_log($worker, 'job_lost', job_id => $id);
	echoes();
	ends($id, 'retry', q(runs = 1 AND error_code = 'lease_expired'));
	return stop_worker($worker);
}

sub slow_handler
{
	my $worker = worker(types => 'slow,echo', concurrency => 2);
	my ($id, $gate) = slow_job($worker);

	sql(q(SELECT count(*) FROM jobq.enqueue_many('echo', ARRAY(SELECT to_jsonb(n) FROM generate_series(1, 20) n))));
	wait_empty('echo');
	open_gate($gate);
	ends($id, 'completed', 'runs = 1');
	return stop_worker($worker);
}

# The second job of a type at its limit is left to others, and comes as soon as there is room: a
# waiting claim without that type would go on for 20 s, or the poll for a minute.
sub concurrency_of_a_type
{
	my $worker = worker(types => 'slow,echo', concurrency => 3, slow => 1);
	my ($first, $gate) = slow_job($worker);
	my $last = 'gate' . ++$gates_used;
	my $second = enqueue('slow', qq({"gate": "$last"}));

	echoes() foreach 1 .. 3;
	must(sql("SELECT status FROM jobq.jobs WHERE id = '$second'") eq 'pending', 'the second job is not claimed');
	my $opened = time;
	open_gate($gate);
	wait_log($worker, 'job_started', job_id => $second);
	must(time - $opened < 15, sprintf('it starts when the first has ended (%.1f s)', time - $opened));
	open_gate($last);
	ends($_, 'completed', 'runs = 1') foreach $first, $second;
	return stop_worker($worker);
}

# A type with a limit, idle or not, does not make the claims of other types smaller.
sub room_of_other_types
{
	sql(q(SELECT count(*) FROM jobq.enqueue_many('echo', ARRAY(SELECT to_jsonb(n) FROM generate_series(1, 8) n))));
	my ($first, $second) = map { 'gate' . ++$gates_used } 1, 2;
	my $worker = worker(types => 'slow,echo', concurrency => 8, slow => 1);

	wait_empty('echo');
	must(log_lines($worker, 'claimed', jobs => 8) == 1, 'one claim takes eight jobs');
	my @ids = map { enqueue('slow', qq({"gate": "$_"})) } $first, $second;
	sql(q(SELECT count(*) FROM jobq.enqueue_many('echo', ARRAY(SELECT to_jsonb(n) FROM generate_series(1, 30) n))));
	wait_empty('echo');
	must(log_lines($worker, 'job_started', job_type => 'slow') == 1, 'one of the type with the limit runs');
	open_gate($_) foreach $first, $second;
	ends($_, 'completed', 'runs = 1') foreach @ids;
	return stop_worker($worker);
}

# The type at its limit has room again just when a claim without it begins to wait: the worker does
# not wait for the end of that, 20 s.
sub room_at_a_claim
{
	my $gate = 'gate' . ++$gates_used;

	open_gate($gate);
	sql(qq(SELECT count(*) FROM jobq.enqueue_many('$_', array_fill('{"gate": "$gate"}'::jsonb, ARRAY[30])))) foreach 'slow', 'skip';
	my $start = time;
	my $worker = worker(types => 'slow,skip,echo', concurrency => 2, slow => 1);
	wait_empty($_) foreach 'slow', 'skip';
	must(time - $start < 15, sprintf('no such wait (%.1f s)', time - $start));
	return stop_worker($worker);
}

# In a worker of several types a batch is not smaller than the type's min_batch.
sub keeps_min_batch
{
	sql(q(SELECT jobq.alter_job_type('batch', options => '{"min_batch": {"jobs": 5, "wait": "1 hour"}}')));
	my $worker = worker(types => 'batch,echo');

	foreach my $n (1 .. 5)
	{
		enqueue('batch', qq({"n": $n}));
		echoes();
	}
	wait_empty('batch');
	must(sql(qq(SELECT bool_and(result->>'of' = '5') FROM jobq.jobs WHERE job_type = 'batch' AND created_at > '$began')) eq 't', 'a batch of five');
	sql(q(SELECT jobq.alter_job_type('batch', options => '{"min_batch": null}')));
	return stop_worker($worker);
}

sub poison
{
	my $id = enqueue('poison', '{}');

	foreach my $run (1, 2)
	{
		my $status = exit_of(worker(types => 'poison,echo', lease => 1));

		must($status == 9, "the job kills worker $run (wait status $status)");
	}
	my $worker = worker(types => 'poison,echo', lease => 1);
	ends($id, 'error', q(runs = 2 AND error_code = 'lease_expired'));
	echoes();
	return stop_worker($worker);
}

# With several handlers at work and room for more, a process has one claim that waits or one
# session that listens, and no more connections than docs/pull.md says; the shell has a psql for a
# statement.  Through a pooler no claim waits: three claims without a job take less than the time
# of one wait.
sub connections
{
	my $worker = worker(types => 'slow,echo', concurrency => 8, lease => 3);
	my @slow = map { [ slow_job($worker) ] } 1 .. 3;
	my $mine = "FROM pg_stat_activity WHERE application_name = '$worker->{name}'";
	my $most = ($client->{can}{psql} ? 5 : $client->{name} =~ /python|asyncio/ ? 3 : 2) + ($mode eq 'listen' ? 1 : 0);
	my $one = $mode eq 'wait' ? q(query ~ 'jobq.claim' AND state = 'active') : $mode eq 'listen' ? q(query ~ '^LISTEN') : undef;
	my ($connections, $claims, %begun) = (0, 0);
	my $start = time;

	wait_sql($node, "SELECT count(*) = 1 $mine AND $one", "one session with $one") if $one;
	foreach (1 .. 50 * $PostgreSQL::Test::Utils::timeout_default)
	{
		my ($all, $waiting, @starts) = split /[|,]/, sql("SELECT count(*), count(*) FILTER (WHERE query ~ 'jobq.claim' AND state = 'active'),
			string_agg(query_start::text, ',') FILTER (WHERE query ~ 'jobq.claim') $mine");

		$begun{$_} = 1 foreach @starts;
		$connections = $all if $all > $connections;
		$claims = $waiting if $waiting > $claims;
		last if $_ >= 100 && ($mode ne 'pooler' || keys %begun >= 3);
		Time::HiRes::usleep(20_000);
	}
	must($claims <= 1, "one claim at a time ($claims)");
	must($connections <= $most, "$most connections at most ($connections)");
	must(time - $start < 20, sprintf('no claim waits (%d in %.1f s)', scalar keys %begun, time - $start)) if $mode eq 'pooler';
	lease_goes_on($slow[0][0], 4);
	open_gate($_->[1]) foreach @slow;
	ends($_->[0], 'completed', 'runs = 1') foreach @slow;
	return stop_worker($worker);
}

sub sigterm_idle
{
	my $worker = worker(types => 'echo');

	echoes();
	stop_worker($worker);
	wait_log($worker, $_) foreach 'stopping', 'stopped';
	return;
}

sub sigterm_finishes
{
	my $worker = worker(types => 'slow,echo', concurrency => 2);
	my ($id, $gate) = slow_job($worker);

	signal_worker($worker, 'TERM');
	wait_log($worker, 'stopping');
	my $left = enqueue('echo', '{}');
	open_gate($gate);
	must(exit_of($worker) == 0, 'the worker ends with code 0');
	ends($id, 'completed', 'runs = 1', '!');
	return ends($left, 'pending', 'attempts = 0');
}

sub sigterm_releases
{
	my $worker = worker(types => 'slow', grace => 0.2);
	my ($id) = slow_job($worker);

	stop_worker($worker);
	wait_log($worker, $_, job_id => $id) foreach 'handler_stopped', 'job_released';
	return ends($id, 'pending', 'attempts = 0 AND runs = 1', '!');
}

# What the handler reports last, when it is stopped, is there for the next attempt.
sub sigterm_keeps_progress
{
	my $worker = worker(types => 'chat', grace => 0.2);
	my $id = enqueue('chat', '{}');

	wait_log($worker, 'job_started', job_id => $id);
	stop_worker($worker);
	wait_log($worker, 'job_released', job_id => $id);
	return ends($id, 'pending', 'attempts = 0 AND progress = 40');
}

# The handler ends with an error of its own when it is stopped: that is the stop's, not a failure.
sub sigterm_rude_handler
{
	my $worker = worker(types => 'rude', grace => 0.2);
	my $id = enqueue('rude', '{}');

	wait_log($worker, 'job_started', job_id => $id);
	stop_worker($worker);
	wait_log($worker, 'job_released', job_id => $id);
	return ends($id, 'pending', 'attempts = 0 AND runs = 1', '!');
}

# What a handler does between its stop and its end is kept: a checkpoint, a skip, a snooze.
sub ends_after_sigterm
{
	my $worker = worker(types => 'rude', grace => 0.2, concurrency => 3);
	my ($checkpoint, $skip, $snooze) = my @ids = map { enqueue('rude', qq({"end": "$_"})) } qw(checkpoint skip snooze);

	wait_log($worker, 'job_started', job_id => $_) foreach @ids;
	stop_worker($worker);
	ends($checkpoint, 'pending', q(attempts = 0 AND progress_data = '{"step": 1}'));
	ends($skip, 'skipped', 'runs = 1');
	ends($snooze, 'pending', q(attempts = 0 AND scheduled_for > now() + '50 min'));
	wait_log($worker, "job_$_->[0]", job_id => $_->[1]) foreach [ released => $checkpoint ], [ skipped => $skip ], [ snoozed => $snooze ];
	return;
}

sub cancel_rude_handler
{
	my $worker = worker(types => 'rude', lease => 3);
	my $id = enqueue('rude', '{}');

	wait_log($worker, 'job_started', job_id => $id);
	sql("SELECT jobq.cancel_job('$id', 'no longer needed')");
	wait_log($worker, 'job_cancelled', job_id => $id);
	ends($id, 'cancelled', 'runs = 1');
	return stop_worker($worker);
}

# The signal comes when psql has the answer of the claim and is about to end; several times,
# because it is a race.
# Then it comes when psql has no answer: the worker ends after its grace period.
sub sigterm_in_psql
{
	my $dir = PostgreSQL::Test::Utils::tempdir();

	append_to_file("$dir/psql", <<"END");
#!/bin/bash
script=\$(cat)
[[ \$script != *jobq.claim* || ! -e $dir/hang ]] || { kill -TERM \$(ps -o ppid= -p \$PPID); exec sleep 1000; }
PATH=\${PATH#*:} psql "\$@" <<<"\$script" || exit
[[ \$script != *jobq.claim* ]] || kill -TERM \$(ps -o ppid= -p \$PPID)
END
	chmod 0755, "$dir/psql";
	local $ENV{PATH} = "$dir:$ENV{PATH}";
	foreach (1 .. 8)
	{
		my $id = enqueue('slow', '{"gate": "none"}');
		my $status = exit_of(worker(types => 'slow', grace => 0.2));

		must($status == 0, "the worker ends with code 0 (wait status $status)");
		ends($id, 'pending', 'attempts = 0');
		sql("SELECT jobq.cancel_job('$id')");
	}
	append_to_file("$dir/hang", '');
	my $status = exit_of(worker(types => 'slow', grace => 0.2));
	return must($status == 0, "without an answer it ends with code 0, too (wait status $status)");
}

# Jobs that were claimed ahead run in order, a cancelled one does not, and a stop releases the rest.
sub claims_ahead
{
	my @gates = map { 'gate' . ++$gates_used } 1 .. 4;
	my @ids = map { enqueue('slow', qq({"gate": "$_"})) } @gates;
	my $worker = worker(types => 'slow', prefetch => 3, lease => 3);

	wait_sql($node, "SELECT count(*) = 4 FROM jobq.jobs WHERE status = 'running'", 'four jobs are claimed');
	wait_log($worker, 'job_started', job_id => $ids[0]);
	my $after = sql("SELECT jobq.cancel_job('$ids[1]'), clock_timestamp() + '3 s'") =~ s/.*\|//r;
	wait_sql($node, "SELECT lease_expires_at > '$after' FROM jobq.queue WHERE id = '$ids[3]'", 'a heartbeat');
	wait_log($worker, 'job_cancelled', job_id => $ids[1]);
	open_gate($gates[0]);
	wait_log($worker, 'job_started', job_id => $ids[2]);
	ends($ids[1], 'cancelled', 'runs = 1');
	signal_worker($worker, 'TERM');
	wait_log($worker, 'job_released', job_id => $ids[3]);
	open_gate($gates[2]);
	must(exit_of($worker) == 0, 'the worker ends with code 0');
	my $started = grep { /"job_started"/ } split /\n/, slurp_file($worker->{log});
	must($started == 2, "two handlers began ($started)");
	ends($ids[2], 'completed', 'runs = 1');
	ends($ids[3], 'pending', 'attempts = 0');
	return sql("SELECT jobq.cancel_job('$ids[3]')");
}

# The server gives no job to a waiting claim whose client is gone.
sub killed_in_claim
{
	my $worker = worker(types => 'echo', lease => 600);

	wait_log($worker, 'started');
	wait_sql($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = '$worker->{name}' AND query ~ 'jobq.claim'
		AND state = 'active'", 'the claim waits');
	signal_worker($worker, '-KILL');
	must(exit_of($worker) == 9, 'it is killed');
	my $id = enqueue('echo', '{}');
	my $second = worker(types => 'echo');
	ends($id, 'completed', 'runs = 1', '!');
	return stop_worker($second);
}

sub terminated_in_claim
{
	my $worker = worker(types => 'echo');

	wait_log($worker, 'started');
	terminate($worker, $mode eq 'listen' ? q(query ~ '^LISTEN') : q(query ~ 'jobq.claim' AND state = 'active'));
	wait_log($worker, 'reconnecting');
	echoes();
	return stop_worker($worker);
}

sub terminated_in_run
{
	my $worker = worker(types => 'slow,echo', lease => 60, concurrency => 2, $mode eq 'listen' ? (poll => 1) : ());
	my ($id, $gate) = slow_job($worker);

	terminate($worker, 'true');
	open_gate($gate);
	ends($id, 'completed', 'runs = 1', '!');
	echoes();
	return stop_worker($worker);
}

# A lock of its row delays the completion.  After the reconnect the same attempt completes the job.
sub terminated_in_complete
{
	my $worker = worker(types => 'slow,echo');
	my ($id, $gate) = slow_job($worker);
	my $holder = $node->background_psql('postgres');

	$holder->query_safe("BEGIN; SELECT FROM jobq.queue WHERE id = '$id' FOR UPDATE");
	open_gate($gate);
	terminate($worker, q(wait_event_type = 'Lock' AND query ~ 'jobq.complete'));
	wait_log($worker, 'reconnecting');
	$holder->query_safe('ROLLBACK');
	$holder->quit;
	ends($id, 'completed', 'runs = 1', '!');
	echoes();
	return stop_worker($worker);
}

sub terminated_in_effect
{
	my $holder = $node->background_psql('postgres');
	$holder->query_safe('SELECT pg_advisory_lock(16)');
	my $worker = worker(types => 'effect');
	my $id = enqueue('effect', '{}');

	terminate($worker, q(wait_event = 'advisory'));
	wait_log($worker, 'job_failed', job_id => $id, outcome => 'retry');
	$holder->query_safe('SELECT pg_advisory_unlock(16)');
	$holder->quit;
	ends($id, 'completed', q(runs > 1 AND result = '{"effect": true}'));
	must(sql("SELECT count(*) FROM effects WHERE job = '$id'") eq '1', '!its effect is there once');
	return stop_worker($worker);
}

sub server_restart
{
	my $worker = worker(types => 'slow,echo', $mode eq 'listen' ? (poll => 1) : ());

	foreach my $way ('fast', 'immediate')
	{
		my ($id, $gate) = slow_job($worker);

		$node->stop($way);
		$node->start;
		open_gate($gate);
		ends($id, 'completed', 'runs = 1', '!');
	}
	echoes();
	return stop_worker($worker);
}

# The server dies, and its standby is promoted: the worker finds it, and its job is completed there.
sub failover
{
	my ($primary, $standby) = failover_pair();
	my $dsn = sprintf 'postgresql:///postgres?host=%s,%s&port=%d,%d&user=%s&target_session_attrs=read-write&application_name=failover',
	  $primary->host, $standby->host, $primary->port, $standby->port, scalar getpwuid($<);
	my $usual = $node;

	$node = $primary;
	my $worker = worker(types => 'slow,echo', dsn => $dsn);
	my $done = eval {
		my ($id, $gate) = slow_job($worker);

		$primary->wait_for_catchup($standby);
		$primary->stop('immediate');
		$standby->promote;
		$node = $standby;
		open_gate($gate);
		ends($id, 'completed', 'runs = 1', '!');
		echoes();
		stop_worker($worker);
	};
	my $error = $@;
	$node = $usual;
	$_->stop('immediate') foreach $primary, $standby;
	die $error unless $done;
	return;
}

# The connections of a worker with a finished job end while its role may not log in: the job is
# completed when it may again.
sub logins_refused
{
	sql('CREATE ROLE locked SUPERUSER LOGIN');
	my $done = eval {
		my $worker = worker(types => 'slow', lease => 60, dsn => uri($node, 'locked') =~ s/user=[^&]*/user=locked/r);
		my ($id, $gate) = slow_job($worker);

		sql(q{ALTER ROLE locked NOLOGIN; SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'locked'});
		open_gate($gate);
		wait_for(sub { log_lines($worker, 'settlement_failed') || 3 <= map { log_lines($worker, $_) } qw(reconnecting connect_failed) },
			'it tries to connect again');
		sql('ALTER ROLE locked LOGIN');
		ends($id, 'completed', 'runs = 1', '!');
		stop_worker($worker);
	};
	my $error = $@;
	end_workers($pooler->{pid});
	sql(q{SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = 'locked'; DROP ROLE locked});
	die $error unless $done;
	return;
}

# Returns a server with the types of failover(), and its standby.
sub failover_pair
{
	my $pair = "$client->{name}_" . ++$pairs_used;
	my $primary = jobq_server("primary_$pair", 'jobq.max_concurrent = 100');
	my $standby = PostgreSQL::Test::Cluster->new("standby_$pair");

	$primary->start;
	$primary->safe_psql('postgres', 'CREATE EXTENSION jobq');
	$primary->safe_psql('postgres', "SELECT jobq.create_job_type(name) FROM unnest('{slow,echo}'::text[]) AS name");
	wait_dispatcher($primary, 'postgres', 'the dispatcher of the primary runs');
	$primary->backup('base');
	$standby->init_from_backup($primary, 'base', has_streaming => 1);
	$standby->start;
	return ($primary, $standby);
}

# ---------- endings, and servers that do not answer ----------

# Runs the test worker's command line; returns its output.
sub command_line
{
	my %env = (%{ $client->{env} // {} }, JOBQ_DSN => uri($node, 'enqueue'), JOBQ_TYPES => 'echo', JOBQ_DIR => gates());
	local @ENV{ keys %env } = values %env;
	my ($out, $err) = run_command([ @{ $client->{command} }, @_ ]);

	diag($err) if $err;
	return $out;
}

sub skips
{
	my $worker = worker(types => 'skip');
	my $id = enqueue('skip', '{}');

	ends($id, 'skipped', 'runs = 1');
	wait_log($worker, 'job_skipped', job_id => $id);
	must(sql("SELECT count(*) = 1 FROM jobq.events e WHERE job_id = '$id' AND type = 'skipped' AND e::text ~ 'not needed'") eq 't', 'its reason')
	  or diag(sql("SELECT jsonb_agg(e) FROM jobq.events e WHERE job_id = '$id'"));
	return stop_worker($worker);
}

sub snoozes
{
	my $worker = worker(types => 'snooze');

	foreach my $delay ('"1 hour"', '3600')
	{
		my $id = enqueue('snooze', qq({"delay": $delay}));

		wait_log($worker, 'job_snoozed', job_id => $id);
		ends($id, 'pending', q(attempts = 0 AND scheduled_for BETWEEN now() + '50 min' AND now() + '1 hour'));
	}
	return stop_worker($worker);
}

sub reports_progress
{
	my $worker = worker(types => 'progress', lease => 2);
	my $gate = 'gate' . ++$gates_used;
	my $id = enqueue('progress', qq({"gate": "$gate"}));

	wait_sql($node, "SELECT progress = 30 FROM jobq.jobs WHERE id = '$id'", 'the progress is there');
	open_gate($gate);
	ends($id, 'completed', 'progress = 30 AND runs = 1');
	return stop_worker($worker);
}

# A handler that reports all the time sends the last value, and few of those before it.
sub floods_progress
{
	my $worker = worker(types => 'progress');
	my $id = enqueue('progress', '{"times": 20000}');

	ends($id, 'completed', 'progress = 100 AND runs = 1');
	my $sent = sql("SELECT count(*) FROM jobq.events WHERE job_id = '$id' AND type = 'progress'");
	must($sent < 2000, "few are sent ($sent)");
	return stop_worker($worker);
}

sub logs_events
{
	my $worker = worker(types => 'log');
	my $id = enqueue('log', '{}');

	ends($id, 'completed', 'runs = 1');
	must(sql("SELECT string_agg(level || ' ' || message, ', ' ORDER BY id) FROM jobq.events WHERE job_id = '$id' AND type = 'log'") eq
		  q(info it's here, warning half way), 'two events in their order')
	  or diag(sql("SELECT jsonb_agg(e) FROM jobq.events e WHERE job_id = '$id'"));
	must(sql(qq(SELECT data = '{"n": [1]}' FROM jobq.events WHERE job_id = '$id' AND level = 'warning')) eq 't', 'with data');
	return stop_worker($worker);
}

sub enqueues_many
{
	my $worker = worker(types => 'echo');
	my @payloads = ('1', 'null', q({"it's": "\ud83d\ude00"}));
	my @ids = split /\n/, command_line('enqueue_many', 'echo', '[' . join(', ', @payloads) . ']', '{"priority": 7}');

	must(@ids == 3, 'three ids');
	ends($ids[$_], 'completed', 'result = payload AND priority = 7 AND payload = $$' . $payloads[$_] . '$$') foreach 0, 2;
	ends($ids[1], 'completed', q(payload = 'null'));
	return stop_worker($worker);
}

# One element of a batch fails for good; the others are completed.
sub mixed_batch
{
	sql(q(SELECT count(*) FROM jobq.enqueue_many('mixed', ARRAY(SELECT jsonb_build_object('n', n) FROM generate_series(1, 3) n))));
	my $worker = worker(types => 'mixed,echo');

	wait_empty('mixed');
	my $ended = sql(qq(SELECT string_agg(format('%s %s %s', payload->>'n', status, runs), ', ' ORDER BY payload->>'n') FROM jobq.jobs
		WHERE job_type = 'mixed' AND created_at > '$began'));
	must($ended eq '1 completed 1, 2 error 1, 3 completed 1', "one has failed ($ended)");
	echoes();
	return stop_worker($worker);
}

# Two types with batches of the same size share the worker's slots.
sub two_batch_types
{
	my $gate = 'gate' . ++$gates_used;
	sql(qq(SELECT count(*) FROM jobq.enqueue_many('$_', ARRAY(SELECT jsonb_build_object('n', n, 'gate', '$gate') FROM generate_series(11, 13) n))))
	  foreach 'mixed', 'other';
	my $worker = worker(types => 'mixed,other');

	wait_log($worker, 'claimed');
	must(log_lines($worker, 'claimed', jobs => 3) == 1, 'one batch');
	open_gate($gate);
	wait_empty($_) foreach 'mixed', 'other';
	return stop_worker($worker);
}

# The handler's report beside its failure cannot be stored: the failure stays a retryable one.
sub malformed_failure
{
	my $worker = worker(types => 'malformed');
	my $id = enqueue('malformed', '{}');

	ends($id, 'retry', q(runs = 1 AND error_msg ~ 'boom' AND progress_data = '{"step": 1}'));
	return stop_worker($worker);
}

# A skip or a snooze that the server refuses fails the job for good, with the server's error.
sub refused_ending
{
	my $worker = worker(types => 'badskip,badsnooze,badcode,longcode,echo');
	my ($snooze, $skip, $code, $long) = map { enqueue($_, '{}') } qw(badsnooze badskip badcode longcode);

	ends($snooze, 'error', q(runs = 1 AND error_msg ~ '1 huor' AND error_code = '22007'));
	ends($skip, 'error', q(runs = 1 AND error_code IN ('22P05', '22P02', '22023', '22021')));
	ends($code, 'error', q(runs = 1 AND error_code = '404' AND error_msg = 'gone'));
	ends($long, 'error', q(runs = 1 AND error_code = repeat('x', 255) AND error_msg = 'gone'));
	echoes();
	return stop_worker($worker);
}

# A checkpoint and metadata larger than an argument or a variable of a process may be.
sub large_checkpoint
{
	my $worker = worker(types => 'big,echo');
	my $id = sql(q(SELECT jobq.enqueue('big', metadata => jsonb_build_object('k', repeat('m', 150000)))));

	ends($id, 'completed', q(attempts = 2 AND result = '{"length": 200000, "metadata": 150000}'));
	echoes();
	return stop_worker($worker);
}

# A hook fails before its job, then after it, then before one of a batch: the others of it go on.
sub failing_hook
{
	my $worker = worker(types => 'echo,mixed', lease => 600);
	my $id = enqueue('echo', '{"hook": "raise"}');

	wait_log($worker, 'hook_failed', job_id => $id);
	wait_log($worker, 'job_failed', job_id => $id, outcome => 'retry');
	ends($id, 'error', q(error_msg ~ 'no span' AND runs = 3));
	$id = enqueue('echo', '{"hook": "raise at the end"}');
	ends($id, 'completed', 'runs = 1');
	wait_log($worker, 'hook_failed', job_id => $id);
	my ($good, $bad) = split /\n/, sql(q(SELECT jobq.enqueue_many('mixed', ARRAY['{"n": 1}', '{"n": 3, "hook": "raise"}']::jsonb[])));
	ends($bad, 'retry', q(error_msg ~ 'no span' AND runs = 1));
	ends($good, 'completed', 'runs = 1');
	wait_log($worker, 'hook_failed', job_id => $bad);
	echoes();
	return stop_worker($worker);
}

# The token ends while the handler's transaction is open: complete is false, and the transaction is
# rolled back.
sub lost_in_complete
{
	my $holder = $node->background_psql('postgres');
	$holder->query_safe('SELECT pg_advisory_lock(16)');
	my $worker = worker(types => 'effect,echo');
	my $id = enqueue('effect', '{}');

	wait_sql($node, q(SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'advisory' AND query ~ 'INSERT'), 'the handler waits');
	must(sql("SELECT jobq.complete(id, lease_token, '{\"other\": true}') FROM jobq.queue WHERE id = '$id'") eq 't', 'the token ends');
	$holder->query_safe('SELECT pg_advisory_unlock(16)');
	$holder->quit;
	wait_log($worker, 'job_lost', job_id => $id);
	ends($id, 'completed', q(runs = 1 AND result = '{"other": true}'));
	must(sql('SELECT count(*) FROM effects') eq '0', 'the effect is rolled back');
	echoes();
	return stop_worker($worker);
}

# A completion of the handler's own fails: heartbeats go on, and the return value settles the job.
sub failed_own_complete
{
	my $worker = worker(types => 'swallow,echo', lease => 3);
	my $gate = 'gate' . ++$gates_used;
	my $id = enqueue('swallow', qq({"gate": "$gate", "how": "refused"}));

	wait_log($worker, 'swallowed', job_id => $id);
	lease_goes_on($id, 10);
	open_gate($gate);
	ends($id, 'completed', q(runs = 1 AND result = '{"swallowed": true}' AND progress_data = '{"after": true}'));
	$id = enqueue('swallow', qq({"gate": "$gate", "how": "rolled back"}));
	ends($id, 'completed', q(runs = 1 AND result = '{"swallowed": true}'));
	must(sql('SELECT count(*) FROM effects') eq '0', 'no effect');
	$id = enqueue('swallow', qq({"gate": "$gate", "how": "checkpoint"}));
	ends($id, 'completed', q(runs = 1 AND result = '{"own": true}'));
	wait_log($worker, 'late_checkpoint', job_id => $id);
	must(sql('SELECT count(*) FROM effects') eq '1', 'one effect');
	return stop_worker($worker);
}

# The next heartbeat is 1,000 s away: the client itself knows the deadline.
sub deadline
{
	my $worker = worker(types => 'slow,echo', lease => 3000);
	my $id = sql(q(SELECT jobq.enqueue('slow', '{"gate": "none"}', timeout => '2s')));

	wait_log($worker, 'handler_stopped', job_id => $id, reason => 'lost');
	wait_log($worker, 'job_lost', job_id => $id);
	ends($id, 'retry', q(runs = 1 AND error_code = 'timeout'));
	echoes();
	return stop_worker($worker);
}

# A command that does not end at SIGTERM is killed after its lease or deadline.
sub ignores_sigterm
{
	my $worker = worker(types => 'stubborn,echo', lease => 3000);
	my $id = sql(q(SELECT jobq.enqueue('stubborn', timeout => '1s')));

	wait_log($worker, 'job_lost', job_id => $id);
	echoes();
	return stop_worker($worker);
}

# The second SIGTERM ends the grace.
sub second_sigterm
{
	my $worker = worker(types => 'slow', grace => 1000);
	my ($id) = slow_job($worker);

	signal_worker($worker, 'TERM');
	wait_log($worker, 'stopping');
	stop_worker($worker);
	wait_log($worker, 'job_released', job_id => $id);
	return ends($id, 'pending', 'attempts = 0 AND runs = 1', '!');
}

# Holds the row of the job until a heartbeat waits for it; returns the session.
sub held_heartbeat
{
	my ($worker, $id) = @_;
	my $holder = $node->background_psql('postgres');

	$holder->query_safe("BEGIN; SELECT FROM jobq.queue WHERE id = '$id' FOR UPDATE");
	waits_in($worker, 'jobq.heartbeat');
	return $holder;
}

# Waits until a backend of the worker waits for a row lock in the function.
sub waits_in
{
	my ($worker, $function) = @_;

	return wait_sql($node, "SELECT count(*) > 0 FROM pg_stat_activity WHERE " . in_function($worker, $function), "$function waits");
}

sub in_function { return "application_name = '$_[0]{name}' AND wait_event_type = 'Lock' AND query ~ '$_[1]'"; }

# Stops a backend of the worker that waits for a row lock in the function; returns its pid.
sub stopped_in
{
	my ($worker, $function) = @_;

	foreach (1 .. 50 * $PostgreSQL::Test::Utils::timeout_default)
	{
		my ($pid) = split /\n/, sql('SELECT pid FROM pg_stat_activity WHERE ' . in_function($worker, $function));

		return $pid if $pid && kill('STOP', $pid) && must(1, 'the backend stops');
	}
	return must(0, 'a backend waits');
}

# Waits until the lease ends so long after the start of the attempt.
sub lease_goes_on
{
	my ($id, $seconds) = @_;

	return wait_sql($node, "SELECT status = 'running' AND lease_expires_at > started_at + interval '$seconds s' FROM jobq.jobs WHERE id = '$id'",
		'the lease is renewed');
}

sub terminated_in_heartbeat
{
	my $worker = worker(types => 'slow,echo', lease => 12);
	my ($id, $gate) = slow_job($worker);
	my $holder = held_heartbeat($worker, $id);

	terminate($worker, q(wait_event_type = 'Lock' AND query ~ 'jobq.heartbeat'));
	wait_log($worker, 'reconnecting');
	$holder->query_safe('ROLLBACK');
	$holder->quit;
	lease_goes_on($id, 20);
	open_gate($gate);
	ends($id, 'completed', 'runs = 1');
	return stop_worker($worker);
}

# The row of one job is locked for longer than a lease: the other job keeps its lease, and the
# locked one is lost.
sub blocked_heartbeat
{
	my $worker = worker(types => 'slow,echo', lease => 6, concurrency => 2);
	my ($locked) = slow_job($worker);
	my ($other, $gate) = slow_job($worker);
	my $holder = held_heartbeat($worker, $locked);

	lease_goes_on($other, 18);
	wait_log($worker, 'handler_stopped', job_id => $locked, reason => 'lost');
	open_gate($gate);
	ends($other, 'completed', 'runs = 1');
	$holder->query_safe('ROLLBACK');
	$holder->quit;
	echoes();
	return stop_worker($worker);
}

# The backend of a heartbeat is stopped: the client gives it up, and connects again.
sub hanging_heartbeat
{
	my $worker = worker(types => 'slow,echo', lease => 40);    # Node and C wait 20 s for an answer
	my ($id, $gate) = slow_job($worker);
	my $holder = held_heartbeat($worker, $id);
	my @stopped = stopped_in($worker, 'jobq.heartbeat');

	$holder->query_safe('ROLLBACK');
	$holder->quit;
	eval { lease_goes_on($id, 50) };
	kill 'CONT', @stopped;
	die $@ if $@;
	open_gate($gate);
	ends($id, 'completed', 'runs = 1');
	return stop_worker($worker);
}

# The backend of a completion is stopped: the completion is sent again on another connection.
sub hanging_complete
{
	my $worker = worker(types => 'slow,echo', lease => 90);
	my ($id, $gate) = slow_job($worker);
	my $holder = $node->background_psql('postgres');

	$holder->query_safe("BEGIN; SELECT FROM jobq.queue WHERE id = '$id' FOR UPDATE");
	open_gate($gate);
	waits_in($worker, 'jobq.complete');
	my @stopped = stopped_in($worker, 'jobq.complete');
	$holder->query_safe('ROLLBACK');
	$holder->quit;
	eval { ends($id, 'completed', 'runs = 1') };
	kill 'CONT', @stopped;
	die $@ if $@;
	echoes();
	return stop_worker($worker);
}

# The pooler stops: the handler ends with its lease all the same, and the worker works again
# afterwards.
sub hanging_pooler
{
	my $worker = worker(types => 'slow,echo', lease => 3);
	my ($id) = slow_job($worker);

	kill 'STOP', $pooler->{pid};
	eval {
		wait_log($worker, 'handler_stopped', job_id => $id, reason => 'lost');
		wait_sql($node, "SELECT status = 'retry' AND error_code = 'lease_expired' FROM jobq.jobs WHERE id = '$id'", 'another attempt follows');
	};
	kill 'CONT', $pooler->{pid};
	die $@ if $@;
	wait_log($worker, 'job_lost', job_id => $id);
	echoes();
	return stop_worker($worker);
}

# ---------- scenarios about faults ----------

# A job of that type that runs, and the gate that it waits at.
sub gated_job
{
	my ($worker, $type) = @_;
	my $gate = 'gate' . ++$gates_used;
	my $id = enqueue($type, qq({"gate": "$gate"}));

	wait_log($worker, 'job_started', job_id => $id);
	return ($id, $gate);
}

# A call about a job whose token is lost is not repeated, and does not delay the other jobs.
sub dead_token
{
	my $worker = worker(types => 'note,echo', concurrency => 2);
	my ($id, $gate) = gated_job($worker, 'note');

	must(sql("SELECT jobq.fail(id, lease_token, 'taken away') FROM jobq.queue WHERE id = '$id'") eq 'retry', 'the token is lost');
	open_gate($gate);
	wait_log($worker, 'job_lost', job_id => $id);
	echoes();
	ends($id, 'retry', q(runs = 1 AND error_msg = 'taken away'));
	return stop_worker($worker);
}

# An open transaction has locked a job's row: the other jobs keep their leases, and are completed.
sub locked_row
{
	my $worker = worker(types => 'slow,echo', lease => 3, concurrency => 3);
	my ($locked) = slow_job($worker);
	my ($id, $gate) = slow_job($worker);
	my $holder = $node->background_psql('postgres');

	$holder->query_safe("BEGIN; SELECT jobq.cancel_job('$locked')");
	wait_sql($node, "SELECT lease_expires_at > started_at + interval '8 s' FROM jobq.queue WHERE id = '$id'", 'the other lease is renewed');
	echoes();
	open_gate($gate);
	ends($id, 'completed', 'runs = 1');
	$holder->query_safe('COMMIT');
	$holder->quit;
	wait_log($worker, 'handler_stopped', job_id => $locked);
	return stop_worker($worker);
}

# One has locked many rows: each of them takes a heartbeat a short time only.
sub locked_rows
{
	my $worker = worker(types => 'slow,echo', lease => 6, concurrency => 10);
	my @locked = map { (slow_job($worker))[0] } 1 .. 8;
	my ($id, $gate) = slow_job($worker);
	my $holder = $node->background_psql('postgres');

	$holder->query_safe("BEGIN; SELECT FROM jobq.queue WHERE id IN ('" . join("', '", @locked) . "') FOR UPDATE");
	lease_goes_on($id, 18);
	open_gate($gate);
	ends($id, 'completed', 'runs = 1');
	$holder->query_safe('COMMIT');
	$holder->quit;
	wait_log($worker, 'handler_stopped', job_id => $_) foreach @locked;
	return stop_worker($worker);
}

# The same while the locked job waits for its completion.
sub locked_end
{
	my $worker = worker(types => 'slow,echo', lease => 3, concurrency => 3);
	my ($locked, $first_gate) = slow_job($worker);
	my ($id, $gate) = slow_job($worker);
	my $holder = $node->background_psql('postgres');

	$holder->query_safe("BEGIN; SELECT FROM jobq.queue WHERE id = '$locked' FOR UPDATE");
	open_gate($first_gate);
	wait_sql($node, "SELECT lease_expires_at > started_at + interval '8 s' FROM jobq.queue WHERE id = '$id'", 'the other lease is renewed');
	echoes();
	open_gate($gate);
	ends($id, 'completed', 'runs = 1');
	$holder->query_safe('COMMIT');
	$holder->quit;
	wait_log($worker, 'job_lost', job_id => $locked);
	return stop_worker($worker);
}

# With a long lease, too: the ends of other jobs do not wait for it.
sub locked_end_of_many
{
	my $worker = worker(types => 'slow,echo', concurrency => 3);
	my ($locked, $gate) = slow_job($worker);
	my $holder = $node->background_psql('postgres');

	$holder->query_safe("BEGIN; SELECT FROM jobq.queue WHERE id = '$locked' FOR UPDATE");
	open_gate($gate);
	waits_in($worker, '(complete|snooze)');
	my $start = time;
	echoes() foreach 1 .. 3;
	must(time - $start < 15, sprintf('they are told (%.1f s)', time - $start));
	$holder->query_safe('COMMIT');
	$holder->quit;
	ends($locked, 'completed', 'runs = 1');
	return stop_worker($worker);
}

# An end of the attempt that the server or JSON refuses is a permanent failure.
sub refused_end
{
	my $worker = worker(types => 'refused');
	my @jobs = map { enqueue('refused', qq({"end": "$_"})) } 'snooze', 'skip';

	ends($_, 'error', q(runs = 1 AND error_msg ~ 'cannot be stored|refused')) foreach @jobs;
	wait_log($worker, 'job_failed', job_id => $jobs[0], outcome => 'error');
	return stop_worker($worker);
}

# The completion in the handler's transaction fails: heartbeats go on, and the handler's end
# settles the job.
sub failed_complete
{
	my $worker = worker(types => 'broken', lease => 1);
	my ($id, $gate) = gated_job($worker, 'broken');

	wait_sql($node, "SELECT lease_expires_at > started_at + interval '3 s' FROM jobq.jobs WHERE id = '$id'", 'the lease is renewed');
	open_gate($gate);
	ends($id, 'completed', q(runs = 1 AND result = '{"after": true}'));
	return stop_worker($worker);
}

# A thread of the handler asks for the stop while another one completes, again and again.
sub threads_of_a_handler
{
	my $gate = 'gate' . ++$gates_used;
	my $worker = worker(types => 'broken');
	my $id = enqueue('broken', qq({"gate": "$gate", "how": "watched"}));

	open_gate($gate);
	ends($id, 'completed', 'runs = 1');
	return stop_worker($worker);
}

# The completion in the handler's transaction succeeds; that transaction decides.  If it was rolled
# back, the return value completes the job.
sub own_completion
{
	my $worker = worker(types => 'swallow,echo', lease => 120);
	my $gate = 'gate' . ++$gates_used;

	open_gate($gate);
	my $id = enqueue('swallow', qq({"gate": "$gate", "how": "rolled back"}));
	ends($id, 'completed', q(runs = 1 AND result = '{"swallowed": true}'));
	wait_log($worker, 'job_completed', job_id => $id);
	must(sql('SELECT count(*) FROM effects') eq '0', 'no effect');
	$id = enqueue('swallow', qq({"gate": "$gate", "how": "kept"}));
	ends($id, 'completed', q(runs = 1 AND result = '{"own": true}'));
	wait_log($worker, 'job_completed', job_id => $id);
	must(sql('SELECT count(*) FROM effects') eq '1', 'one effect');
	return stop_worker($worker);
}

# That transaction stays open beyond the lease, and commits.
sub late_commit
{
	my $worker = worker(types => 'swallow,echo', lease => 2);
	my $gate = 'gate' . ++$gates_used;
	my $id = enqueue('swallow', qq({"gate": "$gate", "how": "late"}));

	wait_sql($node, "SELECT lease_expires_at < clock_timestamp() - interval '200 ms' FROM jobq.queue WHERE id = '$id'", 'the lease is over');
	open_gate($gate);
	ends($id, 'completed', q(runs = 1 AND result = '{"own": true}'));
	wait_log($worker, 'job_completed', job_id => $id);
	must(log_lines($worker, 'job_lost') == 0, 'no job is lost');
	echoes();
	return stop_worker($worker);
}

# Progress after its own completion does not lose the job, and does not wait for the commit.
sub reports_after_completion
{
	my $worker = worker(types => 'swallow,echo');
	my $gate = 'gate' . ++$gates_used;

	open_gate($gate);
	foreach ('reported', $client->{name} eq 'node' ? 'reported before' : ())
	{
		my $id = enqueue('swallow', qq({"gate": "$gate", "how": "$_"}));
		ends($id, 'completed', q(runs = 1 AND result = '{"own": true}'));
		wait_log($worker, 'job_completed', job_id => $id);
	}
	must(log_lines($worker, 'job_lost') == 0, 'no job is lost');
	echoes();
	return stop_worker($worker);
}

# The handler completes its job in a transaction that rolls back, after a first try perhaps, and
# ends without a word: the job has failed.
sub silent_rollback
{
	my $worker = worker(types => 'swallow,echo');

	foreach ('silent rolled back', 'silent again rolled back')
	{
		ends(enqueue('swallow', qq({"how": "$_"})), 'retry', q(runs = 1 AND attempts = 1 AND error_msg ~ 'was not committed'));
		must(sql('SELECT count(*) FROM effects') eq '0', 'no effect');
	}
	my $id = enqueue('swallow', '{"how": "silent"}');
	ends($id, 'completed', q(runs = 1 AND result = '{"own": true}'));
	wait_log($worker, 'job_completed', job_id => $id);
	must(sql('SELECT count(*) FROM effects') eq '1', 'one effect');
	return stop_worker($worker);
}

# A batch completes its jobs in one transaction, which rolls back because one of them is lost: the
# others are released and worked again, uncharged.
sub lost_job_of_a_batch
{
	my $gate = 'gate' . ++$gates_used;
	my @ids = split /\n/, sql(qq(SELECT jobq.enqueue_many('together', array_fill('{"gate": "$gate"}'::jsonb, ARRAY[3]))));
	my $worker = worker(types => 'together');

	wait_log($worker, 'job_started', job_id => $_) foreach @ids;
	must(sql("SELECT jobq.fail(id, lease_token, 'taken away') FROM jobq.queue WHERE id = '$ids[1]'") eq 'retry', 'a token is lost');
	open_gate($gate);
	wait_log($worker, 'job_lost', job_id => $ids[1]);
	foreach (@ids[ 0, 2 ])
	{
		wait_log($worker, 'job_released', job_id => $_);
		ends($_, 'completed', 'attempts = 1 AND runs = 2');
	}
	ends($ids[1], 'retry', q(runs = 1 AND error_msg = 'taken away'));
	must(sql('SELECT count(*) FROM effects') eq '2', 'two effects');
	return stop_worker($worker);
}

# A type is dropped: the worker goes on, and works its types when the claim is good again.
sub claim_refused
{
	my $worker = worker(types => 'echo,flaky');

	ends(enqueue('echo', '{"n": 1}'), 'completed', 'runs = 1');
	sql(q{SELECT jobq.drop_job_type('flaky', force => true)});
	my $early;
	my $refused = eval {
		wait_log($worker, 'claim_refused');
		$early = worker(types => 'echo,flaky');
		wait_log($early, 'stopped');
	};
	sql(q{SELECT jobq.create_job_type('flaky', max_attempts => 3, backoff => 'fixed', backoff_base => '1h', backoff_jitter => 0, timeout => '30min')});
	must($refused, 'the log has the refused claim') or return;
	my $status = $early && exit_of($early);
	must($status && $status > 0, 'a worker whose first claim is refused ends with an error');
	wait_log($early, 'claim_refused');
	ends(enqueue('echo', '{"n": 2}'), 'completed', 'runs = 1');
	ends(enqueue('flaky', '{"retry_after": "10ms"}'), 'completed', 'runs = 2');
	return stop_worker($worker);
}

# An error of the server's system is no refusal: the completion is sent again.
sub passing_errors
{
	my $worker = worker(types => 'echo');

	sql(q{CREATE SEQUENCE tries;
		ALTER FUNCTION jobq.complete RENAME TO hidden_complete;
		ALTER FUNCTION jobq.complete_many RENAME TO hidden_complete_many;
		CREATE FUNCTION fail_twice() RETURNS void LANGUAGE plpgsql AS $$
		DECLARE code text := ('{58030,XX001}'::text[])[nextval('public.tries')];
		BEGIN IF code IS NOT NULL THEN RAISE 'could not read' USING ERRCODE = code; END IF; END $$;
		CREATE FUNCTION jobq.complete(uuid, uuid, jsonb) RETURNS boolean BEGIN ATOMIC
			SELECT public.fail_twice(); SELECT jobq.hidden_complete($1, $2, $3); END;
		CREATE FUNCTION jobq.complete_many(uuid[], uuid[], jsonb[]) RETURNS SETOF uuid BEGIN ATOMIC
			SELECT public.fail_twice(); SELECT jobq.hidden_complete_many($1, $2, $3); END});
	eval { ends(enqueue('echo', '{"n": 1}'), 'completed', 'runs = 1') };
	sql(q{DROP FUNCTION jobq.complete, jobq.complete_many, fail_twice; DROP SEQUENCE tries;
		ALTER FUNCTION jobq.hidden_complete RENAME TO complete;
		ALTER FUNCTION jobq.hidden_complete_many RENAME TO complete_many});
	die $@ if $@;
	return stop_worker($worker);
}

# A role with grants for more tenants than a claim takes: the first claim is refused with 54000.
sub too_many_tenants
{
	sql(q{CREATE ROLE crowded LOGIN}) if sql(q{SELECT to_regrole('crowded') IS NULL}) eq 't';
	sql(q{SELECT jobq.grant_access('crowded', 'work', repeat(n::text, 100)) FROM generate_series(10, 21) n});
	my $worker = worker(types => 'echo', dsn => uri($node, 'worker') =~ s/user=[^&]*/user=crowded/r);
	my $status = exit_of($worker);

	must($status > 0, "the worker ends with an error (wait status $status)");
	return wait_log($worker, 'claim_refused');
}

# The handler reports progress all the time and waits for no answer, also when the job is cancelled.
sub progress_after_a_cancel
{
	my $worker = worker(types => 'chat,echo', lease => 3);
	my $id = enqueue('chat', '{}');

	wait_log($worker, 'job_started', job_id => $id);
	sql("SELECT jobq.cancel_job('$id', 'no longer needed')");
	ends($id, 'cancelled', 'runs = 1');
	echoes();
	return stop_worker($worker);
}

# The database has no encoding, or the environment names another one: texts are UTF-8.
my $no_encoding;

sub encodings
{
	if (!$no_encoding++)
	{
		$node->safe_psql('postgres', q(CREATE DATABASE no_encoding TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'));
		$node->safe_psql('no_encoding', q(CREATE EXTENSION jobq));
		wait_dispatcher($node, 'no_encoding', 'its dispatcher runs');
		$node->safe_psql('no_encoding', q(SELECT jobq.create_job_type('echo')));
	}
	my $euro = encode('UTF-8', qq({"price": "\x{20ac} 5"}));
	my $worker = worker(types => 'echo', dsn => uri($node, 'worker') =~ s{/postgres\b}{/no_encoding}r);
	my $id = $node->safe_psql('no_encoding', "SELECT jobq.enqueue('echo', '$euro')");

	must($node->poll_query_until('no_encoding', "SELECT status = 'completed' AND result = payload FROM jobq.jobs WHERE id = '$id'"),
		'a job of a database without an encoding');
	stop_worker($worker);
	local $ENV{PGCLIENTENCODING} = 'LATIN1';
	$worker = worker(types => 'echo');
	{
		local $ENV{PGCLIENTENCODING} = 'UTF8';
		ends(sql("SELECT jobq.enqueue('echo', '$euro')"), 'completed', 'runs = 1 AND result = payload');
	}
	return stop_worker($worker);
}

# A statement_timeout that is shorter than a claim waits: such an end is no lost connection.
sub statement_timeout
{
	my $log = -s $node->logfile;
	my $worker = worker(types => 'echo', dsn => uri($node, 'worker') . '&options=-c%20statement_timeout%3D300');

	wait_for(sub { 3 <= (() = slurp_file($node->logfile, $log) =~ /canceling statement due to statement timeout/g) },
		'three claims meet it');
	must(log_lines($worker, 'reconnecting') == 0, 'they are no lost connections');
	must(log_lines($worker, 'started') == 1, 'the worker has started once');
	echoes();
	return stop_worker($worker);
}

# The worker starts before its server: it waits without work, and then it works.
sub absent_server
{
	$node->stop('fast');
	my $worker = worker(types => 'echo');
	my @reads = eval {
		map {
			my $tries = $_;

			wait_for(sub { log_lines($worker, 'reconnecting') + log_lines($worker, 'connect_failed') >= $tries }, "$tries tries to connect");
			slurp_file("/proc/$worker->{pid}/io") =~ /^syscr: (\d+)/m;
			$1;
		} 2, 5;
	};
	$node->start;
	must(@reads == 2, 'the log has the tries');
	my $calls = $reads[1] - $reads[0];
	must($calls < 3000, "a loop without a pause would read more often ($calls times)");
	wait_log($worker, 'started');
	echoes();
	return stop_worker($worker);
}

sub wait_for
{
	my ($condition, $what) = @_;

	foreach (1 .. 50 * $PostgreSQL::Test::Utils::timeout_default)
	{
		return must(1, $what) if $condition->();
		Time::HiRes::usleep(20_000);
	}
	return must(0, $what);
}

# Options that would make a worker claim nothing, or claim without a pause.
sub wrong_options
{
	foreach my $option (qw(concurrency lease poll))
	{
		my $status = exit_of(worker(types => 'echo', $option => 0));

		must($status > 0, "$option 0 ends the worker with an error (wait status $status)");
	}
	return;
}

# psql cannot write the answer of a claim, or the worker cannot write a payload: the job is given
# back uncharged, and no command gets a part of it.  The limit is one of the size of files.
sub full_disk
{
	my $dir = PostgreSQL::Test::Utils::tempdir();

	append_to_file("$dir/psql", qq(#!/bin/bash\n[ ! -e $dir/unlimited ] || ulimit -S -f unlimited\nPATH=\${PATH#*:} exec psql "\$@"\n));
	chmod 0755, "$dir/psql";
	local $ENV{PATH} = "$dir:$ENV{PATH}";
	local $client->{command} = [ 'bash', '-c', "trap '' XFSZ; ulimit -S -f 100; exec @{ $client->{command} }" ];
	my $id = sql(q(SELECT jobq.enqueue('echo', to_jsonb(repeat('x', 300000)))));
	my $worker = worker(types => 'echo');

	wait_log($worker, 'claim_refused');
	ends($id, 'pending', 'attempts = 0');
	append_to_file("$dir/unlimited", '');
	wait_log($worker, 'job_released', job_id => $id);
	sql("SELECT jobq.cancel_job('$id')");
	must(log_lines($worker, 'job_started') == 0, 'no command has run');
	echoes();
	return stop_worker($worker);
}

# One file of a job cannot be written: its directory, the end of the lease, the list of jobs.
sub no_room
{
	my $dir = PostgreSQL::Test::Utils::tempdir();

	append_to_file("$dir/mktemp", <<"END");
#!/bin/bash
made=\$(PATH=\${PATH#*:} mktemp "\$@") || exit
if [[ \$made == */new.* ]]; then
  [ ! -e $dir/directory ] || exit 1
  [ ! -e $dir/until ] || ln -s /dev/full "\$made/until"
  [ ! -e $dir/jobs ] || mkdir "\$made/jobs"
fi
echo "\$made"
END
	chmod 0755, "$dir/mktemp";
	local $ENV{PATH} = "$dir:$ENV{PATH}";
	my $worker = worker(types => 'echo');
	foreach my $fault (qw(directory until jobs))
	{
		append_to_file("$dir/$fault", '');
		my $id = enqueue('echo', '{"n": 1}');
		wait_log($worker, 'job_released', job_id => $id);
		must(log_lines($worker, 'job_started', job_id => $id) == 0, 'no command has run');
		unlink "$dir/$fault";
		ends($id, 'completed', 'attempts = 1 AND result = payload');
	}
	wait_log($worker, 'claim_refused');
	return stop_worker($worker);
}

# There is no process for a handler, because the worker has no descriptor left: jobs are released.
sub no_process
{
	local $client->{command} = [ 'bash', '-c', "ulimit -n 8; exec @{ $client->{command} }" ];
	my $worker = worker(types => 'echo');
	my $id = enqueue('echo', '{}');

	wait_log($worker, 'job_released', job_id => $id);
	must(log_lines($worker, 'job_started') + log_lines($worker, 'span_end') == 0, 'no handler has run, and no hook');
	stop_worker($worker);
	return ends($id, 'pending', 'attempts = 0');
}

# Commands have the worker's locale and time zone.
sub environment
{
	local @ENV{qw(LC_ALL TZ)} = ('C.UTF-8', 'Asia/Tokyo');
	my $worker = worker(types => 'variables');

	ends(enqueue('variables', '{}'), 'completed', q(result = '{"LC_ALL": "C.UTF-8", "TZ": "Asia/Tokyo"}'));
	stop_worker($worker);
	delete local @ENV{qw(LC_ALL TZ)};
	$worker = worker(types => 'variables');
	ends(enqueue('variables', '{}'), 'completed', q(result = '{"LC_ALL": "unset", "TZ": "unset"}'));
	return stop_worker($worker);
}

# Numbers with leading zeros are decimal, and no numbers of JSON.
sub leading_zeros
{
	sql(q{SELECT jobq.create_job_type(name) FROM unnest('{007,008}'::text[]) AS name});
	my @ids = map { enqueue($_, '{"n": 1}') } '007', '008';
	my $log = PostgreSQL::Test::Utils::tempdir() . '/zeros';
	my $run = IPC::Run::run([ "$dir/../../clients/shell/jobq-worker", '-d', uri($node, 'zeros'), '-c', '08', '-e', '007=cat', '008*08=cat' ], '2>', $log);

	must($run, 'the worker ends with code 0') or diag slurp_file($log);
	ends($_, 'completed', 'result = payload') foreach @ids;
	my @lines = split /\n/, slurp_file($log);
	my @wrong = grep { !eval { decode_json($_) } } @lines;
	must(@lines > 0 && !@wrong, 'each line of its log is JSON') or diag join "\n", @wrong;
	return;
}

# A job waits for another one.
sub enqueues_after
{
	my $worker = worker(types => 'echo,fail');
	my $parent = sql(q{SELECT jobq.enqueue('fail', delay => '1h')});
	my ($child, $strict) = map { enqueue_by_client('echo', '{"child": true}', qq({"after": ["$parent"], "after_rule": "$_"})) } 'done', 'success';

	must(sql("SELECT string_agg(status::text, ' ') FROM jobq.jobs WHERE id IN ('$child', '$strict')") eq 'blocked blocked', 'they wait');
	sql("SELECT jobq.alter_job('$parent', scheduled_for => now())");
	ends($child, 'completed', 'runs = 1');
	ends($strict, 'blocked', 'runs = 0');    # until its parent is retried or purged
	sql("SELECT jobq.cancel_job('$strict')");
	return stop_worker($worker);
}

# Progress and events that a handler reports while the server is down arrive later.
sub reports_while_down
{
	my $worker = worker(types => 'report', lease => 30);    # the shell reports with its next heartbeat
	my ($id, $gate) = gated_job($worker, 'report');

	$node->stop('fast');
	open_gate($gate);
	wait_for(sub { -e gates() . "/$gate.reported" }, 'the handler has reported');
	$node->start;
	wait_sql($node, "SELECT progress = 50 AND progress_data = '{\"step\": 1}' FROM jobq.jobs WHERE id = '$id'", 'progress is stored');
	wait_sql($node, "SELECT count(*) = 1 FROM jobq.job_timeline('$id') WHERE message = 'reported'", 'the event is stored');
	open_gate("$gate.end");
	ends($id, 'completed', 'runs = 1');
	return stop_worker($worker);
}

sub heartbeat_refused
{
	my $worker = worker(types => 'slow', lease => 3);
	my ($id, $gate) = slow_job($worker);

	sql('ALTER FUNCTION jobq.heartbeat RENAME TO hidden_heartbeat');
	eval { wait_log($worker, 'heartbeat_refused') };
	sql('ALTER FUNCTION jobq.hidden_heartbeat RENAME TO heartbeat');
	must($@ eq '', 'the log has the error');
	open_gate($gate);
	ends($id, 'completed', 'runs = 1');
	return stop_worker($worker);
}

# New connections get no answer, as from a machine that is gone; a stop has its time all the same.
sub sigterm_without_answers
{
	my $session = $node->background_psql('postgres');
	my $worker = worker(types => 'slow', grace => 0.2, concurrency => 2);
	my ($id) = slow_job($worker);
	my $postmaster = (split /\n/, slurp_file($node->data_dir . '/postmaster.pid'))[0];

	kill 'STOP', $postmaster;
	my $ended = eval {
		$session->query_safe("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = '$worker->{name}'");
		wait_log($worker, 'reconnecting');
		my $start = time;
		signal_worker($worker, 'TERM');
		my $status = exit_of($worker);
		must($status == 0, "the worker ends with code 0 (wait status $status)");
		must(time - $start < 20, sprintf('within its time (%.1f s)', time - $start));
	};
	my $error = $@;
	kill 'CONT', $postmaster;
	$session->quit;
	die $error unless $ended;
	return;
}

# A claim waits whose backend does not answer, beside a handler: the grace begins at the signal.
sub sigterm_in_a_silent_claim
{
	my $worker = worker(types => 'slow', grace => 0.2, concurrency => 2);
	my ($id) = slow_job($worker);
	my $claims = "FROM pg_stat_activity WHERE application_name = '$worker->{name}' AND query ~ 'jobq.claim' AND state = 'active'";

	wait_sql($node, "SELECT count(*) = 1 $claims", 'a claim waits');
	my $backend = sql("SELECT pid $claims");
	kill 'STOP', $backend;
	my $start = time;
	signal_worker($worker, 'TERM');
	my $status = eval { exit_of($worker) };
	my $seconds = time - $start;
	kill 'CONT', $backend;
	must($status == 0, "the worker ends with code 0 (wait status $status)");
	must($seconds < 15, sprintf('within its time (%.1f s)', $seconds));
	return ends($id, 'pending', 'attempts = 0 AND runs = 1', '!');
}

sub sigterm_deaf_handler
{
	my $worker = worker(types => 'deaf', grace => 0.2);
	my $id = enqueue('deaf', '{}');

	wait_log($worker, 'job_started', job_id => $id);
	stop_worker($worker);
	return ends($id, 'pending', 'attempts = 0 AND runs = 1', '!');
}

# Kills one of three workers each time that a twentieth of the jobs is done; fewer jobs for slow
# clients and the pooler.
sub random_kills
{
	my $jobs = $jobs_of_kills * ($client->{share} // 1) * ($mode eq 'wait' ? 1 : 0.1);
	my @start = (types => 'effect', concurrency => 8, lease => 2);
	my @workers = map { worker(@start) } 1 .. 3;
	my $kills = 0;

	seed();
	sql("SELECT count(*) FROM jobq.enqueue_many('effect', ARRAY(SELECT to_jsonb(n) FROM generate_series(1, $jobs) n))");
	foreach my $turn (1 .. 20)
	{
		wait_sql($node, "SELECT count(*) >= $turn * $jobs / 21 FROM effects", "$turn/21 of the jobs have their effect");
		my $victim = int rand @workers;
		signal_worker($workers[$victim], 'KILL');
		$kills++ if exit_of($workers[$victim]) == 9;
		$workers[$victim] = worker(@start);
	}
	wait_empty('effect');
	must($kills == 20, 'twenty workers were killed');
	must(sql(qq(SELECT count(*) = $jobs FROM jobq.jobs j WHERE job_type = 'effect' AND status = 'completed' AND created_at > '$began'
		AND EXISTS (SELECT FROM effects WHERE job = j.id))) eq 't', "!$jobs jobs are completed and have an effect");
	must(sql("SELECT count(*) = $jobs AND count(DISTINCT job) = $jobs AND count(DISTINCT token) = $jobs FROM effects") eq 't',
		'!each has one effect, under one token');
	foreach (@workers)
	{
		wait_log($_, 'started');    # before it, SIGTERM ends a process that has no handler of it yet
		stop_worker($_);
	}
	return;
}
