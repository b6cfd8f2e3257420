# A server whose jobq the test may replace: the former release built from its archive in a private copy of the server,
# and the release under test to put in its place.
package UpgradeTest;

use strict;
use warnings;

use Cwd ();
use Exporter 'import';
use File::Basename qw(basename dirname);
use File::Copy qw(copy);
use FindBin;
use IPC::Run ();
use JSON::PP ();
use Patience;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(old_version new_version stage_release install_new upgrade_server catalog_of steady_load dropped_lines);

my $top = Cwd::abs_path("$FindBin::Bin/../..");
my ($archive) = glob("$top/test/upgrade/jobq-*.tar.xz");

sub old_version
{
	return ($archive =~ m{/jobq-([^/]*)\.tar\.xz$})[0];
}

sub new_version
{
	return (slurp_file("$top/jobq.control") =~ /^default_version = '(.*)'$/m)[0];
}

sub pg_config_of
{
	my ($program, $what) = @_;
	my ($out) = run_command([ $program, "--$what" ]);

	return $out;
}

# Builds a source tree, the former release's without one, into a copy of the server; returns the copy's directory.
sub stage_release
{
	my ($source) = @_;
	my $stage = PostgreSQL::Test::Utils::tempdir_short();

	if (!defined $source)
	{
		$source = "$stage/jobq-" . old_version();
		system_or_bail('tar', '-C', $stage, '-xJf', $archive);
	}
	system_or_bail('bash', '-c', <<'END', 'stage', $top, $ENV{JOBQ_PG_CONFIG}, $stage, $source);
. "$1/test/lib/cluster.sh"
pg_config=$2 work=$3 top=$4
mkdir -p "$work/log"
build_jobq PROFILE=-O0
stage_server PROFILE=-O0
END
	return "$stage/server";
}

# Puts the files of the release under test into the copy, each under a new inode, as make install does.
sub install_new
{
	my ($stage) = @_;
	my $theirs = $ENV{JOBQ_PG_CONFIG};
	my %to = (pkglibdir => [qw(jobq.so jobq-helper)], sharedir => [ map { "extension/$_" }
			'jobq.control', 'jobq--' . new_version() . '.sql', 'jobq--' . old_version() . '--' . new_version() . '.sql' ]);

	foreach my $what (keys %to)
	{
		my $from = pg_config_of('pg_config', $what);
		my $into = $stage . pg_config_of($theirs, $what);

		foreach my $file (@{ $to{$what} })
		{
			copy("$from/$file", "$into/$file.new") or BAIL_OUT("$from/$file: $!");
			chmod 0755, "$into/$file.new" if $what eq 'pkglibdir';
			rename "$into/$file.new", "$into/$file" or BAIL_OUT("$into/$file: $!");
		}
	}
	return;
}

# Not started.
sub upgrade_server
{
	my ($name, $stage, @settings) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name, install_path => $stage . dirname(pg_config_of($ENV{JOBQ_PG_CONFIG}, 'bindir')));

	$node->init(allows_streaming => 1);
	$node->append_conf('postgresql.conf',
		join("\n", "shared_preload_libraries = 'jobq'", 'max_worker_processes = 20', "jobq.health_latency = '10s'",
			'jobq.max_sql_workers = 3', 'autovacuum = off', "log_line_prefix = '%m [%p] %b '", @settings, ''));
	return $node;
}

# All that the catalogs have of jobq, a line an object.
sub catalog_of
{
	my ($node, $db) = @_;
	my ($out, $err) = ('', '');

	IPC::Run::run([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr($db), '-f', "$top/test/lib/catalog.sql",
			'-c', '\echo :catalog' ], '<', \undef, '>', \$out, '2>', \$err) or BAIL_OUT("catalog.sql: $err");
	return @{ JSON::PP->new->decode($out) };
}

# Lines of the first list that the second has not.
sub dropped_lines
{
	my ($first, $second) = @_;
	my %have;

	$have{$_}++ foreach @$second;
	return join "\n", grep { !$have{$_} || $have{$_}-- == 0 } @$first;
}

# Sessions that call a statement again and again, connected anew when the server was away, until the returned
# function is called; it returns what they had to say.
sub steady_load
{
	my ($node, $db, @statements) = @_;
	my $stop = PostgreSQL::Test::Utils::tempdir() . '/stop';
	my @runs;
	my $said = '';

	foreach my $sql (@statements)
	{
		push @runs, IPC::Run::start([ 'sh', '-c', 'until [ -e "$1" ]; do "$2" -XAtq -d "$3" -c "$4"; sleep 0.05; done', 'load', $stop,
				'psql', $node->connstr($db), $sql ], '<', \undef, '>', '/dev/null', '2>>', \$said);
	}
	return sub {
		append_to_file($stop, '');
		$_->finish foreach @runs;
		return $said;
	};
}

1;
