# A tool's error message on descriptor 3, and the line of stderr that is used without one.

use strict;
use warnings;
use utf8;

use ExecTest;
use PostgreSQL::Test::Utils;
use Test::More;

$ENV{PGCLIENTENCODING} = 'UTF8';
my $node = jobq_node('tool_errors');

# Follows the payload: lines for stderr and descriptor 3, then the exit code or signal.
my $says = tool('says', <<'TOOL');
#!/usr/bin/perl
use JSON::PP;
my $do = JSON::PP->new->utf8->decode(do { local $/; <STDIN> });
open my $notes, '>&=', 3;
binmode $_, ':raw' for $notes, *STDERR;
print $notes JSON::PP->new->utf8->ascii($do->{ascii} ? 1 : 0)->allow_nonref->encode($_), "\n" for @{ $do->{says} // [] };
print $notes "$_\n" for @{ $do->{raw} // [] };
close $notes;
print STDERR pack('H*', $do->{stderr} // '');
$do->{stop} and kill $do->{stop}, $$;
sleep 600 if $do->{hang};
exit($do->{code} // 1);
TOOL

sub says
{
	my ($type, %do) = @_;
	return run_job($node, $type, JSON::PP->new->canonical->ascii->encode(\%do));
}
sub summary { my ($j) = @_; return join ' ', map { $_ // '-' } @$j{qw(status attempts error_code error_msg)}; }
sub remarks
{
	my ($j) = @_;
	return $node->safe_psql('postgres', "SELECT message FROM jobq.events WHERE job_id = '$j->{id}' AND level = 'warning' AND type = 'log' ORDER BY id");
}
sub bytes { my ($text) = @_; utf8::encode($text); return unpack 'H*', $text; }

define_tool($node, 'says', [$says], max_attempts => 2, backoff_base => "'0'",
	options => q('{"output": "none", "skip_exit_codes": [10], "snooze_exit_codes": [11], "permanent_codes": ["fatal%", "exit:77"]}'));

# ---------- a line on descriptor 3 ----------

my $job = says('says', says => [ { error => 'busy', code => 'http_503' } ], code => 1, stderr => bytes("noise\n"));
is(summary($job), 'error 2 http_503 busy', 'text and code are those of the line, and it is retried');
is_deeply($job->{error_details}, { stderr => "noise\n" }, 'stderr is kept');
is($node->safe_psql('postgres', "SELECT string_agg(concat_ws(' ', message, data->>'code', data->>'error'), ', ') FROM jobq.events WHERE job_id = '$job->{id}' AND type = 'failed'"),
	'busy http_503 busy, busy http_503 busy', 'in the events, too');
is(summary(says('says', says => [ { error => 'no' } ], code => 3)), 'error 2 exit:3 no', 'without a code the exit code is one');
is(summary(says('says', says => [ { error => 'no', code => 429 } ])), 'error 2 429 no', 'a code may be a number');
is(summary(says('says', says => [ { error => 'no', code => '' } ], code => 3)), 'error 2 exit:3 no', 'an empty one is none');
is(summary(says('says', says => [ { error => 'first', code => 'a' }, { error => 'last', code => 'b' } ])), 'error 2 b last', 'the last line wins');
is(summary(says('says', says => [ { error => 'x', retryable => JSON::PP::false } ])), 'error 1 exit:1 x', 'retryable false: no further attempt');
is(summary(says('says', says => [ { error => 'x', code => 'fatal_1' } ])), 'error 1 fatal_1 x', 'permanent_codes match its code');
is(summary(says('says', says => [ { error => 'x', code => 'fatal_1', retryable => JSON::PP::true } ])), 'error 2 fatal_1 x', 'retryable true: whatever they say');
is(summary(says('says', says => [ { error => 'x' } ], code => 77)), 'error 1 exit:77 x', 'they match an exit code that has a line, too');
is(summary(says('says', says => [ { error => 'x' } ], code => 126)), 'error 2 exit:126 x', 'the line wins over permanent_exit_codes');
is(summary(says('says', says => [ { error => 'x' } ], code => 10)), 'error 2 exit:10 x', 'and skip_exit_codes');
is(summary(says('says', says => [ { error => 'x' } ], code => 11)), 'error 2 exit:11 x', 'and snooze_exit_codes');
define_tool($node, 'picky', [$says], max_attempts => 2, backoff_base => "'0'", options => q('{"output": "none", "retry_codes": ["http_5%"]}'));
is(summary(says('picky', says => [ { error => 'x', code => 'http_404' } ])), 'error 1 http_404 x', 'retry_codes judge its code');
is(summary(says('picky', says => [ { error => 'x', code => 'http_503' } ])), 'error 2 http_503 x', 'which may match');
is(summary(says('picky', says => [ { error => 'x', code => 'http_404', retryable => JSON::PP::true } ])), 'error 2 http_404 x', 'retryable true: whatever they say');
is(says('says', code => 10)->{status}, 'skipped', 'which count without one');
is(summary(says('says', says => [ { error => "two\nlines\ttab" } ])), "error 2 exit:1 two\nlines\ttab", 'the text stays as it is');

$job = says('says', says => [ { error => 'x', details => { url => 'http://a', n => [ 1, 2 ] } } ], stderr => bytes("oops\n"));
is_deeply($job->{error_details}, { stderr => "oops\n", url => 'http://a', n => [ 1, 2 ] }, 'details stand beside stderr');
$job = says('says', says => [ { error => 'x', details => { stderr => 'its own' } } ], stderr => bytes("oops\n"));
is_deeply($job->{error_details}, { stderr => 'its own' }, 'or in its place');
is($node->safe_psql('postgres', "SELECT DISTINCT data->>'stderr' FROM jobq.events WHERE job_id = '$job->{id}' AND type = 'failed'"), "oops\n", 'which the event keeps');
$job = says('says', says => [ { error => 'x', details => {} } ]);
is_deeply($job->{error_details}, {}, 'empty details');

# ---------- retries ----------

sub waits
{
	my ($after, $least, $most, $what) = @_;
	my $id = enqueue($node, 'says', JSON::PP->new->encode({ says => [ { error => 'later', retry_after => $after } ] }), backoff => q('{"base": "1 day"}'));
	wait_status($node, $id, 'retry');
	is($node->safe_psql('postgres', "SELECT scheduled_for - (SELECT max(ts) FROM jobq.events WHERE job_id = j.id AND type = 'failed')
		BETWEEN '$least' AND '$most' FROM jobq.jobs j WHERE id = '$id'"), 't', $what);
	return;
}
waits(3600, '1 hour', '1 hour', 'retry_after replaces the backoff');
waits(0.5, '0.5 s', '0.5 s', 'a fraction of a second');
waits('2 hours', '2 hours', '2 hours', 'an interval');
waits(1e9, '1000000000 s', '1000000000 s', 'the longest');
is(summary(says('says', says => [ { error => 'now', retry_after => 0 } ], code => 2)), 'error 2 exit:2 now', 'at once');

# ---------- invalid lines ----------

foreach my $bad ({ error => 'x', retry_after => -1 }, { error => 'x', retry_after => 2e9 }, { error => 'x', retry_after => 'soon' },
	{ error => 'x', retry_after => '-1 hour' }, { error => 'x', retry_after => '300000 years' }, { error => 7 }, { error => 'x', details => 'none' })
{
	my $text = JSON::PP->new->canonical->encode($bad);
	$job = says('says', says => [$bad], code => 126);
	is(summary($job), 'error 1 exit:126 exited with code 126', "$text: the exit code counts");
	is(remarks($job), '1 lines on descriptor 3 were malformed', "$text: the line is counted");
}

# ---------- outcomes other than the error ----------

$job = says('says', says => [ { error => 'never mind', code => 'odd' } ], code => 0);
is(summary($job), 'completed 1 - -', 'exit code 0 is success');
is(remarks($job), 'the error on descriptor 3 was ignored: the exit code is 0', 'an event has it');
is($node->safe_psql('postgres', "SELECT data->>'error' FROM jobq.events WHERE job_id = '$job->{id}' AND level = 'warning'"), 'never mind', 'with the line');
$job = says('says', says => [ { error => 'out of memory', retryable => JSON::PP::false } ], stop => 'ABRT');
is(summary($job), 'error 2 signal:ABRT terminated by signal ABRT', 'a signal is the outcome');
is(remarks($job), join("\n", ('the error on descriptor 3 was ignored: the tool did not exit by itself') x 2), 'an event has the line');
my $id = enqueue($node, 'says', '{"says": [{"error": "slow"}], "hang": true}', timeout => "'500ms'", max_attempts => 1);
is(summary(finished($node, $id)), 'error 1 timeout timeout after 00:00:00.5', 'a timeout is the outcome');

# ---------- bounds ----------

$job = says('says', says => [ { error => 'ä' x 20_000, code => 'c' x 1000, details => { big => 'x' x 500 } } ], stderr => bytes("oops\n"));
like($job->{error_msg}, qr/^ä{4000,} \[cut: 40000 bytes in all\]$/, 'the text has 8 kB');
is(length $job->{error_code}, 255, 'the code 255 bytes');
is($job->{error_details}{big}, 'x' x 500, 'details that fit are whole');
$job = says('says', says => [ { error => 'x', details => { big => [ 1 .. 9000 ] } } ], stderr => bytes("oops\n"));
is_deeply($job->{error_details}, { truncated => JSON::PP::true, stderr => "oops\n" }, 'details that do not fit are left out, stderr is not');
$job = says('says', says => [ { error => 'x', details => { big => [ 1 .. 9000 ] } } ]);
is_deeply($job->{error_details}, { truncated => JSON::PP::true }, 'also without stderr');
$job = says('says', raw => [ '{"error": "x", "details": {"n": 1e400}}' ]);
is($job->{error_msg}, 'x', 'a long number');
$job = says('says', raw => [ '{"error": "good"}', '{"error": "a", "err\\u006fr": 5}' ]);
is(summary($job), 'error 2 exit:1 exited with code 1', 'a key written in another way');
is($node->safe_psql('postgres', "SELECT count(*) FROM jobq.events WHERE job_id = '$job->{id}' AND message = '1 lines on descriptor 3 were malformed'"), '2', 'is no way around');

# ---------- the last line of stderr ----------

sub message { my ($stderr, %o) = @_; return says('says', stderr => $stderr, %o)->{error_msg}; }
is(message(bytes("first\nKeyError: 'a'\n"), code => 4), "exited with code 4: KeyError: 'a'", 'the last line of stderr');
is(message(bytes("the line\n\n  \t\n")), 'exited with code 1: the line', 'that is not blank');
is(message(bytes("  no newline")), 'exited with code 1: no newline', 'also without its end');
is(message(bytes("windows\r\n\r\n")), 'exited with code 1: windows', 'also with another end');
is(message(bytes(" \n\n")), 'exited with code 1', 'none');
is(message(bytes('ä' x 3000)), 'exited with code 1: ' . 'ä' x 512, 'at most 1 kB, whole characters');
is(message('ff00' . bytes('x')), "exited with code 1: \x{fffd}\\x00x", 'in characters that can be stored');
is(message(bytes("forged\e[31m"), code => 10), 'exited with code 10: forged\x1b[31m', 'no control characters; as the reason of a skip, too');
$job = says('says', stderr => bytes("x\nTimeoutError: read\n"), code => 5);
is($node->safe_psql('postgres', q{SELECT jobq.retry_dead_letters(error_like => '%: TimeoutError:%')}), '1', 'error_like finds it');
ok($node->poll_query_until('postgres', "SELECT runs > 2 FROM jobq.jobs WHERE id = '$job->{id}'"), 'and it runs again');

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
	my $do = $job->{payload};
	print $notes encode_json({id => $job->{id}, %{$do->{notes}}}), "\n" if $do->{notes};
	print STDERR $do->{stderr} if $do->{stderr};
	exit $do->{code} if defined $do->{code};
	print encode_json({id => $job->{id}, %{$do->{answer}}}), "\n";
}
TOOL
define_tool($node, 'warm', [$warm], options => q('{"warm": 1, "permanent_codes": ["fatal%"]}'), max_attempts => 2, backoff_base => "'0'");
$job = says('warm', answer => { error => 'x', code => 'fatal', retryable => JSON::PP::true, details => { a => 1 } }, stderr => "why\n");
is(summary($job), 'error 2 fatal x', 'an answer may say retryable, too');
is_deeply($job->{error_details}, { a => 1, stderr => "why\n" }, 'and has details');
is(summary(says('warm', notes => { error => 'dying', code => 'oom' }, code => 9)), 'error 2 oom dying', 'an instance that ends has said why');
is(summary(says('warm', notes => { error => 'dying', code => 'fatal' }, code => 0)), 'error 1 fatal dying', 'whatever its exit code');
is(summary(says('warm', code => 9, stderr => "no module\n")), 'error 2 exit:9 exited with code 9 before it had answered: no module', 'or stderr has');
is(summary(says('warm', notes => { error => 'x' }, answer => { result => 1 })), 'completed 1 - -', 'its answer counts');
$id = enqueue($node, 'warm', '{"answer": {"error": "later", "retry_after": "300000 years"}}');
is(summary(finished($node, $id)), 'error 2 - later', 'an interval out of bounds is the usual backoff');

# ---------- another encoding ----------

$node->safe_psql('postgres', q{CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0});
$node->safe_psql('latin', 'CREATE EXTENSION jobq');
sub latin
{
	my (%do) = @_;
	my $text = JSON::PP->new->ascii->encode(\%do);
	my $latin = $node->safe_psql('latin', "SELECT jobq.enqueue('says', " . literal(JSON::PP->new->ascii->encode({ hex => unpack('H*', $text) })) . ')');
	$node->poll_query_until('latin', "SELECT status = 'error' FROM jobq.jobs WHERE id = '$latin'");
	my $row = $node->safe_psql('latin', "SELECT concat_ws(' ', error_code, error_msg, error_details) FROM jobq.jobs WHERE id = '$latin'");
	utf8::decode($row);
	return $row;
}
my $hex = tool('hex', <<"TOOL");
#!/usr/bin/perl
<STDIN> =~ /"hex": "([0-9a-f]+)"/;
open my \$pipe, '|-', '$says' or die;
print \$pipe pack 'H*', \$1;
close \$pipe;
exit(\$? >> 8);
TOOL
$node->safe_psql('latin', "SELECT jobq.create_job_type('says', command => ARRAY['$hex'], options => '{\"output\": \"none\"}', max_attempts => 1)");
foreach my $ascii (0, 1)
{
	is(latin(says => [ { error => 'ä€\"\\ü', code => 'c', details => { k => 'ö' } } ], ascii => $ascii), 'c ä?\"\\ü {"k": "ö"}',
		'what a database can not store is a question mark' . ($ascii ? ', also written as an escape' : ''));
}
is(latin(stderr => bytes("ä€\n"), code => 2), 'exit:2 exited with code 2: ä? {"stderr": "ä?\n"}', 'in the line of stderr, too');

done_testing();
