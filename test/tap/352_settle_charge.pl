# The second attempt with a lost worker is charged, also when all lanes are reread
# before the charge is written.

use strict;
use warnings;

use ServerTest;
use Test::More;

my $node = jobq_server('charge', 'jobq.max_sql_workers = 2', "jobq.sweep_interval = '1h'", 'log_min_messages = debug1');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE ROLE runner LOGIN;
CREATE TABLE gate (name text);
GRANT SELECT ON gate TO runner;
CREATE FUNCTION waiter(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  WHILE NOT EXISTS (SELECT FROM public.gate) LOOP
    PERFORM pg_sleep(0.01);
  END LOOP;
END $$;
SELECT jobq.create_job_type('w', 'waiter(jsonb)', run_as => 'runner', max_attempts => 1),
  jobq.create_job_type('other', 'waiter(jsonb)');
REVOKE CONNECT ON DATABASE postgres FROM PUBLIC;
GRANT CONNECT ON DATABASE postgres TO runner;
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub sql { return $node->safe_psql('postgres', $_[0]); }
sub settled { sql('SELECT jobq.health()') for 1 .. 2; return; }

my $job = sql(q{SELECT jobq.enqueue('w')});
wait_status($node, 'postgres', $job, 'running', 'it runs');
my ($first) = sql("SELECT worker FROM jobq.jobs WHERE id = '$job'") =~ /(\d+)/;
sql("SELECT pg_terminate_backend($first)");
wait_for_sql($node, "SELECT worker <> 'sql/$first' FROM jobq.jobs WHERE id = '$job' AND status = 'running'", 'and again, at no charge');
sql('REVOKE CONNECT ON DATABASE postgres FROM runner');
my ($worker) = sql("SELECT worker FROM jobq.jobs WHERE id = '$job'") =~ /(\d+)/;
sql("SELECT pg_terminate_backend($worker)");
wait_status($node, 'postgres', $job, 'pending', 'its worker was terminated, and no process can write it');
settled();
my $offset = -s $node->logfile;
sql(q{SELECT jobq.enqueue('other', delay => '1 day')});
settled();
sql(q{SELECT jobq.alter_job_type('other', options => '{"key_order": "fifo"}')});
$node->wait_for_log(qr/lanes are read again/, $offset);
sql('INSERT INTO gate VALUES (1)');
sql('GRANT CONNECT ON DATABASE postgres TO runner');
wait_for_sql($node, "SELECT status IN ('error', 'completed') FROM jobq.jobs WHERE id = '$job'", 'in the end');
is(sql("SELECT status, error_code, runs FROM jobq.jobs WHERE id = '$job'"), 'error|57P01|2', 'it is charged for its attempt');

$node->stop;
done_testing();
