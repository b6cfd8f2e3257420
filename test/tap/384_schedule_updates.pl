# A tick updates the row of its schedule in its page: the conductor removes dead versions from pages that it reads.  Under
# a held snapshot, which keeps them, ticks cost the same.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('updates', 'jobq.max_sql_workers = 2', 'fsync = off', 'autovacuum = off');
$node->start;
$node->safe_psql('postgres', <<'END_SQL');
CREATE EXTENSION jobq;
CREATE FUNCTION note(p jsonb) RETURNS void LANGUAGE sql AS '';
SELECT jobq.create_job_type('note', 'note(jsonb)');
SELECT count(jobq.schedule('s' || n, '* * * * * *', 'note', overlap => 'allow')) FROM generate_series(1, 60) n;
END_SQL

# Updates that were not HOT, after so many ticks of each schedule.  Read from statistics: a scan of the table would
# remove dead versions, too.
sub others
{
	my ($ticks) = @_;
	my $table = q{FROM (SELECT 'jobq.schedules'::regclass) s(t)};

	wait_for_sql($node, "SELECT pg_stat_get_tuples_updated(t) >= 60 * $ticks $table", "$ticks ticks");
	return $node->safe_psql('postgres', "SELECT pg_stat_get_tuples_updated(t) - pg_stat_get_tuples_hot_updated(t) $table");
}

# at first rows move to other pages, until each page has room for two versions of its rows
my $before = others(6);
cmp_ok(others(12) - $before, '<=', 2, 'later updates are HOT');

# ---------- under a held snapshot ----------

# Pages of the table that each update reads, until so many ticks of each schedule.
my @last = (0, 0);
sub pages_until
{
	my ($ticks) = @_;
	my $table = q{FROM (SELECT 'jobq.schedules'::regclass) s(t)};

	wait_for_sql($node, "SELECT pg_stat_get_tuples_updated(t) >= 60 * $ticks $table", "$ticks ticks");
	my @now = split /\|/, $node->safe_psql('postgres', qq{SELECT pg_stat_get_blocks_fetched(t), pg_stat_get_tuples_updated(t) $table});
	my $pages = ($now[0] - $last[0]) / ($now[1] - $last[1]);
	@last = @now;
	return $pages;
}

my $holder = $node->background_psql('postgres');
$holder->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ');
$holder->query_safe('SELECT FROM pg_class LIMIT 1');
pages_until(16);
my $first = pages_until(19);
pages_until(28);
cmp_ok(pages_until(31), '<', 1.3 * $first, 'updates read no more pages than at first');

# the conductor knows the place of a row, and follows it when a session changes the row
my $searches = q{SELECT pg_stat_get_numscans('jobq.schedules_pkey'::regclass)};
my $before_changes = $node->safe_psql('postgres', $searches);
$node->safe_psql('postgres', 'UPDATE jobq.schedules SET updated_at = clock_timestamp()') foreach 1 .. 10;
pages_until(31 + 10 + 4);
is($node->safe_psql('postgres', $searches), $before_changes, 'no index scan visits the dead versions of changed rows');

my ($ret, undef, $error) = $node->psql('postgres', q{SELECT jobq.schedule('s7', '@daily', 'note')});
like($error, qr/schedule "s7" exists already/, 'names are unique still');
($ret, undef, $error) = $node->psql('postgres', q{INSERT INTO jobq.schedules SELECT * FROM jobq.schedules WHERE name = 's7'});
like($error, qr/duplicate key value violates unique constraint "schedules_/, 'the indexes refuse a second row');
$holder->query_safe('COMMIT');
$holder->quit;
$node->safe_psql('postgres', 'CREATE EXTENSION amcheck');
is($node->safe_psql('postgres', q{SELECT count(bt_index_check(i, true)) FROM unnest('{jobq.schedules_pkey,jobq.schedules_name}'::regclass[]) i}), 2,
	'the indexes are whole');

$node->stop;
done_testing();
