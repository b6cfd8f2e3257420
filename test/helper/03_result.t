# Results of a tool: kinds of stdout, stderr, descriptor 3, exit codes and signals (S11, S12, S22,
# T27, T28).

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/lib";
use HelperTest;
use Test::More;

my $h = HelperTest->new;

sub is_stopped { my ($pid) = @_; open(my $f, '<', "/proc/$pid/stat") or return 0; return (<$f> // '') =~ /\) T/; }

sub printf_tool { my ($format, @more) = @_; return [ '/usr/bin/printf', $format, @more ]; }

# stdout, kind by kind: printf's argument, verdict, output
my @table = (
	[ 'json', '{"a": 1}\n', 'ok', '{"a": 1}' ],
	[ 'json', '  [1,2]  ', 'ok', '[1,2]' ],
	[ 'json', '\n', 'empty', '' ],
	[ 'json', 'no json', 'bad_json', 'no json' ],
	[ 'json', '{"a": 1} x', 'bad_json', '{"a": 1} x' ],
	[ 'json', '"\377"', 'not_utf8', "\"\xEF\xBF\xBD\"" ],
	[ 'json', '"a\000b"', 'nul', '"ab"' ],
	[ 'json', '"\\\\u0000"', 'nul', '"\u0000"' ],
	[ 'json', ('[' x 65) . (']' x 65), 'too_deep', ('[' x 65) . (']' x 65) ],
	[ 'json', '1e131071', 'truncated', '1e131071' ],
	[ 'text', 'any text\n', 'ok', "any text\n" ],
	[ 'text', '\303\244\033', 'ok', "\xC3\xA4\x1b" ],
	[ 'text', 'a\377z', 'not_utf8', "a\xEF\xBF\xBDz" ],
	[ 'text', 'a\000z', 'nul', 'az' ],
	[ 'none', 'whatever \377', 'ok', '' ]);
for my $row (@table)
{
	my ($kind, $format, $verdict, $output) = @$row;
	my $e = $h->run(argv => printf_tool($format), output => $kind);
	is("$e->{kind} $e->{value} $e->{verdict}", "exited 0 $verdict", "$kind: " . substr($format, 0, 20));
	is($e->{output}, $output, '... output');
	is($e->{message} ne '', $verdict ne 'ok', '... message');
}
{
	my $e = $h->run(argv => printf_tool('[1, x]'), output => 'json');
	is($e->{message}, 'stdout is not valid JSON: expected a value at byte 5', 'the message says what and where');
	$e = $h->run(argv => [ '/bin/sh', '-c', 'echo broken; exit 4' ], output => 'json');
	is("$e->{value} $e->{verdict}", '4 bad_json', 'a verdict is there whatever the exit code is');
}

# the limit: exactly, and one byte over it
{
	my $e = $h->run(argv => [ $TOOL, 'stdout', 5000 ], max_output => 5000);
	is("$e->{verdict} " . length $e->{output}, 'ok 5000', 'as long as the limit');
	$e = $h->run(argv => [ $TOOL, 'stdout', 5001 ], max_output => 5000);
	is("$e->{verdict} " . length($e->{output}) . " $e->{stdout_bytes} $e->{value}", 'truncated 4096 5001 0', 'one byte over it');
	like($e->{message}, qr/^stdout is longer than the limit of 5000 bytes \(max_output\)$/, 'says so');
	is($e->{kind}, 'output_limit', 'whatever its exit code is');
	$e = $h->run(argv => printf_tool('%s', ('\342\202\254' =~ s/\\(\d+)/chr oct $1/ger) x 2000), max_output => 5000);
	is($e->{verdict} . ' ' . length $e->{output}, 'truncated 4095', 'no character is cut');
}

# stderr: its tail, repaired; never part of a character
{
	my $e = $h->run(argv => [ '/bin/sh', '-c', 'printf "one\n\033[31mtwo\377\000\r" >&2' ]);
	is($e->{stderr}, "one\n\\x1b[31mtwo\xEF\xBF\xBD\\x00\\x0d", 'control characters are shown, bad bytes replaced');
	$e = $h->run(argv => [ '/bin/sh', '-c', 'i=0; while [ $i -lt 5000 ]; do printf "\303\244\342\202\254" >&2; i=$((i+1)); done' ]);
	ok(length $e->{stderr} <= 8192 && length $e->{stderr} > 8180, 'the last 8 kB');
	ok(utf8::decode(my $copy = $e->{stderr}), 'valid at its beginning');
	is($e->{stderr_bytes}, 25000, 'all is counted');
	is($e->{verdict}, 'ok', 'only stderr is no bad output');
}

# lines of stderr as events
{
	my $e = $h->run(argv => [ '/bin/sh', '-c', 'echo one >&2; echo >&2; printf "\033two" >&2; exit 1' ], log_lines => 100);
	my @got = map { $_->{text} } grep { $_->{type} eq 'EVENT' && $_->{kind} eq 'stderr' } @{ $h->{frames} };
	is_deeply(\@got, [ 'one', '', '\x1btwo' ], 'lines, also the last without an end');
	$h->{frames} = [];
	$h->run(argv => [ '/bin/sh', '-c', 'seq 1 50 >&2' ], log_lines => 3);
	@got = map { $_->{text} } grep { $_->{type} eq 'EVENT' } @{ $h->{frames} };
	is_deeply(\@got, [ 1, 2, 3 ], 'no more of them than asked for');
}

# descriptor 3
{
	$h->{frames} = [];
	my $script = <<'END';
echo '{"progress": 40, "data": {"x": 1}}' >&3
echo '{"log": "text", "level": "info"}' >&3
echo '{"artifact": {"key": "a"}}' >&3
echo '{"unknown": 1}' >&3
echo '{"progress": 400}' >&3
echo 'no json' >&3
echo '[1]' >&3
echo >&3
printf '{"log": "\377"}\n' >&3
head -c 100000 /dev/zero | tr '\0' 'x' >&3
echo >&3
printf '{"progress": 99}' >&3
END
	my $e = $h->run(argv => [ '/bin/sh', '-c', $script ]);
	my @got = map { "$_->{kind} $_->{text}" } grep { $_->{type} eq 'EVENT' } @{ $h->{frames} };
	is_deeply(\@got, [
			'progress {"progress": 40, "data": {"x": 1}}',
			'log {"log": "text", "level": "info"}',
			'artifact {"artifact": {"key": "a"}}',
			'progress {"progress": 99}' ], 'events, in order');
	is($e->{bad_lines}, 5, 'bad lines are counted');
	$h->{frames} = [];
}

# S22: all 256 codes, 31 signals (STOP, CONT and those that are ignored by
# default do not end a process)
{
	my @codes = grep { my $e = $h->run(argv => [ $TOOL, 'exit', $_ ]); "$e->{kind} $e->{value}" ne "exited $_" } 0 .. 255;
	is("@codes", '', 'each of 256 exit codes arrives');
	my %no_end = map { $_ => 1 } 17, 18, 19, 20, 21, 22, 23, 28;
	my $job = 0;
	my @signals = grep {
		$h->start(++$job, argv => [ $TOOL, 'signal', $_ ]);
		if ($no_end{$_})
		{
			my $pid = $h->started($job)->{pid};
			wait_until(sub { $h->event($job, 0) || is_stopped($pid) });
			$h->cancel($job, 'timeout', 3600);
		}
		my $e = $h->exit_of($job);
		"$e->{kind} $e->{value}" ne ($no_end{$_} ? 'timeout 143' : "signalled $_");
	} 1 .. 31;
	is("@signals", '', 'each of 31 signals arrives, or does not end the tool');
}

# resources
{
	my $e = $h->run(argv => [ '/bin/sh', '-c', 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done' ]);
	ok($e->{utime} + $e->{stime} > 10_000 && $e->{duration} >= $e->{utime} / 2, 'time is measured');
	ok($e->{maxrss} > 500, 'memory too');
	is($h->run(argv => [ $TOOL, 'allocate', 500_000_000 ], memory_max => 100_000_000)->{value}, 7, 'memory is limited');
	is($h->run(argv => [ $TOOL, 'allocate', 5_000_000 ], memory_max => 100_000_000)->{value}, 0, 'within the limit it is there');
}

done_testing();
