# S25: the wall clock steps by a day, forth and back; timeouts continue.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/lib";
use File::Temp qw(tempdir);
use HelperTest;
use Test::More;
use Time::HiRes qw(time);

plan skip_all => 'the sanitizer would have to be preloaded first' if HelperTest::is_sanitized();

my ($library) = glob '/usr/lib/*/faketime/libfaketime.so.1' or BAIL_OUT('libfaketime is not installed: make deps');
my $clock = tempdir(CLEANUP => 1) . '/clock';
my %faked = (LD_PRELOAD => $library, FAKETIME_TIMESTAMP_FILE => $clock, FAKETIME_NO_CACHE => 1, FAKETIME_DONT_FAKE_MONOTONIC => 1);

sub set_clock
{
	my ($offset) = @_;
	open(my $f, '>', "$clock.new") or die $!;
	print $f "$offset\n";
	close $f;
	rename("$clock.new", $clock) or die $!;
}

sub faked_clock
{
	local %ENV = (%ENV, %faked);
	chomp(my $seconds = `date +%s`);
	return $seconds - time();
}

set_clock('+0');
my $h = HelperTest->new(prepare => sub { %ENV = (%ENV, %faked); });
SKIP:
{
	skip 'only root may look into a helper', 1 if $> != 0;
	open(my $maps, '<', "/proc/$h->{helper_pid}/maps") or die $!;
	ok(scalar(grep { /libfaketime/ } <$maps>), 'the helper sees the faked clock');
}

for my $days (1, -1)
{
	my ($begin, $timeout, $first) = (0, 0.3);
	do	# until it begins before its timeout
	{
		$timeout *= 5;
		$begin = time();
		$h->start(100 + $days, argv => [ $TOOL, 'ignore-term' ], timeout => $timeout, grace => 0.5);
		$first = $h->expect(sub { $_[0]{type} =~ /^(EVENT|EXIT)$/ });
	} while ($first->{type} eq 'EXIT' && $timeout < 100);
	set_clock(sprintf '%+dd', $days);
	cmp_ok(abs(faked_clock() - $days * 86400), '<', 3600, "the clock steps by $days days");
	my $e = $h->exit_of(100 + $days, 300);
	my $took = time() - $begin;
	is("$e->{kind} $e->{value}", 'timeout 137', 'TERM after the timeout, KILL after the grace');
	ok($took >= $timeout + 0.5 && $took < $timeout + 60, 'in their time') or diag($took);
	note(sprintf 'timeout %.1f s + grace 0.5 s: %.2f s', $timeout, $took);
	set_clock('+0');
}
is($h->run(argv => ['true'])->{value}, 0, 'the helper goes on');
$h->shutdown(0);
is($h->reap, 0, 'and leaves in order');
done_testing();
