# Exec types from end to end: the input of a tool, and the outcome of its actions.

use strict;
use warnings;

use ExecTest;
use JSON::PP ();
use PostgreSQL::Test::Utils;
use ServerTest qw(wait_for_text);
use Test::More;

my $node = jobq_node('exec');
my $json = JSON::PP->new->allow_nonref;

# ---------- input of a tool ----------

my $show = tool('show', <<'END');
#!/usr/bin/perl
use JSON::PP;
local $/;
my $stdin = <STDIN>;
opendir my $dir, '/proc/self/fd';
my %fds = map { $_ => readlink "/proc/self/fd/$_" } grep { /^\d+$/ && $_ != fileno $dir } readdir $dir;
delete $fds{$_} for grep { ($fds{$_} // '') =~ m{/show$} } keys %fds;
open my $status, '<', '/proc/self/status';
my $sig = {map { /^(Sig(?:Blk|Ign)|NoNewPrivs):\s*(\S+)/ ? ($1 => $2) : () } split /\n/, <$status>};
print JSON::PP->new->canonical->encode({argv => \@ARGV, env => \%ENV, stdin => $stdin, fds => \%fds,
	sig => $sig, cwd => do { require Cwd; Cwd::getcwd() }, umask => umask,
	sid => join ' ', (split ' ', do { open my $s, '<', '/proc/self/stat'; <$s> =~ s/^.*\) //sr })[2, 3]});
END

my @hostile = ('a b', '$(id)', '`id`', ';', '--', "\n", "it's", '"', '\\', '*', '', "\x01", '{}', '{ }',
	'{"a": 1}', '%s', '|', '> /tmp/x');
define_tool($node, 'show', [ $show, @hostile, '{{x}', 'v={text}', '{number}', '{flag}', '{deep.er.x}',
	'{text}{number}', '{empty}' ], options => q('{"env": {"GREETING": "hello world", "LANG": "C"}}'));
my $done = run_job($node, 'show',
	'{"text": "$(reboot) ; x", "number": 12.50, "flag": true, "deep": {"er": {"x": "{text}"}}, "empty": ""}',
	tenant => "'acme'");
is($done->{status}, 'completed', 'a tool ran') or diag explain $done;
my $seen = $done->{result};
is_deeply($seen->{argv},
	[ @hostile, '{x}', 'v=$(reboot) ; x', '12.50', 'true', '{text}', '$(reboot) ; x12.50', '' ],
	'arguments arrive byte for byte, placeholders filled in');
is_deeply($json->decode($seen->{stdin}),
	{ text => '$(reboot) ; x', number => 12.5, flag => JSON::PP::true, deep => { er => { x => '{text}' } }, empty => '' },
	'stdin is the payload');
my %env = %{ $seen->{env} };
is($env{JOBQ_JOB_ID}, $done->{id}, 'JOBQ_JOB_ID');
is($env{$_->[0]}, $_->[1], $_->[0])
  foreach [ JOBQ_JOB_TYPE => 'show' ], [ JOBQ_ATTEMPT => 1 ], [ JOBQ_MAX_ATTEMPTS => 1 ],
  [ JOBQ_TENANT => 'acme' ], [ GREETING => 'hello world' ], [ LANG => 'C' ],
  [ PATH => '/usr/local/bin:/usr/bin:/bin' ];
is_deeply([ sort keys %env ],
	[ sort qw(PATH LANG HOME TMPDIR GREETING JOBQ_JOB_ID JOBQ_JOB_TYPE JOBQ_ATTEMPT JOBQ_MAX_ATTEMPTS
		JOBQ_TENANT JOBQ_WORKDIR) ], 'nothing else is in the environment');
is($env{JOBQ_WORKDIR}, $seen->{cwd}, 'the work directory is the current one');
ok(!-e $seen->{cwd}, 'and is gone afterwards');
is_deeply([ sort keys %{ $seen->{fds} } ], [ 0 .. 3 ], 'descriptors 0 to 3 only') or diag explain $seen->{fds};
# perl itself ignores SIGFPE
is_deeply($seen->{sig}, { NoNewPrivs => 1, SigBlk => '0' x 16, SigIgn => '0' x 14 . '80' },
	'signals are as at birth, no new privileges') or diag explain $seen->{sig};
like($done->{worker}, qr{^exec/\d+$}, 'worker is named');
ok($done->{node}, 'node is named');
is($done->{attempts}, 1, 'one attempt');
is($done->{runs}, 1, 'one run');

define_tool($node, 'minimal', [ '/usr/bin/env' ], options => q('{"output": "text"}'));
unlike(run_job($node, 'minimal')->{result}, qr/JOBQ_TENANT|PGDATA|PG_/, 'no tenant, nothing of the server');
define_tool($node, 'by-name', [ 'cat' ]);
is_deeply(run_job($node, 'by-name', '{"a": [1, "\u00e9"]}')->{result}, { a => [ 1, "\x{e9}" ] },
	'a plain name is looked up in jobq.tool_path');
is_deeply(run_job($node, 'by-name', '[1,2]')->{result}, [ 1, 2 ], 'a payload need not be an object');

my $envfile = tool('secrets', "# comment\n\nTOKEN=s3cret = x\r\nOTHER=no\nexport TOKEN=other\n QUOTED=\"q\"\nTOKEN=agains3cret\nPYTHONPATH=/x\nno\n2=3\nQUOTED='q'");
my $log_from = -s $node->logfile;
$node->safe_psql('postgres', "ALTER SYSTEM SET jobq.tool_env_file = '$envfile'");
$node->reload;
$node->poll_query_until('postgres', "SELECT current_setting('jobq.tool_env_file') = '$envfile'");
define_tool($node, 'secret', [ 'sh', '-c', 'printf "%s|%s|%s" "$TOKEN" "$OTHER" "${MISSING-unset}"' ],
	options => q('{"output": "text", "pass_env": ["TOKEN", "MISSING"]}'));
is(run_job($node, 'secret')->{result}, 's3cret = x||unset', 'pass_env copies the named ones');
$node->wait_for_log(qr/tool_env_file .*line 10/, $log_from);
my $log = substr slurp_file($node->logfile), $log_from;
is(join(', ', $log =~ /WARNING:  jobq\.tool_env_file "\Q$envfile\E", (line \d+)/g), join(', ', map { "line $_" } 5 .. 10),
	'the log names lines of the file that no tool gets');
unlike($log, qr/agains3cret/, 'without their text');
define_tool($node, 'quoted', [ 'sh', '-c', 'printf "%s" "$QUOTED"' ], options => q('{"output": "text", "pass_env": ["QUOTED"]}'));
is(run_job($node, 'quoted')->{result}, "'q'", 'quotes stay');

# ---------- bad payloads ----------

define_tool($node, 'one', [ 'printf', '%s', '{name}' ], options => q('{"output": "text"}'));
foreach ([ '{}', qr/placeholder "\{name\}"/ ], [ '{"name": null}', qr/placeholder "\{name\}"/ ],
	[ '{"name": [1]}', qr/object or array/ ], [ '{"name": "-rf"}', qr/begins with "-"/ ],
	[ '{"name": -1}', qr/begins with "-"/ ], [ '[1]', qr/must be an object/ ])
{
	my ($payload, $message) = @$_;
	my (undef, undef, $stderr) = $node->psql('postgres',
		"\\set VERBOSITY verbose\nSELECT jobq.enqueue('one', '$payload')");
	like($stderr, qr/22023.*$message/s, "enqueue refuses $payload");
}
is(run_job($node, 'one', '{"name": "a-b"}')->{result}, 'a-b', 'a dash inside is no option');
$node->safe_psql('postgres', q{SELECT jobq.alter_job_type('one', options => '{"allow_dash": true}')});
is(run_job($node, 'one', '{"name": "-x"}')->{result}, '-x', 'allow_dash');

# the type changes between enqueue and start
my $id = enqueue($node, 'by-name', '{"a": 1}', delay => "'1 hour'");
$node->safe_psql('postgres', q{SELECT jobq.alter_job_type('by-name', command => '{printf,%s,"{b}"}')});
$node->safe_psql('postgres', "SELECT jobq.alter_job('$id', scheduled_for => now())");
$done = finished($node, $id);
is("$done->{status} $done->{error_code}", 'error 22023', 'placeholders are checked again at the start');
like($done->{error_msg}, qr/placeholder "\{b\}"/, 'and the message names the placeholder');

# ---------- how it ends ----------

my $exit = define_tool($node, 'exit', [ 'sh', '-c', 'echo oops >&2; exit $0', '{code}' ], max_attempts => 2,
	backoff_base => "'1ms'", options => q('{"skip_exit_codes": [10], "snooze_exit_codes": [11], "snooze": "1h"}'));
$done = run_job($node, $exit, '{"code": 3}');
is("$done->{status} $done->{error_code} $done->{attempts}", 'error exit:3 2', 'an exit code retries, then is a dead letter');
is($done->{error_msg}, 'exited with code 3: oops', 'message');
is_deeply($done->{error_details}, { stderr => "oops\n" }, 'the tail of stderr is kept');
is($node->safe_psql('postgres', "SELECT count(*), min(data->>'stderr'), min(data->>'code'), bool_and(data ? 'duration_ms'),
	bool_and(data->>'worker' LIKE 'exec/%') FROM jobq.events WHERE job_id = '$done->{id}' AND type = 'failed'"),
	"2|oops\n|exit:3|t|t", 'each attempt left an event');
foreach my $code (125, 126, 127)
{
	$done = run_job($node, $exit, qq({"code": $code}));
	is("$done->{status} $done->{error_code} $done->{attempts}", "error exit:$code 1", "exit code $code is permanent");
}
is(run_job($node, $exit, '{"code": 10}')->{status}, 'skipped', 'skip_exit_codes');
$id = enqueue($node, $exit, '{"code": 11}');
$node->poll_query_until('postgres', "SELECT runs = 1 AND status = 'pending' FROM jobq.jobs WHERE id = '$id'");
is($node->safe_psql('postgres', "SELECT attempts, scheduled_for > now() + interval '50min' FROM jobq.jobs WHERE id = '$id'"),
	'0|t', 'snooze_exit_codes: later, no attempt charged');

define_tool($node, 'signal', [ 'sh', '-c', 'kill -$0 $$', '{name}' ]);
foreach my $name (qw(KILL SEGV TERM))
{
	is(run_job($node, 'signal', qq({"name": "$name"}))->{error_code}, "signal:$name", "signal $name");
}

define_tool($node, 'sleep', [ 'sleep', '{seconds}' ], options => q('{"output": "none"}'), timeout => "'300ms'");
$done = run_job($node, 'sleep', '{"seconds": 60}');
is("$done->{status} $done->{error_code}", 'error timeout', 'timeout');
like($done->{error_msg}, qr/^timeout after 00:00:00.3/, 'its message');
my $stubborn = tool('stubborn', "#!/bin/sh\ntrap '' TERM\necho \$\$ >> " . tools() . "/stubborn.pids\n"
	  . "(trap '' TERM; setsid sh -c 'trap \"\" TERM; echo \$\$ >> " . tools() . "/stubborn.pids; while :; do sleep 0.1; done') &\n"
	  . "while :; do sleep 0.1; done\n");
define_tool($node, 'stubborn', [$stubborn], timeout => "'2s'", options => q('{"kill_grace": "200ms"}'));
$done = run_job($node, 'stubborn');
is($done->{error_code}, 'timeout', 'a tool that ignores TERM');
is(scalar(() = pids_in(tools() . '/stubborn.pids')), 2, 'it had a child');
ok(wait_gone(pids_in(tools() . '/stubborn.pids')), 'and its detached children are killed');

# ---------- output ----------

define_tool($node, 'json', [ 'sh', '-c', '{script}' ]);
define_tool($node, 'text', [ 'sh', '-c', '{script}' ], options => q('{"output": "text"}'));
define_tool($node, 'none', [ 'sh', '-c', '{script}' ], options => q('{"output": "none"}'));
sub script { my ($type, $text) = @_; return run_job($node, $type, $json->encode({ script => $text })); }

foreach ([ 'not JSON', 'echo hello' ], [ 'no output', 'true' ], [ 'invalid UTF-8', 'printf \'"\\377"\'' ],
	[ 'a NUL byte', 'printf \'"\\000"\'' ], [ 'an escaped NUL', q(printf '"\\\\u0000"') ],
	[ 'two values', 'echo 1 2' ], [ 'too deep', 'for i in $(seq 2000); do printf "["; done' ],
	[ 'only stderr', 'echo words >&2' ])
{
	my ($what, $text) = @$_;
	$done = script('json', $text);
	is("$done->{status} $done->{error_code}", 'error bad_output', "$what is bad output") or diag explain $done;
	ok($done->{error_msg}, "its message: " . ($done->{error_msg} // ''));
}
is($done->{error_details}{stderr}, "words\n", 'stderr of a bad output is kept');
is_deeply(script('json', 'cat')->{result}, { script => 'cat' }, 'good JSON');
is_deeply(script('json', q(printf ' \n {"a": 1e3}\n\n'))->{result}, { a => 1000 }, 'white space around it');
is(script('text', q(printf 'line\\n\\ttab "quote" \\303\\251'))->{result}, qq(line\n\ttab "quote" \x{e9}), 'text');
$done = script('text', q(printf 'a\\377b\\000c'));
is("$done->{status} $done->{result}", "completed a\x{fffd}bc", 'text is repaired');
is($node->safe_psql('postgres', "SELECT count(*) FROM jobq.events WHERE job_id = '$done->{id}' AND level = 'warning'"),
	'1', 'an event says so');
$done = script('none', 'echo anything; echo at all >&2');
is($done->{status}, 'completed', 'output none');
ok(!defined $done->{result}, 'has no result');

$node->safe_psql('postgres', q{SELECT jobq.alter_job_type(t, timeout => '5s', options => '{"max_output": 10000}')
	FROM unnest('{json,text}'::text[]) t});
foreach my $type (qw(json text))
{
	$done = script($type, 'yes');
	like($done->{error_code}, qr/^(bad_output|timeout)$/, "endless $type ends") or diag explain $done;
}
$node->safe_psql('postgres', q{SELECT jobq.alter_job_type(t, timeout => '10min') FROM unnest('{json,text}'::text[]) t});
$done = script('text', 'head -c 10001 /dev/zero | tr "\\0" x');
is("$done->{status} $done->{error_code}", 'error bad_output', 'text over max_output');
is(length(script('text', 'head -c 10000 /dev/zero | tr "\\0" x')->{result}), 10000, 'text at max_output');

my $big = 'x' x 900_000;
is(run_job($node, 'none', $json->encode({ script => 'exec <&-; sleep 0.2', pad => $big }))->{status}, 'completed',
	'a tool that closes stdin at once');
is(length(run_job($node, define_tool($node, 'echo', ['cat']), qq({"x": "$big"}))->{result}{x}), 900_000,
	'a large payload there and back');

# ---------- a tool that can't be started ----------

define_tool($node, 'absent', [ tools() . '/absent' ], max_attempts => 1, options => q('{"output": "none"}'));
$id = enqueue($node, 'absent');
$node->poll_query_until('postgres', "SELECT count(*) > 0 FROM jobq.events WHERE job_id = '$id' AND type = 'paused'");
# pending except during its tries
ok($node->poll_query_until('postgres', "SELECT status = 'pending' AND attempts = 0 FROM jobq.jobs WHERE id = '$id'"),
	'a missing program charges no attempt');
like($node->safe_psql('postgres', 'SELECT jobq.health()'), qr/absent/, 'health says which type is paused');
is(run_job($node, 'show', '{"text": "", "number": 1, "flag": false, "deep": {"er": {"x": 1}}, "empty": ""}')->{status},
	'completed', 'other types run');
tool('absent', "#!/bin/sh\nexit 0\n");
is(finished($node, $id)->{status}, 'completed', 'it runs once the program is there');
unlike($node->safe_psql('postgres', 'SELECT jobq.health()'), qr/absent/, 'and health is content');
define_tool($node, 'no-interpreter', [ tool('no-interpreter', "#!/nonexistent/interpreter\n") ]);
$id = enqueue($node, 'no-interpreter');
$node->poll_query_until('postgres', "SELECT count(*) > 0 FROM jobq.events WHERE job_id = '$id' AND type = 'paused'");
ok($node->poll_query_until('postgres', "SELECT status = 'pending' AND attempts = 0 FROM jobq.jobs WHERE id = '$id'"),
	'the same for one that is not executable');
$node->safe_psql('postgres', "SELECT jobq.cancel_job('$id')");
is(finished($node, $id)->{status}, 'cancelled', 'it can be cancelled');

# ---------- messages on descriptor 3 ----------

my $gate = tools() . '/gate';
define_tool($node, 'talk', [ 'sh', '-c', <<'END', $gate ], options => q('{"output": "none"}'));
echo '{"progress": 40, "data": {"page": 2}}' >&3
echo '{"log": "half way", "level": "warning", "data": {"n": 1}}' >&3
echo 'not json' >&3
echo '{"artifact": {"key": "x.txt"}}' >&3
while [ ! -e "$0" ]; do sleep 0.05; done
END
$id = enqueue($node, 'talk');
$node->poll_query_until('postgres', "SELECT progress = 40 FROM jobq.jobs WHERE id = '$id'");
is($node->safe_psql('postgres', "SELECT status, progress_data FROM jobq.jobs WHERE id = '$id'"), 'running|{"page": 2}',
	'progress is seen while it runs');
ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM jobq.events WHERE job_id = '$id' AND type = 'log'
	AND level = 'warning' AND message = 'half way' AND data = '{\"n\": 1}' AND source = 'helper'"), 'and so is its log');
tool('gate', '');
$done = finished($node, $id);
is($done->{progress}, 40, 'progress is kept');
is($node->safe_psql('postgres', "SELECT key, kind, attempt FROM jobq.artifacts WHERE job_id = '$id'"), 'x.txt|output|1', 'an artifact is a row');

my $log = -s $node->logfile;
define_tool($node, 'noisy', [ 'sh', '-c', 'echo one >&2; echo two >&2; echo three >&2' ],
	options => q('{"output": "none", "log_stderr": "log", "max_log_lines": 2}'));
run_job($node, 'noisy');
$node->wait_for_log(qr/of type "noisy": two/, $log);
unlike(slurp_file($node->logfile, $log), qr/of type "noisy": three/, 'log_stderr forwards max_log_lines lines');

# ---------- cancel, many at once, rights ----------

define_tool($node, 'long', [ 'sh', '-c', 'echo $$ >> "$0"; exec sleep 600', tools() . '/long.pids' ],
	options => q('{"output": "none"}'));
$id = enqueue($node, 'long');
ok(wait_for_text(tools() . '/long.pids', qr/^\d+\n/), 'a tool runs');
is($node->safe_psql('postgres', "SELECT jobq.cancel_job('$id', 'no longer needed')"), 't', 'cancel_job of a running tool');
$done = finished($node, $id);
is("$done->{status} $done->{error_msg}", 'cancelled no longer needed', 'it is cancelled with its reason');
ok(wait_gone(pids_in(tools() . '/long.pids')), 'and its process is gone');

my $count = 50;
define_tool($node, 'meet', [ 'sh', '-c', <<'END', tools(), $count ], options => q('{"output": "none"}'), timeout => "'10min'");
touch "$0/meet.$JOBQ_JOB_ID"
while [ "$(ls "$0"/meet.* | wc -l)" -lt "$1" ]; do sleep 0.5; done
END
$node->safe_psql('postgres', "SELECT count(*) FROM jobq.enqueue_many('meet', array_fill('{}'::jsonb, ARRAY[$count]))");
ok($node->poll_query_until('postgres', "SELECT count(*) = $count FROM jobq.jobs WHERE job_type = 'meet' AND status = 'completed'"),
	"$count tools run at once");

$node->safe_psql('postgres', <<'END');
CREATE ROLE operator LOGIN;
GRANT pg_execute_server_program TO operator;
GRANT USAGE ON SCHEMA jobq TO operator;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA jobq TO operator;
END
my ($rc, undef, $stderr) = $node->psql('postgres',
	q{SELECT jobq.create_job_type('theirs', command => '{true}', max_attempts => 1, options => '{"output": "none"}')},
	extra_params => [ '-U', 'operator' ]);
is($rc, 0, 'a plain role defines a type') or diag $stderr;
is(run_job($node, 'theirs')->{status}, 'completed', 'a member of pg_execute_server_program has a type');
$node->safe_psql('postgres', 'REVOKE pg_execute_server_program FROM operator');
is(run_job($node, 'theirs')->{error_code}, '42501', 'its right is checked again when a job runs');

$node->stop;
done_testing();
