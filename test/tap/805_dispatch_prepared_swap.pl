# The dispatcher does not know which jobs were changed by two-phase transactions from before the
# server's start.  One of them ends after another session has prepared one more: their number is the
# same, and still the jobs are read.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('swap', "jobq.sweep_interval = '1h'", 'fsync = off');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE FUNCTION noop(p jsonb) RETURNS void LANGUAGE sql AS 'SELECT';
SELECT jobq.create_job_type('noop', 'noop(jsonb)');
END

sub scalar_of { return $node->safe_psql('postgres', $_[0]); }

wait_dispatcher($node, 'postgres', 'the dispatcher runs');
my $old = scalar_of(q{BEGIN; SELECT jobq.enqueue('noop', '{}'); PREPARE TRANSACTION 'old'});
$node->restart;
my $victim = wait_dispatcher($node, 'postgres', 'a new server');
my $session = $node->background_psql('postgres');
$session->query_safe('BEGIN');
my ($young) = $session->query_safe(q{SELECT jobq.enqueue('noop', '{}')}) =~ /(\S+)/;
scalar_of("SELECT pg_terminate_backend($victim)");
wait_dispatcher($node, 'postgres', 'a dispatcher that finds both transactions', $victim);
my $id = scalar_of(q{SELECT jobq.enqueue('noop', '{}')});
wait_status($node, 'postgres', $id, 'completed', 'hands out');
$session->query_safe(q{PREPARE TRANSACTION 'young'});
scalar_of(q{COMMIT PREPARED 'old'});
wait_status($node, 'postgres', $old, 'completed', 'a job of the one that has ended runs');
scalar_of(q{COMMIT PREPARED 'young'});
wait_status($node, 'postgres', $young, 'completed', 'then a job of the other');
$session->quit;
$node->stop;
done_testing();
