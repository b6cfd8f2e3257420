# Tenants take turns through workers, and jobs that wait for a limit or a worker start by priority.
# The sweep is off.  test/helper/unit/test_lanes*.c has thousands of tenants and types.

use strict;
use warnings;

use ServerTest;
use Test::More;

my $node = jobq_server('fair', 'jobq.max_sql_workers = 2', "jobq.sweep_interval = '1h'", 'fsync = off');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE TABLE ledger (seq int GENERATED ALWAYS AS IDENTITY, id uuid, type text, tenant text);
CREATE FUNCTION note() RETURNS void LANGUAGE sql AS $$
  INSERT INTO public.ledger (id, type, tenant) SELECT id, job_type, tenant FROM jobq.current_job()
$$;
CREATE VIEW turns AS
  SELECT seq, l.type, row_number() OVER (PARTITION BY l.type, jobq_internal._sublane(t.id, tenant) ORDER BY seq) AS turn
    FROM ledger l JOIN jobq.job_types t ON t.name = l.type;
SELECT jobq.set_limit('one', max_concurrent => 1);
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub sql { return $node->safe_psql('postgres', $_[0]); }

# Makes the types, enqueues 160 jobs while they are paused, and lets all run.
sub run_types
{
	my ($what, $types, $options, @enqueue) = @_;

	sql("TRUNCATE ledger; SELECT jobq.create_job_type(t, 'note()', options => '{\"batch\": false$options}'), jobq.pause_job_type(t) FROM unnest('{$types}'::text[]) t");
	sql($_) foreach @enqueue;
	sql("SELECT jobq.resume_job_type(t) FROM unnest('{$types}'::text[]) t");
	wait_for_sql($node, 'SELECT NOT EXISTS (SELECT FROM jobq.queue)', "$what: all have run");
	return is(sql("SELECT count(*) || ' ' || count(DISTINCT id) FROM ledger"), "160 160", "!$what: each once");
}

# The first tenant has many jobs before the others, which have two each; some may share a lane.
sub take_turns
{
	my ($what, $options, $types) = @_;
	my $each = "unnest('{$types}'::text[]) t";

	run_types($what, $types, ", \"fair_by\": \"tenant\"$options",
		"SELECT count(jobq.enqueue(t, tenant => 'tenant 1')) FROM $each, generate_series(1, 20)",
		"SELECT count(jobq.enqueue(t, tenant => 'tenant ' || i)) FROM generate_series(2, 31) i, generate_series(1, 2), $each");
	return is(sql('SELECT count(*) FROM (SELECT turn < lag(turn) OVER (PARTITION BY type ORDER BY seq) AS again FROM turns) t WHERE again'), 0,
		"$what: no tenant has a second turn before all others had one");
}

# Twenty types have jobs of four priorities.
sub in_order
{
	my ($what, $options, $name) = @_;

	run_types($what, join(',', map { "$name$_" } 1 .. 20), $options,
		"SELECT count(jobq.enqueue('$name' || i, priority => -j % 4)) FROM generate_series(1, 8) j, generate_series(1, 20) i");
	return is(sql('SELECT count(*) FROM (SELECT h.priority, h.id, lag(h.priority) OVER w AS before, lag(h.id) OVER w AS last
	   FROM ledger l JOIN jobq.history h USING (id) WINDOW w AS (ORDER BY l.seq)) o WHERE priority > before OR priority = before AND id < last'),
		0, "$what: by priority, then as they were enqueued");
}

take_turns('a shared limit', ', "limits": ["one"]', 'shared,with');
in_order('a shared limit', ', "limits": ["one"]', 'limited');

$node->append_conf('postgresql.conf', 'jobq.max_sql_workers = 1');
$node->restart;
wait_dispatcher($node, 'postgres', 'the dispatcher of a server with one worker');
take_turns('one worker', '', 'busy,beside');
in_order('one worker', '', 'many');

# The first waiting job gets a lower priority: the next one starts when the running job ends.
my $gate = $node->background_psql('postgres');
sql(q{TRUNCATE ledger; SELECT jobq.create_job_type('front', 'note()', options => '{"batch": false}')});
$gate->query_safe('BEGIN; LOCK TABLE ledger IN SHARE MODE');
my @ids = map { sql("SELECT jobq.enqueue('front', priority => $_)") } 100, 10, 5, 3;
wait_status($node, 'postgres', $ids[0], 'running', 'one runs');
sql('SELECT jobq.health()') for 1 .. 2;
sql("SELECT jobq.alter_job('$ids[1]', priority => 1)");
sql('SELECT jobq.health()') for 1 .. 2;
$gate->query_safe('COMMIT');
$gate->quit;
wait_for_sql($node, 'SELECT count(*) = 4 FROM ledger', 'the others run');
is(sql('SELECT string_agg(id::text, chr(32) ORDER BY seq) FROM ledger'), "@ids[0, 2, 3, 1]",
	'the first waiting job gets a lower priority: all start in their new order');

$node->stop;
done_testing();
