# Changes of schedules while the conductor ticks: alter, pause and resume, also while the last job
# lives; the end of a schedule; its owner loses its right, is renamed, is dropped.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('changes', 'jobq.max_sql_workers = 2');
$node->start;

sub sql { return $node->safe_psql('postgres', $_[0]) }

sub wait_row
{
	my ($name, $condition, $what) = @_;

	return ok($node->poll_query_until('postgres', "SELECT $condition FROM jobq.schedules WHERE name = '$name'"), $what);
}

sub wait_runs
{
	my ($name, $more, $what) = @_;
	my $runs = sql("SELECT runs FROM jobq.schedules WHERE name = '$name'");

	return wait_row($name, "runs >= $runs + $more", $what);
}

sub error_of
{
	my ($rc, $out, $err) = $node->psql('postgres', $_[0]);

	return $err =~ /ERROR:  (.*)/ ? $1 : 'none';
}

sql(<<'END');
CREATE EXTENSION jobq;
CREATE FUNCTION work(p jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT p';
SELECT jobq.create_job_type('t', 'work(jsonb)', options => '{"min_interval": "1s"}');
CREATE ROLE app LOGIN;
SELECT jobq.grant_access('app', 'enqueue', job_types => '{t}');
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

# ---------- "after", whose next tick depends on the last job ----------

# While the type is paused the last job lives.
sql(q{SELECT jobq.pause_job_type('t'), jobq.schedule('after', 'after 1s', 't')});
wait_row('after', 'runs = 1 AND next_tick IS NULL', 'the first tick');
sql(q{SELECT jobq.alter_schedule('after', 'after 2s')});
is(sql(q{SELECT next_tick IS NULL FROM jobq.schedules}), 't', 'another interval: its end still decides');
sql(q{SELECT jobq.pause_schedule('after'), jobq.resume_schedule('after')});
is(sql(q{SELECT status, next_tick IS NULL FROM jobq.schedules}), 'active|t', 'also after a pause');
sql(q{SELECT jobq.alter_schedule('after', 'after 1s'), jobq.resume_job_type('t')});
wait_runs('after', 2, 'ticks go on when it ends');

sql(q{SELECT jobq.pause_job_type('t')});
wait_row('after', 'next_tick IS NULL', 'a job lives');
sql(q{SELECT jobq.pause_schedule('after'), jobq.resume_job_type('t')});
ok($node->poll_query_until('postgres', 'SELECT count(*) = 0 FROM jobq.queue'), 'it ends in the pause');
sql(q{SELECT jobq.resume_schedule('after')});
wait_runs('after', 2, 'ticks go on after the pause');

sql(q{SELECT jobq.pause_schedule('after', 'a moment', '500ms')});
wait_row('after', q{status = 'active' AND reason IS NULL AND paused_until IS NULL}, 'a pause ends by itself');
wait_runs('after', 1, 'and ticks go on');
is(sql(q{SELECT jobq.unschedule('after')}), 't', 'unschedule');

# ---------- the end of a schedule ----------

sql(q{SELECT jobq.schedule('some', 'every 1s', 't', max_runs => 2)});
wait_row('some', q{status = 'finished' AND runs = 2 AND next_tick IS NULL}, 'after max_runs jobs it is finished');
sql(q{SELECT jobq.alter_schedule('some', max_runs => 3)});
wait_row('some', q{status = 'finished' AND runs = 3}, 'one more');
is(sql(q{SELECT count(DISTINCT metadata->>'tick') FROM jobq.jobs WHERE metadata->>'schedule' = 'some'}), 3, 'each tick had one job');

# ---------- the owner ----------

$node->safe_psql('postgres', q{SELECT jobq.schedule('own', 'every 1s', 't', overlap => 'allow')}, extra_params => [ '-U', 'app' ]);
wait_runs('own', 1, 'a role that is held to its grants has ticks');
is($node->safe_psql('postgres', q{SELECT count(*) > 0 FROM jobq.jobs WHERE metadata->>'schedule' = 'own'}, extra_params => [ '-U', 'app' ]), 't',
	'it sees their jobs as its own');
sql('ALTER ROLE app RENAME TO seller');
wait_runs('own', 1, 'a renamed role keeps its schedule');
sql(q{SELECT jobq.revoke_access('seller', 'enqueue')});
wait_row('own', q{status = 'paused' AND reason LIKE 'permission denied%'}, 'without the right it is paused');
like(error_of(q{SELECT jobq.resume_schedule('own')}), qr/^schedule "own": permission denied/, 'and cannot be resumed');
sql(q{SELECT jobq.grant_access('seller', 'enqueue', job_types => '{t}'), jobq.resume_schedule('own')});
wait_runs('own', 1, 'with the right it can');
sql('BEGIN; DROP OWNED BY seller; DROP ROLE seller; COMMIT');
wait_row('own', q{status = 'paused' AND reason LIKE 'role % does not exist'}, 'without the role it is paused');
like(error_of(q{SELECT jobq.run_schedule('own')}), qr/^role ".*" does not exist/, 'and enqueues nothing');
is(error_of(q{SELECT jobq.schedule('own', 'every 1s', 't', on_conflict => 'replace', overlap => 'queue')}), 'none', 'replace gives it another owner');
sql(q{SELECT jobq.resume_schedule('own')});
wait_runs('own', 1, 'with which it ticks');

# ---------- the type ----------

sql(q{SELECT jobq.pause_job_type('t'), jobq.drop_job_type('t', force => true)});
wait_row('own', q{status = 'paused' AND reason = 'job type "t" does not exist'}, 'without the type it is paused');
sql(q{SELECT jobq.create_job_type('t', 'work(jsonb)'), jobq.resume_schedule(NULL)});
wait_runs('own', 1, 'with another of the name it ticks');

$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC|TRAP:|terminated by signal/, 'no process has crashed');
done_testing();
