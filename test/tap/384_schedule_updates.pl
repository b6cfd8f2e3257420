# A tick updates the row of its schedule in its page: the conductor removes dead versions from pages that it reads.

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

$node->stop;
done_testing();
