# GET stream of jobq-web: what its events hold, how often the server is asked, each way to end, a
# lost server, slow clients, the limit of 600.

use strict;
use warnings;

use Compress::Raw::Zlib;
use FindBin;
use IO::Select;
use IO::Socket::INET;
use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ServerTest;
use Socket qw(SOL_SOCKET SO_RCVBUF);
use Test::More;
use Time::HiRes qw(time);
use WebTest;

my @all = map { "all$_" } 1 .. 5;
my $node = web_node('stream', 'max_connections = 50');
$node->safe_psql('postgres', <<'END');
SELECT jobq.create_job_type('mail'), jobq.create_job_type('quiet'), jobq.create_job_type('hidden');
CREATE ROLE enqueuer LOGIN PASSWORD 'p';
SELECT jobq.grant_access('enqueuer', 'enqueue');
SELECT jobq.enqueue('mail', tenant => 'acme'), jobq.enqueue('mail', tenant => 'beta'), jobq.enqueue('hidden', tenant => 'beta');
END
foreach my $role (@all)
{
	$node->safe_psql('postgres', "CREATE ROLE $role LOGIN PASSWORD 'p'; SELECT jobq.grant_access('$role', 'read'); ALTER ROLE $role SET log_statement = 'all'");
}
foreach my $tenant (qw(acme beta))
{
	$node->safe_psql('postgres', "CREATE ROLE $tenant LOGIN PASSWORD 'p'; SELECT jobq.grant_access('$tenant', 'read', tenant => '$tenant'); ALTER ROLE $tenant SET log_statement = 'all'");
}
wait_dispatcher($node, 'postgres', 'the dispatcher runs');
wait_for_sql($node, "SELECT sum(due) = 3 FROM jobq.stat_job_types", 'due jobs were counted');
my $web = start_web($node);

# ---------- streams ----------

