# Error reports of a tool on descriptor 3: EXIT has the last well-formed line.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/lib";
use HelperTest;
use Test::More;

my $h = HelperTest->new;

# Runs a tool that writes these lines to descriptor 3 and then executes the given shell code.
sub says
{
	my ($lines, $end, %o) = @_;
	return $h->run(argv => [ '/bin/sh', '-c', 'printf "%s\n" "$0" >&3; ' . ($end // 'exit 1'), join("\n", @$lines) ], output => 'none', %o);
}
sub is_kept
{
	my ($lines, $kept, $bad, $what) = @_;
	my $e = says($lines);
	is("$e->{kind} $e->{value} $e->{bad_lines} $e->{error}", "exited 1 $bad $kept", $what);
	return;
}

my $whole = '{"error": "text", "code": "http_429", "retryable": false, "retry_after": 30, "details": {"a": 1}}';
is_kept([$whole], $whole, 0, 'a line with all that it may have');
is_kept([], '', 0, 'none');
is_kept(['{"error": "only"}'], '{"error": "only"}', 0, 'a line with the text only');
is_kept([ '{"error": "first"}', '{"progress": 5}', '{"error": "last"}', '{"x": 1}' ], '{"error": "last"}', 0, 'the last one counts');
is_kept(['{"error": "x", "code": null, "retryable": null, "retry_after": null, "details": null}'],
	'{"error": "x", "code": null, "retryable": null, "retry_after": null, "details": null}', 0, 'null is as if the key were not there');
is_kept(['{"error": "x", "code": 429}'], '{"error": "x", "code": 429}', 0, 'a code may be a number');
is_kept(["{\"error\": \"x\", \"retry_after\": $_}"], "{\"error\": \"x\", \"retry_after\": $_}", 0, "retry_after $_") for 0, '0.5', '1e9', '"1 hour"';
is_kept([ '{"error": "good"}', $_ ], '{"error": "good"}', 1, "bad: $_")
  for '{"error": 1}', '{"error": null}', '{"error": {}}', '{"error": "x", "code": ["a"]}',
  '{"error": "x", "retryable": "no"}', '{"error": "x", "retryable": 0}', '{"error": "x", "retry_after": -1}',
  '{"error": "x", "retry_after": 1000000001}', '{"error": "x", "retry_after": 1e10}', '{"error": "x", "retry_after": true}', '{"error": "x", "details": "y"}',
  '{"error": "x", "details": [1]}', '{"error": "x\u0000"}', '{"error": "x"', '["error"]',
  '{"error": "' . ('x' x 66_000) . '"}';
is_kept(['{"log": "x", "error": "y"}'], '', 0, 'a line of the log is one, whatever else it has');
is(says([ '{"error": "first"}' ], 'printf \'{"error": "no newline"}\' >&3; exit 2')->{error}, '{"error": "no newline"}', 'the last line may lack its end');
my $long = '{"error": "' . ('x' x 65_000) . '"}';
is(says([$long])->{error}, $long, 'a line of 64 kB');
is(says([$whole], 'exit 0')->{error}, $whole, 'it is there whatever the exit code is');
my $e = says([$whole], 'kill -KILL $$');
is("$e->{kind} $e->{error}", "signalled $whole", 'and after a signal');
$e = says([$whole], 'exec sleep 600', timeout => 5);
is("$e->{kind} $e->{error}", "timeout $whole", 'and after the timeout');
is(scalar(grep { $_->{type} eq 'EVENT' && $_->{text} =~ /error/ && $_->{kind} ne 'log' } @{ $h->{frames} }), 0, 'none of them was an event');

# ---- a tool that writes error lines without end ----
{
	my $flood = HelperTest->new;
	my $n = scale(200_000);
	$e = $flood->run(argv => [ '/bin/sh', '-c', "yes '{\"error\": \"again and again\"}' | head -n $n >&3; exit 3" ], output => 'none');
	is("$e->{value} $e->{error}", '3 {"error": "again and again"}', 'a flood of them');
	is(scalar(grep { $_->{type} eq 'EVENT' } @{ $flood->{frames} }), 0, 'costs the worker nothing');
	open(my $f, '<', "/proc/$flood->{helper_pid}/status") or die $!;
	my ($peak) = do { local $/; <$f> =~ /VmHWM:\s+(\d+)/ };
	ok(HelperTest::is_sanitized() || $peak < 16384, "nor the helper's memory") or diag($peak);
}

# ---- warm ----
sub ask
{
	my ($job, $what) = @_;
	$h->start($job, argv => [ $TOOL, 'warm' ], warm => 1, id => "job-$job", stdin => qq({"id":"job-$job","payload":{"do":"$what"}}));
	my $end = $h->exit_of($job);
	return "$end->{kind} $end->{value} $end->{bad_lines} $end->{error}";
}
is(ask(1, 'error'), 'exited 3 1 {"id":"job-1","error":"mine"}', 'an instance that ends before its answer');
is(ask(2, 'warn'), 'answered 0 0 ', 'one that answers has said it there');
is(ask(3, 'exit'), 'exited 3 0 ', 'and its next job has not said it');

done_testing();
