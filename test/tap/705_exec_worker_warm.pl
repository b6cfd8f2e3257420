# Warm tools: instances that run one job after another.  And the limit that a tool has hit.

use strict;
use warnings;

use ExecTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = jobq_node('warm');

sub answers
{
	my ($done) = @_;
	return "$done->{status} " . ($done->{error_code} // '-') . " $done->{attempts}";
}

# Acts as the payload says; counts its jobs.
my $warm = tool('warm', <<'END');
#!/usr/bin/perl
use JSON::PP;
$| = 1;
my $json = JSON::PP->new->canonical->allow_nonref;
open my $notes, '>&=', 3;
$notes->autoflush(1);
my $served = 0;
while (my $line = <STDIN>)
{
	my $job = $json->decode($line);
	my ($id, $do) = ($job->{id}, $job->{payload}{do} // '');
	$served++;
	exit 10 if $do eq 'exit';
	kill KILL => $$ if $do eq 'crash';
	if ($do eq 'hang') { sleep 600 }
	print $notes $json->encode({id => $id, progress => 50}), "\n", $json->encode({id => $id, log => 'half'}), "\n" if $do eq 'note';
	if ($do eq 'garbage') { print "no json\n"; next }
	if ($do eq 'other') { print $json->encode({id => 'x', result => 1}), "\n"; next }
	my %answer = $job->{payload}{answer} ? %{$job->{payload}{answer}} :
	  (result => {pid => $$, served => $served, job => $job, env => \%ENV});
	print $json->encode({id => $id, %answer}), "\n";
}
END

# ---------- one after another ----------

define_tool($node, 'warm', [$warm], max_attempts => 2, backoff_base => "'1ms'", max_concurrent => 5,
	options => q('{"warm": 1, "kill_grace": "200ms", "env": {"GREETING": "hello"}}'));
my $first = run_job($node, 'warm', '{"text": "a\nb"}', tenant => "'acme'");
is(answers($first), 'completed - 1', 'a warm tool ran') or diag explain $first;
is_deeply($first->{result}{job}, { id => $first->{id}, job_type => 'warm', attempt => 1, max_attempts => 2, tenant => 'acme',
		payload => { text => "a\nb" } }, 'the line it reads');
is_deeply([ sort keys %{ $first->{result}{env} } ], [qw(GREETING HOME JOBQ_JOB_TYPE JOBQ_WORKDIR LANG PATH TMPDIR)],
	'nothing of a job is in its environment');
my $second = run_job($node, 'warm');
is("$second->{result}{pid} $second->{result}{served}", "$first->{result}{pid} 2", 'the next job runs in the same process');
is($second->{result}{job}{tenant}, undef, 'no tenant');
my @many = map { enqueue($node, 'warm') } 1 .. 30;
my @done = map { finished($node, $_) } @many;
is(scalar(grep { $_->{result}{pid} == $first->{result}{pid} } @done), 30, 'more jobs than instances wait for one');

my $note = run_job($node, 'warm', '{"do": "note"}');
is($note->{progress} + 0, 50, 'progress on descriptor 3');
is($node->safe_psql('postgres', "SELECT message FROM jobq.events WHERE job_id = '$note->{id}' AND type = 'log'"), 'half', 'and events');

# ---------- answers ----------

sub reply { my ($answer, $type) = @_; return run_job($node, $type // 'warm', qq({"answer": $answer})); }
is(reply('{"result": null}')->{status}, 'completed', 'a result may be null');
is(reply('{"result": [1, "x"]}')->{result}[1], 'x', 'or an array');
my $failed = reply('{"error": "no such user", "code": "E404", "retryable": false}');
is(answers($failed) . " $failed->{error_msg}", 'error E404 1 no such user', 'an error that is not to be retried');
$failed = reply('{"error": "busy", "code": "E503"}');
is(answers($failed), 'error E503 2', 'an error is retried');
$failed = reply('{"error": {"a": 1}}');
is(answers($failed) . " $failed->{error_msg}", 'error - 2 {"a": 1}', 'an error that is no text');
my $skipped = reply('{"skip": "not today"}');
is($skipped->{status}, 'skipped', 'skip');
my $id = enqueue($node, 'warm', '{"answer": {"error": "later", "retry_after": 3600}}');
wait_status($node, $id, 'retry');
is($node->safe_psql('postgres', "SELECT scheduled_for > now() + interval '50min' FROM jobq.jobs WHERE id = '$id'"), 't',
	'retry_after replaces the backoff');
$id = enqueue($node, 'warm', '{"answer": {"error": "later", "retry_after": "2 hours"}}');
wait_status($node, $id, 'retry');
is($node->safe_psql('postgres', "SELECT scheduled_for > now() + interval '110min' FROM jobq.jobs WHERE id = '$id'"), 't',
	'as an interval, too');
is(run_job($node, 'warm')->{result}{pid}, $first->{result}{pid}, 'its instance is the same all the while');

# ---------- when an instance is replaced ----------

foreach ([ garbage => 'bad_output', qr/^the answer is not valid JSON/ ], [ other => 'bad_output', qr/id of the job/ ],
	[ exit => 'exit:10', qr/^exited with code 10 before it had answered$/ ], [ crash => 'signal:KILL', qr/^terminated by signal KILL$/ ])
{
	my ($do, $code, $message) = @$_;
	my $pid = run_job($node, 'warm')->{result}{pid};
	my $bad = run_job($node, 'warm', qq({"do": "$do"}));
	is(answers($bad), "error $code 2", "$do: fails the job, which is retried");
	like($bad->{error_msg}, $message, "$do: its message");
	my $next = run_job($node, 'warm');
	is($next->{result}{served}, 1, "$do: the next job has another instance");
	ok(wait_gone($pid), "$do: the old one is gone");
}
$node->safe_psql('postgres', q{SELECT jobq.alter_job_type('warm', options => '{"permanent_exit_codes": [10], "skip_exit_codes": [10]}')});
is(answers(run_job($node, 'warm', '{"do": "exit"}')), 'error exit:10 2', 'exit codes of a warm tool mean nothing');

my $pid = run_job($node, 'warm')->{result}{pid};
$id = enqueue($node, 'warm', '{"do": "hang"}', timeout => "'300ms'", max_attempts => 1);
my $late = finished($node, $id);
is(answers($late), 'error timeout 1', 'a job that takes too long');
ok(wait_gone($pid), 'its instance is gone');
$id = enqueue($node, 'warm', '{"do": "hang"}');
wait_status($node, $id, 'running');
my $behind = enqueue($node, 'warm');
$node->safe_psql('postgres', "SELECT jobq.cancel_job('$id')");
is(finished($node, $id)->{status}, 'cancelled', 'a cancel ends the job');
is(answers(finished($node, $behind)), 'completed - 1', 'one that waited for the instance is served by another');

$pid = run_job($node, 'warm')->{result}{pid};
$node->safe_psql('postgres', q{SELECT jobq.alter_job_type('warm', options => '{"env": {"GREETING": "hi"}}')});
is(run_job($node, 'warm')->{result}{env}{GREETING}, 'hi', 'a changed type has other instances');
ok(wait_gone($pid), 'the old one has left');

define_tool($node, 'worn', [$warm], options => q('{"warm": 1, "warm_max_jobs": 2}'));
is(join(' ', map { run_job($node, 'worn')->{result}{served} } 1 .. 3), '1 2 1', 'warm_max_jobs');
$node->safe_psql('postgres', q{SELECT jobq.alter_job_type('worn', options => '{"warm_idle": "300ms"}')});
ok(wait_gone(run_job($node, 'worn')->{result}{pid}), 'warm_idle');

# ---------- definitions ----------

sub refused
{
	my ($sql, $state, $message, $what) = @_;
	my (undef, undef, $stderr) = $node->psql('postgres', "\\set VERBOSITY verbose\nSELECT $sql");
	like($stderr, qr/$state.*$message/s, $what);
}
refused(q{jobq.create_job_type('p', command => '{cat,"{x}"}', options => '{"warm": 1}')}, '22023', 'argument "command": element "\{x\}" of a warm tool has a placeholder', 'no placeholders with warm');
define_tool($node, 'cold', [ 'cat', '{x}' ]);
refused(q{jobq.alter_job_type('cold', options => '{"warm": 2}')}, '22023', 'placeholder', 'nor by altering the options');
refused(q{jobq.alter_job_type('warm', command => '{cat,"{x}"}')}, '22023', 'placeholder', 'or the command');
refused(q{jobq.alter_job_type('warm', options => '{"warm": -1}')}, '22003', 'warm', 'a negative number');
refused(q{jobq.alter_job_type('warm', options => '{"warm_idle": "soon"}')}, '22023', 'warm_idle', 'no interval');

# ---------- limits ----------

sub hits
{
	my ($options, $script, $code, $message, $what) = @_;
	my $type = "limit-" . ($what =~ s/\W+/-/gr);
	define_tool($node, $type, [ '/usr/bin/perl', '-e', $script ], options => "'$options'");
	my $e = run_job($node, $type);
	like("$e->{error_code}: " . ($e->{error_msg} // ''), qr/^$code: $message$/, $what);
}
my $ended = '(exited with code \d+(: .+)?|terminated by signal \w+)';
hits('{"memory_max": "64MB"}', 'my $x = "x" x 200_000_000; print 1', '(exit|signal):\w+', "$ended: memory limit of 64 MB exceeded", 'memory_max');
hits('{"memory_max": "64MB"}', 'my @x; push @x, "y" x 100_000 while 1', '(exit|signal):\w+', "$ended: memory limit of 64 MB exceeded", 'memory_max by and by');
hits('{"cpu_seconds": 1}', '1 while 1', 'signal:XCPU', 'terminated by signal XCPU: processor time limit of 1 s exceeded', 'cpu_seconds');
hits('{"cpu_seconds": 1}', '$SIG{"XCPU"} = sub { exit 9 }; 1 while 1', 'exit:9', 'exited with code 9: processor time limit of 1 s exceeded', 'cpu_seconds that are noticed');
hits('{"nofile": 20}', 'my @f; while (1) { open my $f, "<", "/dev/null" or die "open: $!"; push @f, $f }', 'exit:\d+', "$ended: limit of 20 open files reached", 'nofile');
hits('{"max_output": 1000, "output": "text"}', 'print "x" x 5000', 'bad_output', 'stdout is longer than the limit of 1000 bytes \(max_output\)', 'max_output');
hits('{"memory_max": "64MB", "cpu_seconds": 60}', 'exit 4', 'exit:4', 'exited with code 4', 'no limit');

$node->stop;
done_testing;
