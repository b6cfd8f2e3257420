# Compaction after REINDEX CONCURRENTLY.  The new index has no entry for rows that were dead before,
# and a standby with feedback may have a snapshot that sees them: a rewrite by that index would lose
# those rows.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use StandbyTest;
use Test::More;

my $node = jobq_primary('primary');
my $standby = standby_of($node, 'feedback', { has_streaming => 1 }, 'hot_standby_feedback = on');

sub value { return $node->safe_psql('postgres', $_[0]); }

value("SELECT jobq.pause_job_type('note')");
value("SELECT count(jobq.enqueue('note', jsonb_build_object('n', i, 'text', repeat(md5(i::text), 8)))) FROM generate_series(1, 6000) i");
caught_up($node, $standby);
my ($reader, $xmin) = reader_with_xmin($standby);
wait_for_sql($node, "SELECT count(*) = 1 FROM pg_stat_replication WHERE backend_xmin::text::bigint = $xmin", 'the standby feeds back its snapshot');
value("SELECT jobq.resume_job_type('note')");
wait_for_sql($node, 'SELECT count(*) = 0 FROM jobq.queue', 'jobs run');
value('REINDEX INDEX CONCURRENTLY jobq.queue_id');
value('SELECT jobq.compact()') foreach 1 .. 2;
caught_up($node, $standby);
is(answer($reader, $every_job), '6000 00000', '!the first read after it has every job');
$reader->quit;
my $small = 'SELECT pg_total_relation_size($$jobq.queue$$) < 1000000';
wait_for_sql($node, "SELECT jobq.compact() IS NOT NULL AND ($small)", 'the files shrink when that snapshot has gone');
is($standby->safe_psql('postgres', $every_job), 6000, '!and a new session has every job');

no_own_errors($node);
$_->stop foreach $standby, $node;
done_testing();
