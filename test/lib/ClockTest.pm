# A server whose clock the test sets: lib/fake_clock.c.
package ClockTest;

use strict;
use warnings;

use Exporter 'import';
use File::Basename;
use PostgreSQL::Test::Utils;

our @EXPORT = qw(fake_clock set_clock);

my $clock;

# Returns the environment in which to start the server; its clock is the machine's so far.
# -DFAKE_MONOTONIC: of its clocks the monotonic one can be set; -DFAKE_BOTH: both, together.
sub fake_clock
{
	my (@flags) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir();

	system_or_bail('gcc', '-shared', '-fPIC', '-O2', @flags, '-o', "$dir/fake_clock.so", dirname(__FILE__) . '/fake_clock.c');
	$clock = "$dir/clock";
	set_clock(0);
	return (LD_PRELOAD => "$dir/fake_clock.so", FAKE_CLOCK_FILE => $clock);
}

# Sets the server's clock to the machine's plus so many seconds.
sub set_clock
{
	my ($offset) = @_;

	open my $file, -e $clock ? '+<' : '>', $clock or die "$clock: $!";
	syswrite $file, pack('q', $offset);
	close $file;
	return;
}

1;
