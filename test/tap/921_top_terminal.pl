# jobq-top: the text and JSON of one look, exit statuses, rights, and the screen on a
# pseudo-terminal: sizes, keys, lost connections, the terminal's state afterwards.

use strict;
use warnings;
use utf8;

use Encode qw(decode encode);
use JSON::PP;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use Time::HiRes ();

my $top = $ENV{JOBQ_TOP} // 'jobq-top';
plan skip_all => 'jobq-top was not built' unless $ENV{JOBQ_TOP} || grep { -x "$_/jobq-top" } split /:/, $ENV{PATH};

my $node = jobq_server('top');
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION jobq; CREATE ROLE outsider LOGIN; CREATE ROLE tenant LOGIN; CREATE DATABASE bare');
$node->safe_psql('postgres', "SELECT jobq.grant_access('tenant', 'read', tenant => 'acme')");
sleeper_types($node, 'postgres');
wait_dispatcher($node, 'postgres', 'the dispatcher runs');
my @connection = ('-h', $node->host, '-p', $node->port);

# Runs jobq-top without a terminal; returns exit status, output, errors.
sub once
{
	my @command = ($top, @connection, '-d', 'postgres', @_);
	my ($out, $err) = ('', '');
	local $ENV{LC_ALL} = 'C.UTF-8';

	IPC::Run::run(\@command, '<', '/dev/null', '>', \$out, '2>', \$err);
	return ($? >> 8, decode('UTF-8', $out), $err);
}

# ---------- once ----------

ok($node->poll_query_until('postgres', "SELECT jobq.health()->>'status' = 'healthy'"), 'the queue is healthy');
my ($status, $out, $err) = once('--once');
is($status, 0, 'healthy: 0') or diag(encode('UTF-8', $out), $err);
like($out, qr/^HEALTHY: all checks pass$/m, 'in words');
like($out, qr/^no job runs$/m, 'a section without rows');

my $wide = '漢字' x 10;
$node->safe_psql('postgres', encode('UTF-8', <<END));
CREATE FUNCTION broken(p jsonb) RETURNS void LANGUAGE plpgsql AS \$\$ BEGIN RAISE EXCEPTION '%', p->>'text'; END \$\$;
SELECT jobq.create_job_type('broken', 'broken(jsonb)', max_attempts => 1);
SELECT jobq.create_job_type('$wide', 'sleeper(jsonb)');
SELECT jobq.create_job_type('pull');
SELECT jobq.pause_job_type('$wide', 'test');
SELECT jobq.enqueue('broken', jsonb_build_object('text', E'hidden \\x1b[31m\\x07\\xc2\\x9b2J\\xe2\\x80\\xae\\x7f end'));
SELECT jobq.enqueue('$wide', tenant => 'acme') FROM generate_series(1, 30);
SELECT jobq.enqueue('sleeper', '{"seconds": 600}');
SELECT jobq.enqueue('pull');
END
wait_for_sql($node, "SELECT count(*) = 1 FROM jobq.jobs WHERE status = 'error'");
wait_for_sql($node, "SELECT count(*) = 1 FROM jobq.jobs WHERE status = 'running'");
$node->safe_psql('postgres', encode('UTF-8', q{SELECT jobq.claim('{pull}', worker => 'laptop of 漢字')}));
wait_for_sql($node, "SELECT jobq.health()->>'status' = 'degraded'");
wait_for_sql($node, 'SELECT count(*) = 1 FROM jobq.stat_job_types WHERE due > 0', 'the dispatcher has counted due jobs');

