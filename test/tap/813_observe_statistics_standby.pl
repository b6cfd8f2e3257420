# Statistics on a standby and after its promotion; a base backup brings none.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $primary = jobq_server('primary', 'jobq.max_sql_workers = 2', 'fsync = off');
$primary->start;
$primary->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE FUNCTION noop(p jsonb) RETURNS void LANGUAGE sql AS 'SELECT';
SELECT jobq.create_job_type('noop', 'noop(jsonb)'), jobq.create_job_type('held', 'noop(jsonb)');
SELECT jobq.pause_job_type('held', 'test');
SELECT jobq.enqueue('held') FROM generate_series(1, 5);
END
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;
$primary->safe_psql('postgres', q{SELECT jobq.enqueue('held') FROM generate_series(1, 3)});
$primary->wait_for_catchup($standby, 'replay');

my $held = q{SELECT pending, enqueued FROM jobq.stat_job_types WHERE job_type = 'held'};
is($primary->safe_psql('postgres', $held), '8|8', 'the primary counts');
is($standby->safe_psql('postgres', "SELECT count(*) FROM jobq.stat_$_"), '0', "the standby has no stat_$_") foreach qw(job_types workers lanes limits dispatcher);
is($standby->safe_psql('postgres', 'SELECT count(*) FROM jobq.stat_series()'), '0', 'and no series');
my $text = $standby->safe_psql('postgres', 'SELECT jobq.metrics()');
like($text, qr/^jobq_dispatcher_up 0$/m, 'metrics: no dispatcher');
unlike($text, qr/type="/, 'no types');
unlike($text, qr/^jobq_workers\{/m, 'no workers');
$standby->restart;
is($standby->safe_psql('postgres', 'SELECT count(*) FROM jobq.stat_job_types'), '0', 'also after a restart');
$primary->stop;
$standby->promote;
is($standby->safe_psql('postgres', $held), '8|0', 'after promotion: the rows, and counters from 0');
$standby->safe_psql('postgres', q{SELECT jobq.enqueue('noop') FROM generate_series(1, 10)});
wait_for_sql($standby, q{SELECT completed = 10 AND pending = 0 FROM jobq.stat_job_types WHERE job_type = 'noop'}, 'and jobs are counted');
$standby->stop;
$primary->start;
is($primary->safe_psql('postgres', $held), '8|8', 'the former primary has its own');

# the file of another shutdown
$primary->stop;
my $file = $primary->data_dir . '/pg_stat/jobq.stat';
ok(-s $file, 'a shutdown writes the file');
my $copy = slurp_file($file);
$primary->start;
$primary->safe_psql('postgres', q{SELECT jobq.enqueue('held')});
$primary->stop('immediate');
append_to_file($file, $copy);
$primary->start;
is($primary->safe_psql('postgres', $held), '9|0', 'is read by no other start');
$primary->stop;
done_testing();
