# A server with a replaceable jobq: the former release, built from its archive, in a private copy of
# the server, and the release under test to install over it.
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

our @EXPORT = qw(old_version new_version stage_release install_new install_file upgrade_server directories_of catalog_of steady_load
  dropped_lines);

my $top = Cwd::abs_path("$FindBin::Bin/../..");

# The release that the handwritten part of the upgrade script begins with.
sub old_version
{
	return (join(' ', glob("$top/src/sql/upgrade/*.before.sql")) =~ m{/([^/]*)--[^/]*\.before\.sql$})[0];
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

# Copies a file to a directory of the server's copy, under a new inode, as make install does.
sub install_file
{
	my ($from, $into) = @_;
	my $to = "$into/" . basename($from);

	copy($from, "$to.new") or BAIL_OUT("$from: $!");
	chmod 0755, "$to.new" if -x $from;
	rename "$to.new", $to or BAIL_OUT("$to: $!");
	return;
}

# Makes a copy of the server with the former release, which test/run has built; returns the copy's
# directory.
sub stage_release
{
	my $stage = PostgreSQL::Test::Utils::tempdir_short();
	my $source = "$stage/former";

	system_or_bail('cp', '-rp', $ENV{JOBQ_FORMER}, $source);
	system_or_bail('bash', '-c', <<'END', 'stage', $top, $ENV{JOBQ_PG_CONFIG}, $stage, $source, 'PROFILE=-O0');
. "$1/test/lib/cluster.sh"
pg_config=$2 work=$3 top=$4
shift 4
mkdir -p "$work/log"
build_jobq "$@"
stage_server "$@"
END
	return "$stage/server";
}

# Returns the directories of a copy of the server for libraries and for scripts.
sub directories_of
{
	my ($stage) = @_;

	return map { $stage . pg_config_of($ENV{JOBQ_PG_CONFIG}, $_) } 'pkglibdir', 'sharedir';
}

# Installs the files of the release under test into the copy.
sub install_new
{
	my ($stage) = @_;
	my ($from_lib, $from_share) = map { pg_config_of('pg_config', $_) } 'pkglibdir', 'sharedir';
	my ($lib, $share) = directories_of($stage);

	install_file("$from_lib/$_", $lib) foreach 'jobq.so', 'jobq-helper';
	install_file("$from_share/extension/$_", "$share/extension")
	  foreach 'jobq.control', 'jobq--' . new_version() . '.sql', 'jobq--' . old_version() . '--' . new_version() . '.sql';
	return;
}

# Returns a server that is not started.
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

# Returns the catalog entries of jobq, a line per object.
sub catalog_of
{
	my ($node, $db) = @_;
	my ($out, $err) = ('', '');

	IPC::Run::run([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr($db), '-f', "$top/test/lib/catalog.sql",
			'-c', '\echo :catalog' ], '<', \undef, '>', \$out, '2>', \$err) or BAIL_OUT("catalog.sql: $err");
	return @{ JSON::PP->new->decode($out) };
}

# Returns the lines of the first list that the second lacks.
sub dropped_lines
{
	my ($first, $second) = @_;
	my %have;

	$have{$_}++ foreach @$second;
	return join "\n", grep { !$have{$_} || $have{$_}-- == 0 } @$first;
}

# Starts sessions that repeat a statement, and reconnect after a lost server, until the returned
# function is called; it returns their errors.
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
