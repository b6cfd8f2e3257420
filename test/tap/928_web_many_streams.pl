# 500 open streams of jobq-web: one statement a second for all of them, and at most 40 MB more.

use strict;
use warnings;

use IO::Select;
use IO::Socket::INET;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use Time::HiRes ();
use WebTest;

use constant STREAMS => 500;

my $node = web_node('many_streams', 'log_statement = all');
$node->safe_psql('postgres', <<'END');
CREATE ROLE reader LOGIN PASSWORD 'r';
SELECT jobq.grant_access('reader', 'read');
SELECT jobq.create_job_type('type ' || n) FROM generate_series(1, 100) n;
SELECT jobq.enqueue('type ' || n) FROM generate_series(1, 100) n;
END
my $web = start_web($node);

sub memory_of
{
	my ($kb) = slurp_file("/proc/$web->{run}{KIDS}[0]{PID}/status") =~ /^VmRSS:\s+(\d+) kB/m;

	return $kb / 1024;
}

# Of an address 40, below its limits of connections and of requests a second.
sub open_stream
{
	my ($n) = @_;
	my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $web->{port}, LocalAddr => '127.0.0.' . (2 + int $n / 40), Proto => 'tcp') // die "connect: $!";

	syswrite($socket, "GET /api/v1/stream HTTP/1.1\r\nHost: a\r\nAuthorization: " . { basic('reader', 'r') }->{Authorization} . "\r\n\r\n");
	return { socket => $socket, overviews => 0, rest => '' };
}

# Reads from all streams until each has had so many overviews, for two minutes at most.
sub read_until
{
	my ($wanted, @streams) = @_;
	my %of = map { $_->{socket} => $_ } @streams;
	my $select = IO::Select->new(map { $_->{socket} } @streams);
	my $end = Time::HiRes::time() + 120;

	while (Time::HiRes::time() < $end && grep { $_->{overviews} < $wanted } @streams)
	{
		foreach my $socket ($select->can_read(1))
		{
			my $s = $of{$socket};

			sysread($socket, $s->{rest}, 1 << 20, length $s->{rest}) or do { $select->remove($socket); $s->{closed} = 1; next; };
			$s->{overviews} += () = $s->{rest} =~ /^event: overview$/mg;
			# an event's name may come in two parts
			$s->{rest} = $s->{rest} =~ /.*\n(.*)\z/s ? $1 : $s->{rest};
		}
	}
	return scalar grep { $_->{overviews} >= $wanted && !$_->{closed} } @streams;
}

my $first = open_stream(0);
is(read_until(2, $first), 1, 'a stream');
my $before = memory_of();
my @streams = ($first, map { open_stream($_) } 1 .. STREAMS - 1);
is(read_until(2, @streams), STREAMS, STREAMS . ' streams');

my ($from, $began) = (-s $node->logfile, Time::HiRes::time());
my ($least) = sort { $a <=> $b } map { $_->{overviews} } @streams;
my ($most) = sort { $b <=> $a } map { $_->{overviews} } @streams;
is(read_until($most + 5, @streams), STREAMS, 'all get overviews');
my $took = Time::HiRes::time() - $began;
my $reads = () = substr(slurp_file($node->logfile), $from) =~ /execute <unnamed>: WITH s AS [^\n]* SELECT 'o'/g;
my ($last) = sort { $b <=> $a } map { $_->{overviews} } @streams;
cmp_ok($reads, '<=', $took + 1, 'one statement a second') or diag "$reads in $took s";
cmp_ok($reads, '<=', $last - $least + 1, 'each of which is for all of them');
cmp_ok($reads, '>=', 4, 'not fewer');
is($node->safe_psql('postgres', "SELECT count(*) <= 4 FROM pg_stat_activity WHERE usename = 'reader'"), 't', 'on few connections');
my $more = memory_of() - $before;
note sprintf '%.1f MB for %d streams', $more, STREAMS;
SKIP:
{
	skip 'under a checker of memory', 1 if $ENV{JOBQ_WEB};
	cmp_ok($more, '<=', 40, 'and at most 40 MB more');
}

is(stop_web($web), 0, 'it ends');
done_testing();