($status, $out, $err) = once('--once');
is($status, 1, 'degraded: 1') or diag(encode('UTF-8', $out), $err);
like($out, qr/^DEGRADED: the queue works, but 2 checks fail: dead_letters, queues$/m, 'in words');
like($out, qr/^  dead_letters \(degraded\): jobs have failed for good/m, 'with the message of a check');
like($out, qr/^\Q$wide\E +\d+\+? +30 +0 +0 +0 +0 .*paused$/m, 'a job type');
like($out, qr/^RUNNING 2, idle workers \d+$/m, 'running jobs');
like($out, qr/ sleeper .* sql /, 'that of a handler');
like($out, qr/ pull +1 .*laptop of 漢字$/m, 'that of a client');
like($out, qr/ \Q$wide\E +pending .* acme$/m, 'waiting jobs');
like($out, qr/ broken +P0001 +hidden \\x1b\[\S*\\x07\\xc2\\x9b\S*\\xe2\\x80\\xae\\x7f end$/m, 'an error with its escapes shown');
unlike($out, qr/[\x00-\x09\x0b-\x1f\x7f-\x9f\x{202e}]/, 'nothing for the terminal to obey');
{
	local $ENV{LC_ALL} = 'C';
	my ($plain) = run_command([ $top, @connection, '--once', 'postgres' ]);
	unlike($plain, qr/[^\n\x20-\x7e]/, 'the locale C gets ASCII');
	like($plain, qr/\\xe6\\xbc\\xa2/, 'and escapes');
}

($status, $out, $err) = once('--json');
is($status, 1, 'JSON has the same exit status');
is(scalar(() = $out =~ /\n/g), 1, 'it is one line');
unlike($out, qr/[\x00-\x09\x0b-\x1f\x7f-\x9f]/, 'without control characters');
my $json = decode_json(encode('UTF-8', $out));
is_deeply([ sort keys %$json ], [qw(errors health job_types place unavailable waiting workers)], 'its members');
is($json->{health}{status}, 'degraded', 'the verdict');
is((grep { $_->{job_type} eq $wide } @{ $json->{job_types} })[0]{pending}, 30, 'job types');
is($json->{job_types}[0]{job_type}, $wide, 'the one in trouble comes first');
is(scalar(grep { defined $_->{job_id} } @{ $json->{workers} }), 2, 'workers');
is(scalar @{ $json->{waiting} }, 30, 'waiting jobs');
like($json->{errors}[0]{pattern}, qr/^hidden \e\[.*\a\x{9b}\S*\x{202e}\x7f end$/, 'errors as they are');
is_deeply($json->{unavailable}, {}, 'everything could be read');

# ---------- exit statuses, rights ----------

($status, $out, $err) = once('-U', 'tenant', '--json');
is($status, 1, 'a reader of one tenant has a verdict');
$json = decode_json(encode('UTF-8', $out));
is($json->{unavailable}{job_types}{sqlstate}, '42501', 'the statistics are not for it');
is_deeply([ $json->{job_types}, scalar @{ $json->{waiting} } ], [ undef, 30 ], 'its jobs are there');
($status, $out) = once('-U', 'tenant', '--once');
like($out, qr/^no right to read this: /m, 'the text says so');
($status, $out) = once('-U', 'outsider', '--once');
is($status, 3, 'no right to the verdict: 3');
like($out, qr/^UNKNOWN: /, 'and unknown');
($status, $out) = once('-d', 'bare', '--once');
is($status, 3, 'no extension: 3');
($status, $out, $err) = once('-p', PostgreSQL::Test::Cluster::get_free_port(), '--once');
is($status, 3, 'no connection: 3');
like($err, qr/^jobq-top: .*connect/, 'with the reason');
($status, $out, $err) = once('--once', '-i', '0');
is("$status $err", "3 jobq-top: -i 0: not a number of seconds in 0.1..3600\n", 'a bad interval');
($status, $out, $err) = once();
like("$status $err", qr/^3 .*no terminal/, 'no terminal: --once is named');
$node->safe_psql('postgres', "SELECT jobq.stop_all('test')");
$node->safe_psql('postgres', 'ALTER SYSTEM SET jobq.health_dead_letters = 1');
$node->reload;
wait_for_sql($node, "SELECT jobq.health()->>'status' = 'unhealthy'");
is((once('--once'))[0], 2, 'unhealthy: 2');
like((once('--once'))[1], qr/^UNHEALTHY: /, 'in words');
$node->safe_psql('postgres', 'SELECT jobq.start_all()');

# ---------- the screen ----------

if (!eval { require IO::Pty; IO::Pty->new })
{
  SKIP: { skip 'this user can open no pseudo-terminal', 1 }
	done_testing();
	exit;
}

# Starts it on a terminal of this size.
sub start
{
	my ($rows, $columns, @more) = @_;
	my $pty = IO::Pty->new;
	my $screen = { pty => $pty, rows => $rows, columns => $columns, seen => '', slave => $pty->slave };

	$pty->slave->set_winsize($rows, $columns);
	$screen->{mode} = mode_of($screen);
	$pty->blocking(0);		# what a terminal drops can make it readable
	$screen->{pid} = fork // die "fork: $!";
	if ($screen->{pid} == 0)
	{
		$pty->make_slave_controlling_terminal;
		open STDIN, '<&', $pty->slave or die;
		open STDOUT, '>&', $pty->slave or die;
		close $pty;
		$ENV{LC_ALL} = 'C.UTF-8';
		delete $ENV{PGAPPNAME};
		exec $top, @connection, '-d', 'postgres', '-i', '0.3', @more or die "exec: $!";
	}
	return $screen;
}

sub mode_of
{
	my $mode = POSIX::Termios->new;

	$mode->getattr(fileno($_[0]->{slave}));
	return join ' ', $mode->getiflag, $mode->getoflag, $mode->getcflag, $mode->getlflag, map { $mode->getcc($_) } 0 .. 9;
}

# Adds what it has written to seen; false: nothing within a second.
sub pump
{
	my ($screen) = @_;
	my $ready = '';

	vec($ready, fileno($screen->{pty}), 1) = 1;
	return 0 unless select($ready, undef, undef, 0.5);
	return sysread($screen->{pty}, $screen->{seen}, 65536, length $screen->{seen}) // 0;
}

# The lines of the newest whole frame.
sub lines_of
{
	my ($screen) = @_;

	foreach my $frame (reverse split /\e\[H/, $screen->{seen})
	{
		my @lines = split /\e\[K\r+\n/, $frame, -1;
		next unless @lines == $screen->{rows} && $lines[-1] =~ s/\e\[K$//;
		return map { decode('UTF-8', $_) =~ s/\e\[7?1?m//gr } @lines;
	}
	return;
}

# Waits until a frame matches.
sub shows
{
	my ($screen, $pattern, $what) = @_;
	my $end = Time::HiRes::time() + $PostgreSQL::Test::Utils::timeout_default;
	my $text = '';

	while (Time::HiRes::time() < $end)
	{
		$text = join "\n", lines_of($screen);
		return pass($what) if $text =~ $pattern;
		pump($screen);
	}
	fail($what);
	diag(encode('UTF-8', $text));
	return;
}

sub type { my ($screen, $keys) = @_; $screen->{seen} = ''; syswrite $screen->{pty}, $keys; return; }

# The columns of a line: Han characters have two.
sub columns { my ($line) = @_; return length($line) + (() = $line =~ /\p{Han}/g); }

sub fits
{
	my ($screen, $what) = @_;
	my @lines = lines_of($screen);

	is(scalar @lines, $screen->{rows}, "$what: as many lines as the terminal has");
	is(join("\n", grep { columns($_) > $screen->{columns} } @lines), '', "$what: none is longer");
	is(join("\n", grep { /[\x00-\x1f\x7f-\x9f\x{202e}]/ } @lines), '', "$what: no escape of the database");
	return;
}

# Waits for its end; returns the wait status.
sub end
{
	my ($screen) = @_;
	my $pid;

	foreach (1 .. 2 * $PostgreSQL::Test::Utils::timeout_default)
	{
		pump($screen);
		last if ($pid = waitpid $screen->{pid}, 1) != 0;
	}
	my $found = $?;
	diag map { "/proc/$screen->{pid}/$_: " . (eval { slurp_file("/proc/$screen->{pid}/$_") } // '') . "\n" } qw(wchan status) if !$pid;
	kill 'KILL', $screen->{pid} if !$pid;
	while (pump($screen)) { }
	like($screen->{seen}, qr/\e\[\?1049l\z/, 'the alternate screen is left last');
	like($screen->{seen}, qr/\e\[\?25h/, 'the cursor is back');
	is(mode_of($screen), $screen->{mode}, 'the terminal has its mode again');
	return $found;
}

my $screen = start(24, 80);
shows($screen, qr/UNHEALTHY.*^JOB TYPES.*^RUNNING 2.*^ERRORS/ms, 'a screen of 24 lines has all sections');
like($screen->{seen}, qr/^\e\[\?1049h/, 'on the alternate screen');
fits($screen, '80x24');
isnt(mode_of($screen), $screen->{mode}, 'keys are read one by one');

($screen->{rows}, $screen->{columns}) = (60, 200);
$screen->{slave}->set_winsize(60, 200);
kill 'WINCH', $screen->{pid};
shows($screen, qr/hidden \\x1b.*\\x7f end/s, 'it follows a change of size');
fits($screen, '200x60');
($screen->{rows}, $screen->{columns}) = (5, 20);
$screen->{slave}->set_winsize(5, 20);
kill 'WINCH', $screen->{pid};
shows($screen, qr/^jobq-top.*^UNHEALTHY.*\+$.*^q quit/ms, 'and one to a few lines');
fits($screen, '20x5');
($screen->{rows}, $screen->{columns}) = (24, 80);
$screen->{slave}->set_winsize(24, 80);
kill 'WINCH', $screen->{pid};
shows($screen, qr/^RUNNING 2/m, 'and back');

my $first = $node->safe_psql('postgres', "SELECT id FROM jobq.jobs WHERE status = 'pending' ORDER BY id LIMIT 1");
my $last = $node->safe_psql('postgres', "SELECT id FROM jobq.jobs WHERE status = 'pending' ORDER BY id DESC LIMIT 1");
type($screen, "\e[B\e[B\e[B");
shows($screen, qr/^\Q$first\E/m, 'arrows select: two running jobs, then the first that waits');
type($screen, 'w');
shows($screen, qr/^WHY \Q$first\E\s+^status: pending\s.*^  type_paused: job type "\Q$wide\E/ms, 'w: why it does not start');
type($screen, "\e");
shows($screen, qr/^JOB TYPES/m, 'Escape leads back');
type($screen, "j" x 40);
shows($screen, qr/^\Q$last\E/m, 'a list moves with the selection');
type($screen, "kkjj/$last");
shows($screen, qr/^why, id of a job: \Q$last\E_/m, 'an id is typed');
type($screen, "x\x7f\r");
shows($screen, qr/^ahead: 29$/m, 'why of that one');
type($screen, "w'; DROP TABLE x\r");
shows($screen, qr/^invalid input syntax for type uuid: "';DROPTABLEx"/m, 'an id that is none');
type($screen, "/01234567-89ab-7def-8123-456789abcdef\r");
shows($screen, qr/^WHY 0123.*^(?!asking)\w.*job/ms, 'an unknown id');
type($screen, "\r");

my $pid = $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE application_name = 'jobq-top'});
is($node->safe_psql('postgres', "SELECT pg_terminate_backend($pid, 60000)"), 't', 'its connection is terminated');
wait_for_sql($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'jobq-top' AND pid <> $pid", 'it opens another one');
$screen->{seen} = '';
shows($screen, qr/^jobq-top  postgres on \S+  read-only.*^RUNNING 2/ms, 'it connects again');
$node->stop('fast');
shows($screen, qr/^jobq-top .* STALE, \d+ s old: .*^RUNNING 2/ms, 'without a server the rows are stale, and stay');
$node->start;
wait_dispatcher($node, 'postgres', 'the dispatcher runs');
shows($screen, qr/^jobq-top .* read-only.*^JOB TYPES/ms, 'with a server they are read again');
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'jobq-top'"), 1, 'on one connection');
type($screen, 'q');
is(end($screen), 0, 'q ends it');

foreach my $signal (qw(TERM HUP INT))
{
	my $number = { TERM => 15, HUP => 1, INT => 2 }->{$signal};

	$screen = start(24, 80);
	shows($screen, qr/^JOB TYPES \d/m, 'it shows');
	kill $signal, $screen->{pid};
	is(end($screen), $number, "SIG$signal ends it");
}
$screen = start(24, 80);
shows($screen, qr/^JOB TYPES \d/m, 'it shows');
type($screen, "\x1a");
ok(eval { local $SIG{ALRM} = sub { die }; alarm 60; 1 until pump($screen) && $screen->{seen} =~ /\e\[\?1049l/; alarm 0; 1 }, 'Ctrl-Z leaves the screen');
waitpid $screen->{pid}, 2;
is(mode_of($screen), $screen->{mode}, 'with the terminal as it was');
kill 'CONT', $screen->{pid};
shows($screen, qr/^JOB TYPES \d/m, 'and comes back');
type($screen, "\x03");
is(end($screen), 2, 'Ctrl-C ends it');

done_testing();
