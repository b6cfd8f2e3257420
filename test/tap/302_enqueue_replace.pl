# Enqueues that replace a waiting job or find a finished one, as the dispatcher sees them.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('replace', "jobq.sweep_interval = '1h'", 'fsync = off');
$node->start;

sub sql { return $node->safe_psql('postgres', join ";\n", @_) }

# ---------- values of an earlier release ----------

sql('CREATE EXTENSION jobq', <<'END');
CREATE FUNCTION work(p jsonb) RETURNS void LANGUAGE sql AS '';
SELECT jobq.create_job_type('tool', command => '{true}');
UPDATE jobq.job_types SET options = '{"run_on": "any", "nofile": 64}' WHERE name = 'tool';
END
sqlstate_is($node, 'postgres', q{SELECT jobq.alter_job_type('tool', max_attempts => 4)}, '0A000', 'an option that 0.1.0 stored is refused at the next change');
is(sql(q{SELECT jobq.alter_job_type('tool', max_attempts => 4, options => '{"run_on": null}')}, q{SELECT max_attempts, options FROM jobq.job_types WHERE name = 'tool'}),
	"\n" . '4|{"nofile": 64}', 'unless that removes it');

# ---------- a job that gets another concurrency key ----------

wait_dispatcher($node, 'postgres', 'the dispatcher runs');
sql(q{SELECT jobq.create_job_type('ordered', 'work(jsonb)', options => '{"key_order": "fifo"}')});
my $first = sql(q{SELECT jobq.enqueue('ordered', delay => '1 hour', unique_key => 'u', concurrency_key => 'k')});
my $second = sql(q{SELECT jobq.enqueue('ordered', concurrency_key => 'k')});
my $other = sql(q{SELECT jobq.enqueue('ordered', delay => '1 hour', concurrency_key => 'l')});
my $last = sql(q{SELECT jobq.enqueue('ordered', concurrency_key => 'l')});
my $free = sql(q{SELECT jobq.enqueue('ordered')});
wait_status($node, 'postgres', $free, 'completed', 'a job without a key runs');
is(sql("SELECT string_agg(status::text, ' ') FROM jobq.jobs WHERE id IN ('$second', '$last')"), 'pending pending', 'jobs wait for the first of their keys');
is(sql(q{SELECT jobq.enqueue('ordered', concurrency_key => 'l', delay => '0', unique_key => 'u', on_conflict => 'replace')}), $first,
	'the first one of a key gets another key');
wait_status($node, 'postgres', $second, 'completed', 'the job behind it runs');
wait_status($node, 'postgres', $first, 'completed', 'it runs, too: it is the oldest of its new key');
sql("SELECT jobq.cancel_job('$other')");
wait_status($node, 'postgres', $last, 'completed', 'and the last one when all before it have left');

# ---------- finished jobs of a key: on_conflict 'replace' does not search them ----------

sql(q{SELECT jobq.create_job_type('often', 'work(jsonb)')});
my $scans = q{SELECT coalesce(sum(idx_scan), 0) > 0 FROM pg_stat_xact_all_tables WHERE schemaname = 'jobq' AND (relname LIKE 'history%' OR relname = 'dead_letters')};
my $done = sql(q{SELECT jobq.enqueue('often', unique_key => 'u', unique_for => '1 day')});
wait_status($node, 'postgres', $done, 'completed', 'a job that holds its key');
is(sql(qq{BEGIN; SELECT jobq.enqueue('often', unique_key => 'u', unique_for => '1 day'); $scans; ROLLBACK}), "$done\nt", 'ignore looks for it');
is(sql(qq{BEGIN; SELECT jobq.enqueue('often', unique_key => 'u', unique_for => '1 day', on_conflict => 'replace') <> '$done'; $scans; ROLLBACK}), "t\nf",
	'replace, which stores a new job in any case, does not');

done_testing();