# Opens a stream; more: web, from (an address), receive (bytes of the socket's buffer), headers,
# version, counts (its events are only counted), packed (it takes gzip).
sub open_stream
{
	my ($role, %more) = @_;
	my %headers = (Host => 'a', ($role ? basic($role, 'p') : ()), ($more{packed} ? ('Accept-Encoding' => 'gzip') : ()), %{ $more{headers} // {} });
	my $to = $more{web} // $web;
	my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $to->{port}, LocalAddr => $more{from} // '127.0.0.1',
		Proto => 'tcp', Timeout => 30) // die "connect: $!";

	setsockopt($socket, SOL_SOCKET, SO_RCVBUF, pack('i', $more{receive})) if $more{receive};
	syswrite($socket, "GET /api/v1/stream HTTP/" . ($more{version} // '1.1') . "\r\n"
		  . join('', map { "$_: $headers{$_}\r\n" } sort keys %headers) . "\r\n");
	return { socket => $socket, raw => '', text => '', events => [], comments => [], began => time, counts => $more{counts} };
}

# Takes what has arrived: the head, chunks, events.
sub take
{
	my ($s) = @_;
	my $n = sysread($s->{socket}, $s->{raw}, 1 << 18, length $s->{raw});

	$s->{closed} = 1 unless $n;
	if (!$s->{head} && $s->{raw} =~ s/^(HTTP.*?\r\n\r\n)//s)
	{
		$s->{head} = $1;
		($s->{status}) = $s->{head} =~ /^HTTP\S+ (\d+)/;
		$s->{chunked} = $s->{head} =~ /^Transfer-Encoding: chunked/mi;
		$s->{gzip} = Compress::Raw::Zlib::Inflate->new(-WindowBits => WANT_GZIP) if $s->{head} =~ /^Content-Encoding: gzip\r$/mi;
	}
	return unless $s->{head};
	my $body = '';
	if ($s->{chunked})
	{
		while ($s->{raw} =~ /^([0-9a-fA-F]+)\r\n/ && length $s->{raw} >= length($1) + 4 + hex $1)
		{
			my $head = length($1) + 2;
			$s->{complete} = 1 if hex($1) == 0;
			$body .= substr $s->{raw}, $head, hex $1;
			substr($s->{raw}, 0, $head + 2 + hex $1, '');
		}
	}
	else
	{
		$body = $s->{raw};
		$s->{raw} = '';
	}
	if ($s->{gzip} && $body ne '')
	{
		my $status = $s->{gzip}->inflate($body, my $plain);

		die "gzip: $status" unless $status == Z_OK || $status == Z_STREAM_END;
		$s->{unpacked} = $status == Z_STREAM_END;
		$body = $plain;
	}
	$s->{text} .= $body;
	return unless $s->{status} == 200;
	while ($s->{text} =~ s/^(.*?)\n\n//s)
	{
		my $block = $1;
		my %event = (at => time, map { split /: ?/, $_, 2 } grep { !/^:/ } split /\n/, $block);

		if ($block =~ /^:/) { push @{ $s->{comments} }, time; }
		elsif ($event{event}) { $event{data} = decode_json($event{data}) unless $s->{counts}; push @{ $s->{events} }, \%event; }
		else { $s->{retry} = $event{retry}; }
	}
	return;
}

# Reads what has come, or comes within so many seconds.
sub read_ready
{
	my ($seconds, @streams) = @_;
	my %of = map { fileno($_->{socket}) => $_ } grep { !$_->{closed} } @streams;

	take($of{ fileno $_ }) foreach IO::Select->new(map { $_->{socket} } values %of)->can_read($seconds);
	return;
}

# Reads the streams until the condition is true of each of them; false: it takes too long.
sub until_true
{
	my ($condition, @streams) = @_;
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;

	for (;;)
	{
		my @left = grep { my $s = $_; !$condition->($s) } @streams;
		return 1 unless @left;
		return 0 if time > $end;
		return 0 unless grep { !$_->{closed} } @streams;
		read_ready(1, @streams);
	}
}

sub named { my ($s, $name) = @_; return grep { $_->{event} eq $name } @{ $s->{events} }; }

# Waits for so many events of a name, further ones; returns the last one's data.
sub next_event
{
	my ($s, $name, $n) = @_;
	my $count = named($s, $name) + ($n // 1);

	until_true(sub { named($_[0], $name) >= $count }, $s)
	  or fail("no event $name: " . ($s->{head} // '') . encode_json([ map { $_->{event} } @{ $s->{events} } ]));
	return ((named($s, $name))[-1] // {})->{data};
}

# The stream must end with this reason.
sub ends_with
{
	my ($s, $reason, $what) = @_;

	until_true(sub { $_[0]{closed} }, $s);
	my @bye = named($s, 'bye');
	is(join(' ', map { $_->{data}{reason} } @bye), $reason, "$what: bye, $reason");
	ok($s->{complete} && @bye && $s->{events}[-1] == $bye[0] && (!$s->{gzip} || $s->{unpacked}), 'as its last event');
	return;
}

sub type_of { my ($overview, $name) = @_; return (grep { ($_->{job_type} // '') eq $name } @{ $overview->{types} })[0]; }
sub close_streams { close $_->{socket} foreach @_; return; }

# Statements of a role in the server's log.
sub reads_of
{
	my ($roles, $from) = @_;
	my $log = substr slurp_file($node->logfile), $from;

	return scalar(() = $log =~ /execute <unnamed>: WITH (?:s|own) AS [^\n]* SELECT 'o'/g) if $roles eq 'any';
	return scalar(() = $log =~ /execute <unnamed>: WITH own AS [^\n]* SELECT 'o'/g) if $roles eq 'own';
	return scalar(() = $log =~ /execute <unnamed>: WITH s AS [^\n]* SELECT 'o'/g);
}

# ---------- events ----------

my $s = open_stream('all1', headers => { 'Last-Event-ID' => '17' });
my $overview = next_event($s, 'overview');
is($s->{status}, 200, 'a stream');
like($s->{head}, qr/^$_\r$/mi, $_) foreach 'Content-Type: text/event-stream', 'X-Accel-Buffering: no', 'Cache-Control: no-store', 'Connection: close';
is($s->{retry}, 2000, 'says when to come back');
is(type_of($overview, 'mail')->{pending}, 2, 'the overview has the numbers of a type');
my (undef, $body) = ask($web, 'GET', '/api/v1/overview', headers => { basic('all1', 'p') });
is_deeply([ sort keys %{ type_of($overview, 'mail') } ], [ sort keys %{ type_of($body, 'mail') } ], 'its columns are those of GET overview');
is_deeply([ sort keys %{ $overview->{health}{checks} } ], [ sort keys %{ $body->{health}{checks} } ], 'and so is health');

next_event($s, 'overview', 2);
$node->safe_psql('postgres', "SELECT jobq.enqueue('mail', tenant => 'acme')");
my $changed = next_event($s, 'changed');
is_deeply($changed, { job_types => ['mail'] }, 'a type with a new job has changed');
is($s->{events}[-2]{event}, 'overview', 'after the overview');
is(type_of($s->{events}[-2]{data}, 'mail')->{pending}, 3, 'that shows it');
next_event($s, 'overview', 2);
is(scalar(grep { join(' ', @{ $_->{data}{job_types} }) ne 'mail' } named($s, 'changed')), 0, 'no other type has changed');
my @at = map { $_->{at} } named($s, 'overview');
my ($shortest) = sort { $a <=> $b } map { $at[ $_ + 1 ] - $at[$_] } 0 .. $#at - 1;
cmp_ok($shortest, '>', 0.8, 'overviews come once a second');
my $long = $s;

my $old = open_stream('all1', version => '1.0');
next_event($old, 'overview', 2);
ok(!$old->{chunked} && named($old, 'overview') == 2, 'a client of HTTP/1.0 gets events without chunks');
close_streams($old);

my (undef, undef, $headers) = ask($web, 'HEAD', '/api/v1/stream', headers => { basic('all1', 'p') });
is(status_of($web, 'HEAD', '/api/v1/stream', headers => { basic('all1', 'p') }), 405, 'HEAD is refused');
is($headers->{allow}, 'GET', 'with the method that is not');
is(status_of($web, 'GET', '/api/v1/stream'), 401, 'no stream without sign-in');
is(status_of($web, 'GET', '/api/v1/stream', headers => { basic('all1', 'wrong') }), 401, 'nor with a wrong password');
is(status_of($web, 'GET', '/api/v1/stream', headers => { basic('enqueuer', 'p') }), 403, 'nor for a role that reads nothing');

# ---------- one read a second, for all roles that see all ----------

my @streams = map { open_stream($all[ $_ % 2 ], counts => 1, packed => $_ > 25) } 1 .. 50;
ok(until_true(sub { named($_[0], 'overview') >= 1 }, @streams), '50 streams of two roles');
is(scalar(grep { $_->{gzip} } @streams), 25, 'half of them in gzip');
my $from = -s $node->logfile;
my $began = time;
my %had = map { $_ => scalar named($_, 'overview') } @streams;
ok(until_true(sub { named($_[0], 'overview') >= $had{ $_[0] } + 4 }, @streams), 'all get overviews');
my $reads = reads_of('all', $from);
my @counts = sort { $a <=> $b } map { named($_, 'overview') - $had{$_} } @streams;
my $seconds = time - $began;
ok($reads >= $counts[0] && $reads <= $counts[-1] + 1, 'each of which is one statement for all of them') or diag "$reads @counts";
cmp_ok($reads, '<=', $seconds + 1, 'one a second');
cmp_ok($node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE usename LIKE 'all%'"), '<=', 4,
	'51 streams hold no connection: those are left that asked what they may see');
close_streams(@streams);

# ---------- a tenant's reader ----------

my @acme = map { open_stream('acme') } 1 .. 3;
$overview = next_event($_, 'overview') foreach @acme;
is_deeply($overview->{types}, [ { job_type => 'mail', pending => 2, blocked => 0, retry => 0, running => 0, dead => 0, exact => JSON::PP::true } ],
	'a reader of a tenant gets the numbers of its jobs, and no other type');
(undef, $body) = ask($web, 'GET', '/api/v1/overview', headers => { basic('acme', 'p') });
is_deeply($body->{types}, $overview->{types}, 'as GET overview');
unlike(encode_json($overview), qr/hidden|quiet|beta/, 'nothing else is told');
my $beta = open_stream('beta');
is_deeply([ map { "$_->{job_type} $_->{pending}" } @{ next_event($beta, 'overview')->{types} } ], [ 'hidden 1', 'mail 1' ], 'another one gets its own');
close_streams($beta);
$from = -s $node->logfile;
%had = map { $_ => scalar named($_, 'overview') } @acme;
$node->safe_psql('postgres', "SELECT jobq.cancel_job(id) FROM jobq.jobs WHERE tenant = 'acme'");
ok(until_true(sub { named($_[0], 'overview') >= $had{ $_[0] } + 2 }, @acme), 'its overviews');
@at = map { $_->{at} } named($acme[0], 'overview');
ok($at[-1] - $at[-2] > 4 && $at[-1] - $at[-2] < 8, 'come every 5 s') or diag "@at";
is(reads_of('own', $from), 2, 'three streams of a person are one read');
is_deeply([ map { $_->{data}{job_types} } named($acme[0], 'changed') ], [ ['mail'] ], 'a type whose last job has gone has changed');
is_deeply((named($acme[0], 'overview'))[-1]{data}{types}, [], 'and is no longer there');

# ---------- the end of a right ----------

my @two = map { open_stream("all$_", packed => $_ < 4) } 2, 3, 4;
next_event($_, 'overview') foreach @two;
$node->safe_psql('postgres', "SELECT jobq.revoke_access('all2', 'read')");
ends_with($two[0], 'rights', 'a role that may not read all any more');
$node->safe_psql('postgres', "DROP OWNED BY all3; SELECT jobq.revoke_access('all3', 'read'); DROP ROLE all3");
ends_with($two[1], 'rights', 'a role that is dropped');
$node->safe_psql('postgres', "ALTER ROLE all4 NOLOGIN");
ends_with($two[2], 'rights', 'a role that may not sign in any more');
$node->safe_psql('postgres', "ALTER ROLE all4 LOGIN; SELECT jobq.grant_access('all2', 'read', job_types => '{mail}')");
my $one = open_stream('all2');
is(next_event($one, 'overview')->{types}[0]{exact}, JSON::PP::true, 'a reader of some types gets an overview of its own');
close_streams($one);
$node->safe_psql('postgres', "SELECT jobq.revoke_access('all2', 'read'); SELECT jobq.grant_access('all2', 'read')");
$node->safe_psql('postgres', "SELECT jobq.revoke_access('acme', 'read', tenant => 'acme')");
ends_with($acme[0], 'rights', 'a reader of a tenant, without it');
close_streams(@acme);
next_event($long, 'overview', 2);
is(scalar(named($long, 'stale') + named($long, 'bye')), 0, 'the stream of another role goes on');

# The role as which all is read loses its right, then its password: another one takes its place.
my $other = open_stream('all5');
next_event($other, 'overview');
$node->safe_psql('postgres', "SELECT jobq.revoke_access('all1', 'read')");
ends_with($long, 'rights', 'the role that reads for all');
next_event($other, 'overview', 2);
my $second = open_stream('all4');
next_event($second, 'overview');
$node->safe_psql('postgres', "ALTER ROLE all5 PASSWORD 'new'; SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'all5'");
ends_with($other, 'refused', 'a password that is wrong when the server is asked again');
next_event($second, 'overview', 2);
is(scalar(named($second, 'bye')), 0, 'the stream of another role goes on');
$node->safe_psql('postgres', "ALTER ROLE all5 PASSWORD 'p'; SELECT jobq.grant_access('all1', 'read')");

# The role as which all is read has no room for the next read: another one reads.
my $full = open_stream('all1');
next_event($full, 'overview');
close_streams($second);
next_event($full, 'overview', 2);
$second = open_stream('all4');
next_event($second, 'overview');
my $block = $node->background_psql('postgres');
$block->query_safe('BEGIN; LOCK TABLE jobq.audit');
my @asked;

# Sends so many requests as all1 that wait for the lock.
sub ask_audit
{
	my %all1 = basic('all1', 'p');

	foreach my $n (1 .. $_[0])
	{
		push @asked, IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $web->{port}, LocalAddr => '127.0.0.' . (2 + $n % 3),
			Proto => 'tcp', Timeout => 30) // die "connect: $!";
		syswrite($asked[-1], "GET /api/v1/audit HTTP/1.1\r\nHost: a\r\nAuthorization: $all1{Authorization}\r\nConnection: close\r\n\r\n");
	}
	return;
}
ask_audit(3);
wait_for_sql($node, "SELECT count(*) = 3 FROM pg_stat_activity WHERE usename = 'all1' AND wait_event_type = 'Lock'", 'three of its connections are in use');
read_ready(0, $second);
next_event($second, 'overview');	# a second before the next read
ask_audit(80);
like((read_all($asked[-1]))[0], qr{^HTTP/1.1 503 }, 'then all of them, and all its places in the queue');
my $before = named($second, 'overview');
until_true(sub { named($_[0], 'overview') >= $before + 4 }, $second);
is(scalar(named($second, 'stale')), 0, 'the overview of all goes on');
$block->query_safe('ROLLBACK');
$block->quit;
close $_ foreach @asked;
close_streams($full);

# ---------- a lost server ----------

until_true(sub { @{ $_[0]{comments} } > 0 }, $second);
cmp_ok(abs($second->{comments}[0] - $second->{began} - 15), '<', 4, 'a comment after 15 s');
$node->stop('immediate');
my $stale = next_event($second, 'stale');
like($stale->{since}, qr/^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ$/, 'without a server: stale, since');
my ($late, $none) = (open_stream('all4'), open_stream('all1'));
is_deeply(next_event($late, 'stale'), $stale, 'a new stream of the same role learns this, too');
until_true(sub { $_[0]{status} }, $none);
is($none->{status}, 503, 'one of another role is refused');
close_streams($late);
$node->start;
$began = time;
next_event($second, 'overview');
cmp_ok(time - $began, '<', 2, 'an overview within 2 s of its return');
is(scalar(named($second, 'stale')), 1, 'stale was told once');
my @pids = split /\n/, $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE usename LIKE 'all%'");
kill 'STOP', @pids;
next_event($second, 'stale');
kill 'CONT', @pids;
ok(next_event($second, 'overview'), 'a server that hangs is stale, too');

# ---------- sessions ----------

sub sign_in
{
	my ($to, $role) = @_;
	my (undef, $answer, $got) = ask($to, 'POST', '/api/v1/session', body => { user => $role, password => 'p' });
	my ($cookie) = $got->{'set-cookie'} =~ /^([^;]+)/;

	return (Cookie => $cookie, Origin => "http://127.0.0.1:$to->{port}", 'X-Csrf-Token' => $answer->{csrf});
}

my %session = sign_in($web, 'all4');
my ($of_session, $of_basic) = (open_stream(undef, headers => {%session}), $second);
next_event($of_session, 'overview');
is(status_of($web, 'DELETE', '/api/v1/session', headers => {%session}), 200, 'sign-out');
ends_with($of_session, 'signed_out', 'the stream of a session that has signed out');
next_event($of_basic, 'overview');
is(scalar(named($of_basic, 'bye')), 0, 'one of the same role without the session goes on');

# Time passes: the clock of another jobq-web.
my $dir = PostgreSQL::Test::Utils::tempdir();
system_or_bail('gcc', '-shared', '-fPIC', '-O2', '-DFAKE_MONOTONIC', '-o', "$dir/fake_clock.so", "$FindBin::Bin/../lib/fake_clock.c");
append_to_file("$dir/clock", pack('q', 0));
my $clock = 0;

sub pass_time
{
	$clock += $_[0];
	open my $file, '+<', "$dir/clock" or die $!;
	syswrite $file, pack('q', $clock);
	close $file;
	return;
}

my $timed = do
{
	local %ENV = (%ENV, LD_PRELOAD => "$dir/fake_clock.so", FAKE_CLOCK_FILE => "$dir/clock");
	start_web($node);
};
%session = sign_in($timed, 'all4');
my %busy = sign_in($timed, 'all4');
my ($idle, $expires, $keeps) = (open_stream(undef, web => $timed, headers => {%session}), open_stream(undef, web => $timed, headers => {%busy}),
	open_stream('all4', web => $timed));
next_event($_, 'overview') foreach $idle, $expires, $keeps;
pass_time(29 * 60);
next_event($_, 'overview', 2) foreach $idle, $expires;
is(status_of($timed, 'GET', '/api/v1/session', headers => {%busy}), 200, 'a request after 29 minutes');
is(scalar(named($idle, 'bye') + named($expires, 'bye')), 0, 'both sessions last');
pass_time(60);
ends_with($idle, 'idle', 'a session without requests for 30 minutes, with a stream');
foreach (1 .. 25)
{
	pass_time(28 * 60);
	is(status_of($timed, 'GET', '/api/v1/session', headers => {%busy}), 200, 'a request') if $_ < 25;
}
ends_with($expires, 'expired', 'a session of 12 hours');
next_event($keeps, 'overview', 2);
is(scalar(named($keeps, 'bye')), 0, 'a stream without a session goes on');

# The password of a role as which nothing is read is checked after five minutes, too.
my $checked = open_stream('all5', web => $timed);
next_event($checked, 'overview');
$node->safe_psql('postgres', "ALTER ROLE all5 PASSWORD 'new'");
pass_time(6 * 60);
ends_with($checked, 'refused', 'a password that was changed meanwhile');
$node->safe_psql('postgres', "ALTER ROLE all5 PASSWORD 'p'");
is(stop_web($timed), 0, 'jobq-web ends');
ends_with($keeps, 'shutdown', 'the end of jobq-web');

# ---------- slow clients ----------

$node->safe_psql('postgres', "SELECT jobq.create_job_type('slow_type_' || n) FROM generate_series(1, 300) n");
my $pid = $web->{run}{KIDS}[0]{PID};
sub rss { return (slurp_file("/proc/$pid/status") =~ /^VmRSS:\s+(\d+)/m)[0]; }
next_event($second, 'overview', 2);
sub seen { return { map { $_ => 1 } grep { !/^slow/ } map { @{ $_->{data}{job_types} } } named($_[0], 'changed') }; }
# A client that takes no event for 30 s is shut out: where the machine took so long, it pauses
# again.
my ($pause, $missed, $paused);
do
{
	$pause = open_stream('all4', receive => 4096);
	until_true(sub { named($_[0], 'overview') > 0 }, $pause);
	$paused = time;
	my $count = named($second, 'overview');
	$node->safe_psql('postgres', "SELECT jobq.enqueue('quiet')");
	next_event($second, 'overview', 4);
	$node->safe_psql('postgres', "SELECT jobq.enqueue('mail')");
	next_event($second, 'overview', 4);
	$missed = named($second, 'overview') - $count;
	$had{$pause} = named($pause, 'overview');
	$paused = time - $paused;
	until_true(sub { seen($_[0])->{quiet} && seen($_[0])->{mail} }, $pause);
} while ($pause->{closed} && $paused > 25);
is_deeply(seen($pause), { mail => 1, quiet => 1 }, 'a client that has paused learns of each type that has changed meanwhile');
cmp_ok(scalar(named($pause, 'overview')) - $had{$pause}, '<', $missed, 'but gets the newest overview, not all that it missed');
$began = time;    # an event is to be taken in 30 s; the first one may take long on so small a socket
my @slow = map { open_stream('all4', receive => 4096) } 1 .. 19;
until_true(sub { named($_[0], 'overview') > 0 }, @slow);
my $rss = rss();
# these never read again
my $closed = sub { (slurp_file('/proc/net/tcp') =~ /^\s*\d+: 0100007F:@{[ sprintf '%04X', $web->{port} ]} 0100007F:@{[ sprintf '%04X', $_[0]{socket}->sockport ]} 01 /mi) ? 0 : 1 };
until_true(sub { !grep { !$closed->($_) } @slow }, $second, $pause);
is(scalar(grep { !$closed->($_) } @slow), 0, 'clients that read nothing are shut out');
cmp_ok(time - $began, '>', 20, 'after a time');
SKIP:
{
	skip 'a checker of memory keeps what is freed', 1 if $ENV{JOBQ_WEB};
	cmp_ok(rss() - $rss, '<', 8000, 'and nothing was kept for them meanwhile') or diag rss(), " $rss";
}
close_streams(@slow, $pause, $second);
$node->safe_psql('postgres', "SELECT jobq.drop_job_type(name) FROM jobq.job_types WHERE name LIKE 'slow_type_%'");

# ---------- 600 streams ----------

# 50 requests a second for a role: those over it come again.  An address has 64 connections, with
# those that are not closed yet.
my @many;
my $n = 0;
while (@many < 600 && $n++ < 5000)
{
	my $stream = open_stream($all[ 3 * (@many % 2) ], from => '127.0.0.' . (2 + @many % 24), counts => 1);

	until_true(sub { $_[0]{status} || $_[0]{closed} }, $stream);
	push @many, $stream if $stream->{status} == 200;
	read_ready(0, @many) if $n % 20 == 0;	# unread ones would be shut out as slow
	is($stream->{status}, 429, 'a stream') || diag($stream->{head}) unless $stream->{status} =~ /^(?:200|429)$/;
}
is(scalar(@many), 600, '600 streams');
$one = open_stream('all5');
until_true(sub { $_[0]{status} }, $one);
is($one->{status}, 503, 'one more is refused');
like($one->{head}, qr/^Retry-After: 1\r$/m, 'for now');
is(status_of($web, 'GET', '/api/v1/jobs', headers => { basic('all5', 'p') }), 200, 'other requests are not');
%had = map { $_ => scalar named($_, 'overview') } @many;
ok(until_true(sub { named($_[0], 'overview') >= $had{ $_[0] } + 2 }, @many), 'all of them get overviews');
close_streams(pop @many);
is(do { $one = open_stream('all5'); until_true(sub { $_[0]{status} }, $one); $one->{status} }, 200, 'one that leaves makes room');
close_streams(@many, $one);
is(status_of($web, 'GET', '/api/v1/jobs', headers => { basic('all5', 'p') }), 200, 'all have left');
$from = -s $node->logfile;

# ---------- failover, and the end ----------

$node->backup('b');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'b', has_streaming => 1);
$standby->start;
is(reads_of('any', $from), 0, 'nothing is read without a stream');
my $both = start_web($node, dsn => sprintf 'host=%s,%s port=%s,%s dbname=postgres target_session_attrs=read-write',
	$node->host, $standby->host, $node->port, $standby->port);
$one = open_stream('all5', web => $both);
next_event($one, 'overview');
$node->wait_for_catchup($standby);
$node->stop('immediate');
next_event($one, 'stale');
$standby->promote;
$began = time;
next_event($one, 'overview');
cmp_ok(time - $began, '<', 2, 'an overview within 2 s of a failover');
my $end = time;
is(stop_web($both), 0, 'jobq-web ends with a stream open');
cmp_ok(time - $end, '<', 4, 'at once');
ends_with($one, 'shutdown', 'its end');
stop_web($web);
done_testing();
