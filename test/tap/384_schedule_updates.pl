# A tick updates the row of its schedule in its page: the conductor removes dead versions from pages
# that it reads.  Under a held snapshot, which keeps them, ticks cost the same.

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

# Waits for so many more updates of each schedule.  Returns how many of all updates in this time
# were not HOT, and how many pages of the table each of them has read.  A held snapshot of another
# process, on a machine that stands still, may cost some: so the best of several times counts.  From
# statistics: a scan of the table would remove dead versions, too.
my @last = (0, 0, 0);

sub updates
{
	my ($ticks) = @_;
	my $table = q{FROM (SELECT 'jobq.schedules'::regclass) s(t)};
	my $sum = $last[0] + 60 * $ticks;

	wait_for_sql($node, "SELECT pg_stat_get_tuples_updated(t) >= $sum $table", "$ticks ticks");
	my @now = split /\|/,
	  $node->safe_psql('postgres', "SELECT pg_stat_get_tuples_updated(t), pg_stat_get_tuples_hot_updated(t), pg_stat_get_blocks_fetched(t) $table");
	my ($all, $hot, $pages) = map { $now[$_] - $last[$_] } 0 .. 2;
	@last = @now;
	return ($all - $hot, $pages / $all);
}

# at first rows move to other pages, until each page has room for two versions of its rows
updates(6);
my ($others, $tries) = (60, 0);
($others) = updates(6) while $others > 2 && $tries++ < 10;
cmp_ok($others, '<=', 2, 'later updates are HOT');

# ---------- under a held snapshot ----------

my $holder = $node->background_psql('postgres');
$holder->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ');
$holder->query_safe('SELECT FROM pg_class LIMIT 1');
updates(4);
my (undef, $first) = updates(3);
my $pages;
$tries = 0;
do { updates(9); (undef, $pages) = updates(3); } until $pages < 1.3 * $first || ++$tries == 4;
cmp_ok($pages, '<', 1.3 * $first, 'updates read no more pages than at first');

# the conductor knows the place of a row, and follows it when a session changes the row
my $searches = q{SELECT pg_stat_get_numscans('jobq.schedules_pkey'::regclass)};
my ($before_changes, $earlier) = ($node->safe_psql('postgres', $searches), '');
foreach (1 .. 10)				# until all earlier ones are in the statistics
{
	last if $before_changes eq $earlier;
	$earlier = $before_changes;
	updates(2);
	$before_changes = $node->safe_psql('postgres', $searches);
}
$node->safe_psql('postgres', 'UPDATE jobq.schedules SET updated_at = clock_timestamp()') foreach 1 .. 10;
updates(10 + 4);
# one of the 600 changes may cost one: it commits when the conductor has just followed the versions
# of its row
cmp_ok($node->safe_psql('postgres', $searches) - $before_changes, '<', 60, 'no index scan visits the dead versions of changed rows');

my ($ret, undef, $error) = $node->psql('postgres', q{SELECT jobq.schedule('s7', '@daily', 'note')});
like($error, qr/schedule "s7" exists already/, 'names are unique still');
($ret, undef, $error) = $node->psql('postgres', q{INSERT INTO jobq.schedules SELECT * FROM jobq.schedules WHERE name = 's7'});
like($error, qr/duplicate key value violates unique constraint "schedules_/, 'the indexes refuse a second row');
$holder->query_safe('COMMIT');
$holder->quit;
$node->safe_psql('postgres', 'CREATE EXTENSION amcheck');
is($node->safe_psql('postgres', q{SELECT count(bt_index_check(i, true)) FROM unnest('{jobq.schedules_pkey,jobq.schedules_name}'::regclass[]) i}), 2,
	'!the indexes are whole');

$node->stop;
done_testing();
