# A jobq-web before a server that asks for passwords, requests to it, and raw bytes.
package WebTest;

use strict;
use warnings;

use Compress::Zlib ();
use Encode ();
use Exporter 'import';
use HTTP::Tiny;
use IO::Socket::INET;
use IPC::Run;
use JSON::PP;
use MIME::Base64 qw(encode_base64);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use Time::HiRes ();

our @EXPORT = qw(web_node start_web stop_web web_log ask status_of raw raw_status connect_web read_all basic run_node in_a_second);

my @running;

# The make of a machine without libmicrohttpd leaves jobq-web out.
plan skip_all => 'jobq-web was not built' unless $ENV{JOBQ_WEB} || grep { -x "$_/jobq-web" } split /:/, $ENV{PATH};

# Returns a started server with jobq, whose roles other than the superuser sign in with a password.
sub web_node
{
	my ($name, @settings) = @_;
	my $node = jobq_server($name, @settings);
	my $superuser = getpwuid($<);

	unlink $node->data_dir . '/pg_hba.conf';
	$node->append_conf('pg_hba.conf', "local all,replication $superuser trust\nlocal all trusted trust\nlocal all all scram-sha-256\n");
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION jobq');
	return $node;
}

# Starts jobq-web with these settings, waits until it serves; returns it as a hash.
sub start_web
{
	my ($node, %settings) = @_;
	my $port = PostgreSQL::Test::Cluster::get_free_port();
	my $web = { port => $port, base_path => $settings{base_path} // '', log => "$PostgreSQL::Test::Utils::log_path/web-$port.log" };
	my %all = (
		$node ? (dsn => 'host=' . $node->host . ' port=' . $node->port . ' dbname=postgres') : (), listen => "127.0.0.1:$port",
		log => 'requests', %settings);
	my @command = ($ENV{JOBQ_WEB} // 'jobq-web', map { "--$_=$all{$_}" } sort keys %all);

	$web->{run} = IPC::Run::start(\@command, '<', '/dev/null', '>>', $web->{log}, '2>&1');
	push @running, $web;
	ok(wait_for_text($web->{log}, qr/jobq-web: serves/), 'jobq-web serves');
	return $web;
}

# Ends it by SIGTERM; returns its exit status.
sub stop_web
{
	my ($web) = @_;

	@running = grep { $_ != $web } @running;
	$web->{run}->signal('TERM');
	$web->{run}->finish;
	return $web->{run}->result(0);
}

END
{
	local $?;
	$_->{run}->kill_kill foreach @running;
}

# Runs a program of Node with this configuration; its lines of TAP count here.  Returns its output.
sub run_node
{
	my ($config, @command) = @_;
	my $output = '';

	local $ENV{JOBQ_CONTRACT} = encode_json($config);
	local %ENV = (%ENV, REDOCLY_TELEMETRY => 'off', REDOCLY_SUPPRESS_UPDATE_NOTICE => 'true', HOME => PostgreSQL::Test::Utils::tempdir());
	IPC::Run::run([ 'node', @command ], '<', '/dev/null', '>', \$output, '2>&1');
	my $status = $?;
	my $test;
	foreach (split /\n/, $output)
	{
		if (/^(ok|not ok) \d+ - (.*)/) { $test = ok($1 eq 'ok', $2); }
		else { defined $test && !$test ? diag $_ : note $_ foreach s/^# //r; }
	}
	is($status, 0, "$command[0] runs to its end") or diag $output;
	return $output;
}

sub web_log { return slurp_file($_[0]->{log}); }

sub basic { return (Authorization => 'Basic ' . encode_base64("$_[0]:$_[1]", '')); }

# Keeps an answer for test/web/answers.mjs.
sub keep_answer
{
	my ($base_path, $method, $path, $answer, $headers) = @_;
	my ($test) = $0 =~ m{(\d+)_[^/]*$};

	return if ($headers->{Accept} // '') =~ /html/ || $path !~ s/^\Q$base_path\E//;
	append_to_file("$ENV{JOBQ_ANSWERS}/" . ($test // 'web'), encode_json({ method => $method, path => $path, status => 0 + $answer->{status},
		scripted => $headers->{'Sec-Fetch-Mode'} ? 1 : 0, headers => $answer->{headers}, text => Encode::decode('UTF-8', $answer->{content}) }) . "\n") if $answer->{status} < 599 && length $answer->{content} < 1_000_000;
}

# Sends a request; body: a hash or array becomes JSON.  Returns status, decoded body (unpacked from
# gzip), headers.
sub ask
{
	my ($web, $method, $path, %more) = @_;
	my %headers = %{ $more{headers} // {} };
	my $body = $more{body};
	my $http = HTTP::Tiny->new(timeout => 30, keep_alive => 0);

	if (defined $body)
	{
		$body = JSON::PP->new->utf8->canonical->allow_nonref->encode($body) if ref $body;
		$headers{'Content-Type'} //= 'application/json';
	}
	my $answer;
	for (;;)
	{
		$answer = $http->request($method, "http://127.0.0.1:$web->{port}$path",
			{ headers => \%headers, defined $body ? (content => $body) : () });
		# a fast machine may send more than it should
		last unless $answer->{status} == 429 && ($method eq 'HEAD' || $answer->{content} =~ /50 requests a second/);
		select undef, undef, undef, 0.1;
	}
	$answer->{content} = Compress::Zlib::memGunzip($answer->{content}) if ($answer->{headers}{'content-encoding'} // '') eq 'gzip';
	keep_answer($web->{base_path} // '', $method, $path, $answer, \%headers) if $ENV{JOBQ_ANSWERS};
	my $decoded = $answer->{content};
	$decoded = eval { decode_json($decoded) } // $decoded if ($answer->{headers}{'content-type'} // '') =~ /json/;
	return ($answer->{status}, $decoded, $answer->{headers});
}

sub status_of { return (ask(@_))[0]; }

# Returns what the block returns in a run within the second of the first lock after wrong passwords;
# its argument is the number of the run, for roles of its own.
sub in_a_second(&)
{
	my ($block) = @_;
	my @found;

	foreach my $n (1 .. 9)
	{
		my $began = Time::HiRes::time();

		@found = $block->($n);
		last if Time::HiRes::time() - $began < 1;
	}
	return @found;
}

sub connect_web
{
	my ($web, $port) = @_;

	return IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port // $web->{port}, Timeout => 30) // die "connect: $!";
}

# Reads until the other side closes, or for so many seconds.
sub read_all
{
	my ($socket, $seconds) = @_;
	my $end = Time::HiRes::time() + ($seconds // 30);
	my $all = '';

	while ((my $left = $end - Time::HiRes::time()) > 0)
	{
		my $ready = '';

		vec($ready, fileno($socket), 1) = 1;
		next unless select($ready, undef, undef, $left);
		my $n = sysread($socket, $all, 65536, length $all);
		return ($all, 1) unless $n;
	}
	return ($all, 0);
}

# Sends bytes; returns what came back until the end of the connection, and whether it was closed.
sub raw
{
	my ($web, $bytes, $seconds) = @_;
	my $socket = connect_web($web);

	syswrite($socket, $bytes);
	return read_all($socket, $seconds);
}

# The statuses of all replies to these bytes, as "400 200"; "+" at the end: it was not closed
# within that time.
sub raw_status
{
	my ($web, $bytes, $seconds) = @_;
	my ($all, $closed) = raw($web, $bytes, $seconds // 1);
	my @statuses;

	# by their lengths: libmicrohttpd 0.9.75 writes the head of its own refusals twice
	while ($all =~ s{^HTTP/1\.[01] (\d+) .*?\r\n\r\n}{}s)
	{
		push @statuses, $1;
		my ($length) = $& =~ /^Content-Length: (\d+)/mi;
		substr($all, 0, $length // length $all, '');
	}
	return join(' ', @statuses) . ($closed ? '' : '+');
}

1;
