# The examples of README.md and docs/: runs every sql block of a page in one session, in a database of the page's own,
# then its programs in Python and JavaScript, and compares the output of each with the text block that follows it.
# PAGE=word runs the pages whose name contains the word.

use strict;
use warnings;
use FindBin;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $top = "$FindBin::Bin/..";
my $node = PostgreSQL::Test::Cluster->new('readme');
$node->init;
# A slow machine is not what makes a queue unhealthy.
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'jobq'\nmax_worker_processes = 40\njobq.health_latency = '10s'");
$node->start;

# Returns [{language, code, expected}, ...], without blocks that this test does not run.
sub blocks_of
{
	my ($page) = @_;
	my @blocks;

	while ($page =~ /^```(\w*)\n(.*?)^```$/msg)
	{
		my ($language, $text) = ($1, $2);
		if ($language =~ /^(?:sql|python|javascript)$/) { push @blocks, { language => $language, code => $text, expected => '' }; }
		elsif ($language eq 'text' && @blocks) { $blocks[-1]{expected} = $text; }
	}
	return @blocks;
}

sub tidy
{
	my $text = shift;
	$text =~ s/[ \t]+$//mg;
	$text =~ s/\A\n+|\n+\z//g;
	return $text;
}

# Returns the first of these interpreters that has the driver, as a command that reads a program from stdin.
sub interpreter
{
	my ($test, @candidates) = @_;

	foreach my $program (@candidates)
	{
		my ($stdout, $stderr);
		return [ $program, '-' ]
		  if eval { IPC::Run::run([ $program, '-' ], '<', \$test, '>', \$stdout, '2>', \$stderr) };
	}
	return;
}

my %interpreter_of = (
	python => interpreter('import psycopg', 'python3', '/usr/bin/python3'),
	javascript => interpreter("require('pg')", 'node'));

sub check_program
{
	my ($name, $database, $block) = @_;
	my $interpreter = $interpreter_of{ $block->{language} };
	my ($stdout, $stderr) = ('', '');

  SKIP:
	{
		skip "$name: no $block->{language} with a driver of PostgreSQL here", 2 if !$interpreter;
		local @ENV{qw(PGHOST PGPORT PGDATABASE PGUSER)} = ($node->host, $node->port, $database, scalar getpwuid($>));
		IPC::Run::run($interpreter, '<', \$block->{code}, '>', \$stdout, '2>', \$stderr);
		is($stderr, '', "$name: the program in $block->{language} runs");
		is(tidy($stdout), tidy($block->{expected}), 'its output');
	}
	return;
}

sub check_page
{
	my ($name, $database, @all) = @_;
	my @blocks = grep { $_->{language} eq 'sql' } @all;
	my $script = "\\pset footer off\n" . join('', map { "\\echo == block $_\n$blocks[$_]{code}" } 0 .. $#blocks);
	my ($stdout, $stderr) = ('', '');

	my $ok = IPC::Run::run([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr($database), '-f', '-' ],
		'<', \$script, '>', \$stdout, '2>', \$stderr);
	ok($ok, "$name: every command runs");
	is($stderr, '', "$name: without a warning");
	my %printed = $stdout =~ /^== block (\d+)\n(.*?)(?=^== block |\z)/msg;
	for my $i (0 .. $#blocks)
	{
		my ($first) = $blocks[$i]{code} =~ /\A(.*)/;
		is(tidy($printed{$i} // 'it did not run'), tidy($blocks[$i]{expected}), "$name: $first");
	}
	check_program($name, $database, $_) foreach grep { $_->{language} ne 'sql' } @all;
	return;
}

my $page = $ENV{PAGE} // '';
my @first_screen = blocks_of(slurp_file("$top/README.md"));
ok(@first_screen > 0, 'README.md has an example');
check_page('README.md', 'postgres', @first_screen) if index('README', $page) >= 0;

for my $file (sort glob("$top/docs/*.md $top/docs/reference/*.md"))
{
	my ($name) = $file =~ m{^\Q$top\E/(.*)\.md$};
	my $database = $name =~ s{^docs/}{}r =~ s/\W/_/gr;
	my @blocks = blocks_of(slurp_file($file)) or next;
	next if index($name, $page) < 0;

	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql($database, 'CREATE EXTENSION jobq');
	check_page("$name.md", $database, @blocks);
	# So many databases would need more background workers than the server has.
	$node->safe_psql('postgres', "DROP DATABASE $database");
}

$node->stop;
done_testing();
