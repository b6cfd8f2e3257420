# Runs of one tenant whose tasks take the conductor long: the run of another tenant, begun later,
# goes on meanwhile.  Each transaction of the conductor adds a few of the tasks, and the tenants
# take turns.

use strict;
use warnings;

use RunTest;
use ServerTest;
use Test::More;

my $node = run_server('turns', 'synchronous_commit = off');

# A payload takes a millisecond or more: its path reads a long array.
my $slow = '{"$": "$.input.long[*] ? (@ == -1)", "default": 0}';
my $input = one(q{SELECT jsonb_build_object('long', (SELECT jsonb_agg(i) FROM generate_series(1, 10000) i), 'list', (SELECT jsonb_agg(i) FROM generate_series(1, 2000) i))});
my @steps = map { qq({"key": "s$_", "job_type": "act", "after": ["first"], "payload": $slow}) } 1 .. 900;
my @chain = map { sprintf '{"key": "c%d", "job_type": "act"%s}', $_, $_ > 1 ? sprintf(', "after": ["c%d"]', $_ - 1) : '' } 1 .. 5;

one(q{ALTER TABLE ran ADD COLUMN tenant text; ALTER TABLE ran ALTER COLUMN tenant SET DEFAULT (jobq.current_job()).tenant});
workflow('map', qq([{"key": "m", "job_type": "act", "map": "\$.input.list", "payload": $slow}]));
workflow('fan', '[{"key": "first", "job_type": "act"}, ' . join(', ', @steps) . ']');
workflow('roots', '[' . join(', ', map { s/, "after": \["first"\]//r } @steps) . ']');
workflow('chain', '[' . join(', ', @chain) . ']');

# Returns the number of tasks of the large run that had a worker before the other run ended.
sub place_of
{
	my ($large, $small) = @_;

	return one(qq{SELECT count(*) FROM ran WHERE run = '$large' AND seq < (SELECT max(seq) FROM ran WHERE run = '$small')});
}

foreach my $name ('map', 'fan', 'roots')
{
	my $large = start_run($name, $input, q{tenant => 'a'});
	wait_for_sql($node, qq{SELECT status = 'running' FROM jobq.jobs WHERE id = '$large'}, "a run of $name");
	my $small = start_run('chain', '{}', q{tenant => 'b'});
	run_is($small, 'completed', "$name: another tenant's run ends");
	my $place = place_of($large, $small);
	note "the other tenant has place $place";
	cmp_ok($place, '<', $name eq 'map' ? 1000 : 600, 'before most tasks of the large one');
	run_is($large, 'completed', 'and so does the large one');
}

# ---------- many runs ----------

# Each run of a has its turn after the last one; b waits for one of them, not for all.
one(q{SELECT jobq.create_job_type('later', 'act(jsonb)')});
one(q{SELECT jobq.pause_job_type('later')});
workflow('held', qq([{"key": "m", "job_type": "later", "map": "\$.input.list", "payload": $slow}]));
workflow('maps', '[' . join(', ', map { s/"act"/"act", "map": "\$.input.list"/r } @chain[0 .. 2]) . ']');
one("SELECT count(*) FROM (SELECT jobq.enqueue('held', '$input', tenant => 'a') FROM generate_series(1, 100)) j");
wait_for_sql($node, q{SELECT count(*) = 100 FROM jobq.runs WHERE phase = 'running'}, '100 runs have begun');
run_is(start_run('maps', '{"list": [1]}', q{tenant => 'b'}), 'completed', "another tenant's run ends");
my $begun = one(q{SELECT count(DISTINCT workflow_id) FROM jobq.queue WHERE workflow_id <> parent_id});
note "$begun runs have members";
cmp_ok($begun, '<', 100, 'before all of them have had a turn');

# A tick comes before the next turn of a run, of which each takes a few milliseconds.
one(q{SELECT jobq.create_job_type('beat', 'act(jsonb)', options => '{"events": "all"}'), jobq.schedule('beats', '* * * * * *', 'beat')});
wait_for_sql($node, q{SELECT count(*) >= 4 FROM jobq.events WHERE type = 'ticked'}, 'ticks meanwhile');
is(one(q{SELECT count(*) < 200000 FROM jobq.queue WHERE workflow_id <> parent_id}), 't', 'the runs have not got all members yet');
my $turns = one(q{SELECT max(n) FROM (SELECT count(DISTINCT q.xmin::text) AS n FROM jobq.events e LEFT JOIN jobq.queue q
  ON q.workflow_id <> q.parent_id AND q.created_at > (e.data->>'tick')::timestamptz AND q.created_at < e.ts WHERE e.type = 'ticked' GROUP BY e.id) t});
cmp_ok($turns, '<=', 2, "at most $turns turns of runs are between a time and its tick");
one(q{SELECT jobq.unschedule('beats')});

# ---------- a conductor that ends between two turns ----------

# What its transactions have left is found in the rows.
workflow('left', '[' . join(', ', map { s/, "after": \["first"\]//r =~ s/"act"/"later"/r } @steps) . ']');
my $left = start_run('left', $input, q{tenant => 'b'});
my $waiting = qq{FROM jobq.queue WHERE workflow_id = '$left' AND status = 'blocked'};
my $began = qq{SELECT EXISTS (SELECT FROM jobq.queue WHERE workflow_id = '$left' AND status = 'pending') AND EXISTS (SELECT $waiting)};
wait_for_sql($node, $began, 'some tasks of a run wait for a worker, others for another turn');
my ($pid) = jobq_pids($node, 'conductor');
one("SELECT pg_terminate_backend($pid)");
wait_for_sql($node, qq{SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $pid)}, 'the conductor is terminated');
wait_for_sql($node, qq{SELECT NOT EXISTS (SELECT $waiting)}, 'the next one takes the others');
is(one("SELECT count(*) FROM jobq.queue WHERE workflow_id = '$left' AND status = 'pending'"), 900, 'all of them');
done_testing();
