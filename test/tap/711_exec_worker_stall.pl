# options.stall: a tool without output, progress or heartbeat for so long has failed.

use strict;
use warnings;

use ExecTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

my $node = jobq_node('stall');
my $dir = tools();

sub sql { return $node->safe_psql('postgres', @_); }
sub summary { my ($j) = @_; return join ' ', map { $_ // '-' } @$j{qw(status attempts error_code error_msg)}; }
sub refused
{
	my ($sql, $state, $message, $what) = @_;
	my (undef, undef, $stderr) = $node->psql('postgres', "\\set VERBOSITY verbose\nSELECT $sql");
	like($stderr, qr/$state.*$message/s, $what);
	return;
}

# Runs a part of the test that returns arguments of is(), and once more, with times five times as
# long, if the machine may have stood still for one of its times.
sub in_time
{
	my ($part) = @_;

	foreach my $scale (1, 5)
	{
		note('once more, with longer times') if $scale > 1;
		my @results = $part->($scale);

		next if $scale == 1 && grep { $_->[0] ne $_->[1] } @results;
		is($_->[0], $_->[1], $_->[2]) foreach @results;
		return;
	}
}

# ---------- the option ----------

define_tool($node, 'silent', [ 'sh', '-c', 'echo begun >&2; exec sleep 600' ], max_attempts => 2, backoff_base => "'0'",
	options => q('{"output": "none", "stall": "1s"}'));
foreach my $bad ('"soon"', '5', '"-1s"', 'true')
{
	refused(qq{jobq.alter_job_type('silent', options => '{"stall": $bad}')}, '22023', qq{option "stall": $bad is not an interval as text, not negative}, "stall $bad");
}
sql(q{CREATE FUNCTION ok(jsonb) RETURNS void LANGUAGE sql AS ''});
refused(q{jobq.create_job_type('handler', 'ok(jsonb)', options => '{"stall": "1s"}')}, '22023', 'option "stall" has no meaning for a job type with a handler', 'not of a handler');
is(sql(q{SELECT kind, type, default_value IS NULL FROM jobq.option_keys WHERE key = 'stall'}), 'exec, pull|interval|t', 'the view has it');

# ---------- silence ----------

my $job = run_job($node, 'silent');
is(summary($job), 'error 2 stalled stalled: no output, progress or heartbeat for 00:00:01', 'a silent tool has failed, and was tried again');
is_deeply($job->{error_details}, { stderr => "begun\n" }, 'its stderr is kept');
is(sql("SELECT string_agg(concat_ws(' ', level, data->>'code'), ', ' ORDER BY id) FROM jobq.events WHERE job_id = '$job->{id}' AND type = 'failed'"), 'warning stalled, error stalled', 'the events say so');
is(sql("SELECT bool_and((data->>'duration_ms')::numeric >= 1000) FROM jobq.events WHERE job_id = '$job->{id}' AND type = 'failed'"), 't', 'after its time');
sql(q{SELECT jobq.alter_job_type('silent', options => '{"permanent_codes": ["stall%"]}')});
is(run_job($node, 'silent')->{attempts}, 1, 'permanent_codes may match');
sql(q{SELECT jobq.alter_job_type('silent', options => '{"permanent_codes": null, "retry_codes": []}')});
is(run_job($node, 'silent')->{attempts}, 2, 'retry_codes do not judge it');
is(summary(run_job($node, 'silent', '{}', timeout => "'300ms'", max_attempts => 1)), 'error 1 timeout timeout after 00:00:00.3', 'a time limit may come first');
sql(q{SELECT jobq.alter_job_type('silent', options => '{"stall": "1h"}')});
my $id = enqueue($node, 'silent');
wait_status($node, $id, 'running');
sql("SELECT jobq.cancel_job('$id', 'enough')");
is(summary(finished($node, $id)), 'cancelled 1 - enough', 'or a cancel');
foreach my $none ('"0"', 'null')
{
	sql(qq{SELECT jobq.alter_job_type('silent', options => '{"stall": $none}')});
	is(summary(run_job($node, 'silent', '{}', timeout => "'1500ms'", max_attempts => 1)), 'error 1 timeout timeout after 00:00:01.5', "stall $none: it may be silent");
}

# the whole tree, though it ignores TERM
my $stubborn = tool('stubborn', "#!/bin/sh\ntrap '' TERM\necho \$\$ >>$dir/pids\nsetsid sh -c 'trap \"\" TERM; echo \$\$ >>$dir/pids; while :; do sleep 0.1; done' &\n"
	  . "while [ \$(wc -l <$dir/pids) -lt 2 ]; do echo .; sleep 0.05; done\nwhile :; do sleep 0.1; done\n");
define_tool($node, 'stubborn', [$stubborn], options => q('{"output": "none", "stall": "2s", "kill_grace": "300ms"}'));
is(run_job($node, 'stubborn')->{error_code}, 'stalled', 'one that ignores TERM');
is(scalar(() = pids_in("$dir/pids")), 2, 'it had a child');
ok(wait_gone(pids_in("$dir/pids")), 'and all of it is gone');

# ---------- signs of life ----------

sub active_tools
{
	my ($scale) = @_;
	my $stall = 4 * $scale;
	my $pause = 0.5 * $scale;
	my @ids = map {
		define_tool($node, "does-$_->[0]-$scale", [ 'sh', '-c', "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do $_->[1]; sleep $pause; done" ],
			options => qq('{"output": "none", "stall": "${stall}s"}'));
		[ $_->[0], enqueue($node, "does-$_->[0]-$scale") ]
	} [ dots => 'printf .' ], [ stderr => 'printf . >&2' ], [ progress => q(printf '{"progress": %d}\n' $i >&3) ], [ heartbeat => q(echo '{"heartbeat": true}' >&3) ];

	return ((map { [ finished($node, $_->[1])->{status}, 'completed', "$_->[0]: an active tool is not ended" ] } @ids),
		[ job($node, $ids[2][1])->{progress}, 12, 'progress is there' ]);
}
in_time(\&active_tools);

# ---------- warm ----------

my $warm = tool('warm', <<'TOOL');
#!/usr/bin/perl
use JSON::PP;
$| = 1;
open my $notes, '>&=', 3;
$notes->autoflush(1);
while (my $line = <STDIN>)
{
	my $job = decode_json($line);
	sleep 600 if $job->{payload}{hang};
	for (1 .. $job->{payload}{beats} // 0) { print $notes encode_json({id => $job->{id}, log => 'still here'}), "\n"; select undef, undef, undef, $job->{payload}{pause} }
	print encode_json({id => $job->{id}, result => $$}), "\n";
}
TOOL
sub warm_tools
{
	my ($scale) = @_;
	my $stall = 3 * $scale;

	define_tool($node, "warm-$scale", [$warm], options => qq('{"warm": 1, "stall": "${stall}s"}'));
	my $pid = run_job($node, "warm-$scale")->{result} // return [ 'none', 'one', 'an instance' ];

	sleep $stall + 0.5;			# an instance without a job is not watched
	my $beats = run_job($node, "warm-$scale", sprintf '{"beats": 9, "pause": %f}', 0.5 * $scale)->{result} // 'none';
	my $hang = run_job($node, "warm-$scale", '{"hang": true}');
	return ([ $beats, $pid, 'an instance that gives signs of life stays' ],
		[ summary($hang), sprintf('error 1 stalled stalled: no output, progress or heartbeat for 00:00:%02d', $stall), 'one that is silent does not' ],
		[ wait_gone($pid) ? 1 : 0, 1, 'it is gone' ],
		[ (run_job($node, "warm-$scale")->{result} // $pid) ne $pid ? 1 : 0, 1, 'the next job has another' ]);
}
in_time(\&warm_tools);

# ---------- the helper is stopped ----------

sub stopped_helper
{
	my ($scale) = @_;
	my $stall = 3 * $scale;

	define_tool($node, "waits-$scale", [ 'sh', '-c', "echo \$PPID >$dir/helper-$scale; until [ -e $dir/gate-$scale ]; do sleep 0.1; done" ],
		options => qq('{"output": "none", "stall": "${stall}s"}'));
	$id = enqueue($node, "waits-$scale");
	$node->poll_query_until('postgres', "SELECT coalesce(pg_read_file('$dir/helper-$scale', 0, 100, true) LIKE E'%\\n', false)");
	my ($starter) = pids_in("$dir/helper-$scale");
	my ($helper) = map { /\bjobq-helper\b/ ? $starter : () } slurp_file("/proc/$starter/stat");
	ok($helper, 'the parent of a tool is jobq-helper');
	kill 'STOP', $helper;
	sleep $stall + 1;
	kill 'CONT', $helper;
	sleep 0.5;
	append_to_file("$dir/gate-$scale", '');
	return [ finished($node, $id)->{status}, 'completed', 'a standstill of jobq-helper is no silence of its tools' ];
}
in_time(\&stopped_helper);

$node->stop;
done_testing();
