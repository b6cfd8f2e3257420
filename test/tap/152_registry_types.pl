# Created and dropped job types: the dispatcher frees the memory of dropped ones.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('types', 'fsync = off', 'log_min_messages = debug1', "jobq.sweep_interval = '1h'");
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE FUNCTION note(p jsonb) RETURNS void LANGUAGE sql AS '';
SELECT jobq.create_job_type('stays', 'note(jsonb)'), jobq.create_job_type('orphaned', 'note(jsonb)');
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

# Jobs of a type that is not in the registry: they wait, and stay counted.
$node->safe_psql('postgres', "SELECT jobq.pause_job_type('orphaned'); SELECT jobq.enqueue('orphaned')");
$node->safe_psql('postgres', "DELETE FROM jobq.job_types WHERE name = 'orphaned'");

sub come_and_go
{
	my ($from, $to) = @_;
	my $types = "generate_series($from, $to) i";

	$node->safe_psql('postgres', "SELECT count(jobq.create_job_type('t' || i, 'note(jsonb)')), count(jobq.pause_job_type('t' || i)) FROM $types");
	$node->safe_psql('postgres', "SELECT count(jobq.enqueue('t' || i)) FROM $types");
	$node->safe_psql('postgres', "SELECT count(jobq.resume_job_type('t' || i)) FROM $types");
	wait_for_sql($node, "SELECT count(*) = 1 FROM jobq.queue", "jobs of types $from to $to have run");
	$node->safe_psql('postgres', "SELECT count(jobq.drop_job_type('t' || i)) FROM $types");
	return;
}

my $log_at = -s $node->logfile;
come_and_go(1, 200);
my $id = $node->safe_psql('postgres', "SELECT jobq.enqueue('stays')");
wait_status($node, 'postgres', $id, 'completed', 'a job of the type that stays');
unlike(slurp_file($node->logfile, $log_at), qr/forgot \d{3} job types/, 'a few types that were dropped are kept');

$log_at = -s $node->logfile;
come_and_go(201, 300);
$node->wait_for_log(qr/forgot 30\d job types that were dropped/, $log_at);
pass('more are forgotten');
$id = $node->safe_psql('postgres', "SELECT jobq.enqueue('stays')");
wait_status($node, 'postgres', $id, 'completed', 'jobs go on');
is($node->safe_psql('postgres', 'SELECT count(*) FROM jobq.queue'), '1', 'the job without a type still waits');

# A pull type is dropped while enqueues are open: their jobs, which no client can claim, are
# cancelled by the next maintenance.
$node->safe_psql('postgres', q{SELECT jobq.create_job_type('pulled')});
my $session = $node->background_psql('postgres');
my $prepared = $session->query_safe(q{BEGIN; SELECT jobq.enqueue('pulled')});
$session->query_safe(q{PREPARE TRANSACTION 'late'});
my $open = $session->query_safe(q{BEGIN; SELECT jobq.enqueue('pulled')});
$node->safe_psql('postgres', q{SELECT jobq.drop_job_type('pulled')});
$session->query_safe($_) foreach 'COMMIT', q{COMMIT PREPARED 'late'};
$session->quit;
$node->reload;
foreach my $late ($prepared, $open)
{
	wait_status($node, 'postgres', $late, 'cancelled', 'a late job of a dropped pull type');
}
is($node->safe_psql('postgres', "SELECT error_msg FROM jobq.jobs WHERE id = '$open'"), 'job type dropped', 'with the reason');
$node->stop;
done_testing();
