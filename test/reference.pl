# docs/reference: the pages are those that generate.pl makes now, and they have every function,
# option, setting, event type, SQLSTATE, error code and status of the code, and no other.
# JOBQ_WRITE_DOCS (`make docs`) leaves the comparison with the committed pages out; the new pages
# are in the log directory.

use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $top = "$FindBin::Bin/..";
my $new = $ENV{JOBQ_NEW_DOCS};
my $node = PostgreSQL::Test::Cluster->new('reference');

mkdir $new;
$node->init;
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'jobq'\nmax_worker_processes = 40");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION jobq');
{
	local %ENV = (%ENV, PGHOST => $node->host, PGPORT => $node->port, PGDATABASE => 'postgres');
	is(qx("$^X" "$top/docs/reference/generate.pl" "$new" 2>&1), '', 'generate.pl makes the pages');
}

my @pages = map { m{([^/]+)$} } sort glob("$top/docs/reference/src/*.md");
my %text = map { $_ => -e "$new/$_" ? slurp_file("$new/$_") : '' } @pages;
foreach my $page ($ENV{JOBQ_WRITE_DOCS} ? () : @pages)
{
	my $committed = "$top/docs/reference/$page";

	ok(-e $committed && slurp_file($committed) eq $text{$page}, "docs/reference/$page is current, or run `make docs`")
	  or diag(qx(diff -u "$committed" "$new/$page" 2>&1));
}
is(join(' ', map { m{([^/]+)$} } sort glob("$top/docs/reference/*.md")), join(' ', @pages), 'each page has a template')
  if !$ENV{JOBQ_WRITE_DOCS};

sub same
{
	my ($what, $documented, $in_code) = @_;
	my %documented = map { $_ => 1 } @$documented;
	my %in_code = map { $_ => 1 } @$in_code;

	cmp_ok(scalar @$in_code, '>', 3, "$what: found in the code");
	is(join(' ', grep { !$documented{$_} } sort keys %in_code), '', "$what: each is in the reference");
	is(join(' ', grep { !$in_code{$_} } sort keys %documented), '', "$what: the reference has no other");
	return;
}

sub column { return [ split /\n/, $node->safe_psql('postgres', $_[0]) ]; }

# Returns the part of a page under a heading.
sub section
{
	my ($page, $heading) = @_;

	return $text{$page} =~ /^(#+) \Q$heading\E\n(.*?)(?=^\1 |\z)/ms ? $2 : die "$page has no heading \"$heading\"";
}

# Returns the names at the beginning of a section's list items: "- `a`, `b` (...): text".
sub listed
{
	return [ map { my $names = $_; $names =~ /`([^`]+)`/g } "@_" =~ /^- ((?:`[^`]+`(?: \([a-z_]+\))?(?:, )?)+)/mg ];
}

# Returns all that a regular expression captures in the C files or the install script.
sub in_files
{
	my ($regex, @files) = @_;

	return grep { defined } map { slurp_file($_) =~ /$regex/g } @files;
}

my @c = grep { !m{/helper/} } glob("$top/src/*.c $top/src/*/*.c");
my @sql = glob("$top/src/sql/*.sql");
my $all = join("\n", values %text);

my %relations = map { $_ => 1 } @{ column(q{SELECT relname FROM pg_class WHERE relnamespace = 'jobq'::regnamespace}) };
same('functions', [ grep { !$relations{$_} } $all =~ /^## `jobq\.(\w+)`$/mg ],
	column(q{SELECT proname FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname !~ '^_'}));
same('options', listed(section('job-types.md', 'Options')),
	[ slurp_file("$top/src/registry/option_keys.c") =~ /option_keys\[\] = \{(.*?)^\};/ms ? $1 =~ /^\t\{"(\w+)"/mg : () ]);
same('settings', listed($text{'settings.md'}), column(q{SELECT name FROM pg_settings WHERE name LIKE 'jobq.%'}));
same('statuses', listed(section('wait-and-watch.md', 'Status')), column('SELECT unnest(enum_range(NULL::jobq.job_status))'));
same('columns of jobq.jobs', [ grep { $_ ne 'id' } @{ listed(section('wait-and-watch.md', '`jobq.jobs`')) } ],
	column(q{SELECT attname FROM pg_attribute WHERE attrelid = 'jobq.jobs'::regclass AND attname <> 'id'}));

# Event types: the transitions, which log_event refuses, and what is written without them.
my ($own) = slurp_file("$top/src/sql_worker/handler_api.c") =~ /own\[\] = \{(.*?)\}/s;
same('event types', listed(section('events.md', 'Event types')),
	[ $own =~ /"(\w+)"/g, in_files(qr/\btype = "(\w+)"/, @c), in_files(qr/^    VALUES \('(\w+)', 'dispatcher'/m, @sql) ]);

# SQLSTATEs: what is raised, by the names of the server's errcodes.h and of jobq.h.
chomp(my $include = qx("$ENV{JOBQ_PG_CONFIG}" --includedir-server));
my %state = map { slurp_file($_) =~ /^#define (ERRCODE_\w+)\s+MAKE_SQLSTATE\(([^)]*)\)/mg } "$include/utils/errcodes.h", "$top/src/jobq.h";
my @raised = map { /(ERRCODE_\w+)/g } in_files(qr/\berrcode(\((?:[^()]|(?1))*\))/, @c);
same('SQLSTATEs',
	[ map { @{ listed(section('errors.md', $_)) } } 'Every function', 'Of some functions', 'Rare, or in the server log only' ],
	[ (grep { !/^0[01]/ } map { $state{$_} =~ s/[', ]//gr } @raised), in_files(qr/(?:_bad\(|ERRCODE = )'([0-9A-Z]{5})'/, @sql) ]);
same('error codes of jobs', [ map { s/:.*//r } @{ listed(section('errors.md', '`error_code` of jobs')) } ],
	[ map { s/:.*//r } in_files(qr/(?:failed\(\w+, (?:psprintf\()?|\bcode = )"([a-z_]+(?::%\w)?)"/, @c) ]);

$node->stop;
done_testing();
