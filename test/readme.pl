# The examples of README.md, docs/ and clients/: runs every sql block of a page in one session, in a
# database of the page's own, then its programs in Python, JavaScript and C, and compares the output
# of each with the text block that follows it.  A program marked "worker" is started where it
# stands, between two sessions, and gets SIGTERM at the end of the page, after the programs.  A
# block marked "recipe" is not run; one of the shell is run if it is marked "program"; one marked
# with another word needs the package of that name, and is skipped without it.  PAGE=word runs the
# pages whose name contains the word.

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

# Returns [{language, worker, code, expected}, ...], without blocks that this test does not run.
sub blocks_of
{
	my ($page) = @_;
	my @blocks;

	while ($page =~ /^```(\w*)(?: (\w+))?\n(.*?)^```$/msg)
	{
		my ($language, $mark, $text) = ($1, $2 // '', $3);
		next if $mark eq 'recipe';
		if ($language =~ /^(?:sql|python|javascript|c)$/ || $mark) { push @blocks, { language => $language, mark => $mark, worker => $mark eq 'worker', code => $text, expected => '' }; }
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

# Returns the first of these interpreters that has the driver, as a command
# that reads a program from stdin.
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
	javascript => interpreter("require('pg')", 'node'),
	sh => [ 'bash' ]);
my @modules = ('env', '-C', $top, 'node', '--input-type=module', '-');

# Returns a command that reads the program of a block from stdin; dies if its driver is missing.
sub command_of
{
	my ($block, $directory) = @_;
	my $language = $block->{language};

	return @modules if $language eq 'javascript' && $block->{code} =~ /^import /m;
	return @{ $interpreter_of{$language} // die "no $language with a driver of PostgreSQL: make deps\n" } if $language ne 'c';
	my ($includes) = run_command([ $ENV{JOBQ_PG_CONFIG} // 'pg_config', '--includedir' ]);
	append_to_file("$directory/program.c", $block->{code});
	IPC::Run::run([ 'cc', '-std=c99', '-Wall', '-Werror', "-I$includes", "-I$top/clients/c", "$directory/program.c",
		glob("$top/clients/c/*.c"), '-lpq', '-o', "$directory/program" ]) or die 'cc';
	return "$directory/program";
}

# Starts the program of a block.  Returns a hash with its process and the files of its output.
sub start_program
{
	my ($database, $block) = @_;
	my $directory = PostgreSQL::Test::Utils::tempdir();
	my @command = command_of($block, $directory);
	my %files = map { $_ => "$directory/$_" } qw(code out err);

	append_to_file($files{code}, $block->{code});
	local @ENV{qw(PGHOST PGPORT PGDATABASE PGUSER)} = ($node->host, $node->port, $database, scalar getpwuid($>));
	local $ENV{PYTHONPATH} = join ':', "$top/clients/python", $ENV{PYTHONPATH} // ();
	local $ENV{PATH} = "$top/clients/shell:$ENV{PATH}";
	return { %files, process => IPC::Run::start(\@command, '<', $files{code}, '>', $files{out}, '2>', $files{err}) };
}

# True if the interpreter finds the package; in the full run one of Python must be there.
sub has_package
{
	my ($language, $package) = @_;

	return 1 if $language eq 'python' && $ENV{JOBQ_FULL};
	return run_log([ '/usr/bin/python3', '-c', "import $package" ]) if $language eq 'python';
	return -e "$top/node_modules/$package";
}

sub check_program
{
	my ($name, $database, $block) = @_;
	my $package = $block->{mark} =~ /^(?:program)?$/ ? '' : $block->{mark};

	if ($package && !has_package($block->{language}, $package))
	{
		SKIP: { skip "$package is missing", 2 }
		return;
	}
	my $program = start_program($database, $block);

	$program->{process}->finish;
	is(slurp_file($program->{err}), '', "$name: the program in $block->{language} runs");
	is(tidy(slurp_file($program->{out})), tidy($block->{expected}), 'its output');
	return;
}

# Runs sql blocks in one session.
sub check_sql
{
	my ($name, $database, @blocks) = @_;
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
	return;
}

sub check_page
{
	my ($name, $database, @all) = @_;
	my (@sql, @workers);

	foreach my $block (grep { $_->{worker} || $_->{language} eq 'sql' } @all)
	{
		if (!$block->{worker})
		{
			push @sql, $block;
			next;
		}
		check_sql($name, $database, splice @sql) if @sql;
		push @workers, start_program($database, $block);
	}
	check_sql($name, $database, @sql) if @sql;
	check_program($name, $database, $_) foreach grep { !$_->{worker} && $_->{language} ne 'sql' } @all;
	foreach my $worker (@workers)
	{
		$worker->{process}->signal('TERM');
		ok($worker->{process}->finish, "$name: the worker stops at SIGTERM") or diag slurp_file($worker->{err});
	}
	return;
}

my $page = $ENV{PAGE} // '';
my @first_screen = blocks_of(slurp_file("$top/README.md"));
ok(@first_screen > 0, 'README.md has an example');
check_page('README.md', 'postgres', @first_screen) if index('README', $page) >= 0;

for my $file (sort glob("$top/docs/*.md $top/docs/reference/*.md $top/clients/*/README.md"))
{
	my ($name) = $file =~ m{^\Q$top\E/(.*)\.md$};
	my $database = lc $name =~ s{^docs/}{}r =~ s/\W/_/gr;
	my @blocks = blocks_of(slurp_file($file)) or next;
	next if index($name, $page) < 0;
	# Without SQL the programs of a client's page are fragments.
	next if $name =~ m{^clients/} && !grep { $_->{language} eq 'sql' } @blocks;

	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql($database, 'CREATE EXTENSION jobq');
	check_page("$name.md", $database, @blocks);
	# So many databases would need more background workers than the server has.
	$node->safe_psql('postgres', "DROP DATABASE $database");
}

$node->stop;
done_testing();
