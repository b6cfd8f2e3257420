# Compaction after REINDEX CONCURRENTLY.  The new index has no entry for what had died before, and a standby with feedback
# may have a snapshot that sees it: a rewrite by that index would lose those rows.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use StandbyTest;
use Test::More;

my $all = 'SELECT (SELECT count(*) FROM jobq.queue) + (SELECT count(*) FROM ran)';
my $node = jobq_primary('primary');
my $standby = standby_of($node, 'feedback', { has_streaming => 1 }, 'hot_standby_feedback = on');

sub value { return $node->safe_psql('postgres', $_[0]); }

value("SELECT jobq.pause_job_type('note')");
value("SELECT count(jobq.enqueue('note', jsonb_build_object('n', i, 'text', repeat(md5(i::text), 8)))) FROM generate_series(1, 6000) i");
caught_up($node, $standby);
my $reader = session($standby, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT n FROM unrelated');
my $xmin = $standby->safe_psql('postgres', "SELECT min(backend_xmin::text::bigint) FROM pg_stat_activity WHERE state = 'idle in transaction'");
wait_for_sql($node, "SELECT count(*) = 1 FROM pg_stat_replication WHERE backend_xmin::text::bigint = $xmin", 'the standby feeds back its snapshot');
value("SELECT jobq.resume_job_type('note')");
wait_for_sql($node, 'SELECT count(*) = 0 FROM jobq.queue', 'jobs run');
value('REINDEX INDEX CONCURRENTLY jobq.queue_id');
value('SELECT jobq.compact()') foreach 1 .. 2;
caught_up($node, $standby);
is(answer($reader, $all), '6000 00000', 'the first read after it has every job');
$reader->quit;
my $small = 'SELECT pg_total_relation_size($$jobq.queue$$) < 1000000';
wait_for_sql($node, "SELECT jobq.compact() IS NOT NULL AND ($small)", 'the files shrink when that snapshot has gone');
is($standby->safe_psql('postgres', $all), 6000, 'and a new session has every job');

unlike(slurp_file($node->logfile), qr/jobq \w+ (ERROR|FATAL|PANIC):  (?!terminating)/, 'no errors of our own');
$_->stop foreach $standby, $node;
done_testing();
