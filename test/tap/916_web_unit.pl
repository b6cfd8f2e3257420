# The units of systemd in examples/web: they are valid, and expose little.

use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;

my $dir = "$FindBin::Bin/../../examples/web";
my ($help) = eval { run_command([ 'systemd-analyze', 'security', '--help' ]) };
plan skip_all => 'no systemd-analyze with --offline' unless ($help // '') =~ /--offline/;

my ($out) = run_command([ 'systemd-analyze', 'security', '--offline=true', '--no-pager', "$dir/jobq-web.service" ]);
my ($exposure) = $out =~ /Overall exposure level for jobq-web.service: ([\d.]+)/;
cmp_ok($exposure // 10, '<', 2.0, 'the exposure level of the service');
like(slurp_file("$dir/jobq-web.service"), qr/^$_$/m, "the service has $_") foreach 'Type=notify', 'DynamicUser=yes', 'LoadCredential=dsn:.*';

# Its own words: unknown keys and values are warnings.
my $link = PostgreSQL::Test::Utils::tempdir();
foreach my $unit (qw(jobq-web.service jobq-web.socket))
{
	my $text = slurp_file("$dir/$unit") =~ s{^ExecStart=\S+}{ExecStart=/bin/true}mr;
	append_to_file("$link/$unit", $text);
}
my (undef, $err) = run_command([ 'systemd-analyze', 'verify', '--man=no', "$link/jobq-web.service", "$link/jobq-web.socket" ]);
is(join("\n", grep { /jobq-web/ } split /\n/, $err), '', 'the units have no unknown settings');

done_testing();
