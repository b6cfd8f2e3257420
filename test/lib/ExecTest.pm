# A server with jobq for the tests of exec types, a directory for their tools,
# and functions that run a job.
package ExecTest;

use strict;
use warnings;

use Cwd ();
use Exporter 'import';
use JSON::PP ();
use Patience;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(jobq_node tools tool define_tool enqueue job finished run_job wait_status pids_in alive
  wait_gone literal);

my $tools = Cwd::abs_path(PostgreSQL::Test::Utils::tempdir());
my $json = JSON::PP->new->utf8->allow_nonref;

sub jobq_node
{
	my ($name, @settings) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init;
	$node->append_conf('postgresql.conf',
		join("\n", "shared_preload_libraries = 'jobq'", 'max_worker_processes = 20', @settings, ''));
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION jobq');
	return $node;
}

sub tools { return $tools; }

# Writes a program and returns its path.
sub tool
{
	my ($name, $text) = @_;
	my $path = "$tools/$name";

	open my $file, '>', $path or die "$path: $!";
	print $file $text;
	close $file;
	chmod 0755, $path;
	return $path;
}

sub literal
{
	my ($text) = @_;

	return 'NULL' unless defined $text;
	$text =~ s/'/''/g;
	return "'$text'";
}

# define_tool($node, $type, [command], argument => 'SQL', ...)
sub define_tool
{
	my ($node, $type, $command, %args) = @_;
	my $array = join ', ', map { literal($_) } @$command;

	$args{max_attempts} //= 1;
	$node->safe_psql('postgres', sprintf(
			'SELECT jobq.create_job_type(%s, command => ARRAY[%s]%s)',
			literal($type), $array, join '', map { ", $_ => $args{$_}" } sort keys %args));
	return $type;
}

sub enqueue
{
	my ($node, $type, $payload, %args) = @_;

	return $node->safe_psql('postgres', sprintf('SELECT jobq.enqueue(%s, %s%s)', literal($type),
			literal($payload // '{}'), join '', map { ", $_ => $args{$_}" } sort keys %args));
}

# The row of jobq.jobs as a hash.
sub job
{
	my ($node, $id) = @_;
	my $row = $node->safe_psql('postgres', "SELECT row_to_json(j) FROM jobq.jobs j WHERE id = '$id'");

	return $row eq '' ? undef : $json->decode($row);
}

sub finished
{
	my ($node, $id) = @_;

	$node->poll_query_until('postgres',
		"SELECT status IN ('completed', 'skipped', 'cancelled', 'error') FROM jobq.jobs WHERE id = '$id'")
	  or diag "job $id has not ended";
	return job($node, $id);
}

sub run_job
{
	my ($node, $type, $payload, %args) = @_;

	return finished($node, enqueue($node, $type, $payload, %args));
}

sub wait_status
{
	my ($node, $id, $status) = @_;

	return $node->poll_query_until('postgres',
		"SELECT status = '$status' FROM jobq.jobs WHERE id = '$id'");
}

# PIDs that tools wrote to a file.  Read them before anything that starts the tools again.
sub pids_in
{
	my ($file) = @_;

	return -e $file ? split /\s+/, slurp_file($file) : ();
}

# Returns the PIDs that are still alive (a zombie is not).
sub alive
{
	return grep {
		my $state = '';
		if (open my $stat, '<', "/proc/$_/stat")
		{
			$state = readline($stat) // '';
		}
		$state =~ /\) [^ZX]/;
	} @_;
}

sub wait_gone
{
	my @pids = @_;

	foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		return 1 unless alive(@pids);
		select undef, undef, undef, 0.1;
	}
	return 0;
}

1;
