# A standby comes back with an older snapshot than the primary's horizon was: index entries that
# scans have marked as killed meanwhile are no reason for a rewrite to drop rows that this snapshot
# sees.

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
value("SELECT count(jobq.enqueue('note', jsonb_build_object('n', i))) FROM generate_series(1, 15) i");
caught_up($node, $standby);
my ($reader, $xmin) = reader_with_xmin($standby);
disconnect_standby($node, $standby);
value("SELECT jobq.resume_job_type('note')");
wait_for_sql($node, 'SELECT count(*) = 0 FROM jobq.queue', 'jobs run');
value('SELECT pg_current_xact_id()') for 1 .. 3;
value("SET enable_seqscan=off; SET enable_bitmapscan = off; SELECT count(*) FROM jobq.queue WHERE id >= '00000000-0000-0000-0000-000000000000'") for 1 .. 3;
connect_standby($standby);
wait_for_sql($node, "SELECT count(*) = 1 FROM pg_stat_replication WHERE backend_xmin::text::bigint <= $xmin", 'feeds back');
caught_up($node, $standby);
my $file = value("SELECT pg_relation_filenode('jobq.queue')");
value('SELECT jobq.compact()') foreach 1 .. 2;
isnt(value("SELECT pg_relation_filenode('jobq.queue')"), $file, 'rewritten');
caught_up($node, $standby);
is(answer($reader, $every_job), '15 00000', '!every job');
$_->stop foreach $standby, $node;
done_testing();
