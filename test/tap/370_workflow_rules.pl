# What the end of a parent does to its child, for every rule and end, when the parent has ended
# before the child is enqueued and when it ends later.  Then the calls that manage blocked jobs.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('rules', 'jobq.max_sql_workers = 2', 'fsync = off');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE TABLE ran (seq int GENERATED ALWAYS AS IDENTITY, what text);
-- Ends as the payload wants; a retried job completes.
CREATE FUNCTION parent(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  CASE p->>'end'
    WHEN 'skipped' THEN PERFORM jobq.skip('no');
    WHEN 'dead', 'purged', 'retried' THEN
      IF (SELECT runs < 2 FROM jobq.current_job()) THEN RAISE 'dead'; END IF;
    ELSE NULL;
  END CASE;
END $$;
CREATE FUNCTION child(p jsonb) RETURNS void LANGUAGE sql AS $$ INSERT INTO public.ran (what) VALUES (p->>'what') $$;
SELECT jobq.create_job_type('parent', 'parent(jsonb)', max_attempts => 1, options => '{"alert": false}'),
  jobq.create_job_type('child', 'child(jsonb)', options => '{"events": "all"}'),
  jobq.create_job_type('slow', 'child(jsonb)'), jobq.create_job_type('ordered', 'child(jsonb)', options => '{"key_order": "fifo"}');
CREATE TABLE parents (id uuid PRIMARY KEY, ends text, moment text);
CREATE TABLE children (id uuid PRIMARY KEY, ends text, rule text, moment text);
-- Ends a parent that is still alive or is a dead letter.
CREATE FUNCTION finish(ends text, id uuid) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF ends = 'purged' THEN
    DELETE FROM jobq.dead_letters d WHERE d.id = finish.id;
  ELSIF ends = 'retried' THEN
    PERFORM jobq.retry_job(id);
  ELSIF ends = 'cancelled' THEN
    PERFORM jobq.cancel_job(id);
  ELSIF ends = 'deleted' THEN
    DELETE FROM jobq.queue q WHERE q.id = finish.id;
  END IF;
END $$;
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub one { return $node->safe_psql('postgres', $_[0]); }

my @ends = qw(completed skipped dead cancelled retried purged deleted);
my $ends = join ',', @ends;

# ---------- every cell ----------

# before: the parent has ended
one(qq{INSERT INTO parents SELECT jobq.enqueue('parent', jsonb_build_object('end', e)), e, 'before' FROM unnest('{completed,skipped,dead,cancelled}'::text[]) e
  WHERE e <> 'cancelled'});
one(q{SELECT jobq.pause_job_type('slow')});
one(q{INSERT INTO parents SELECT jobq.enqueue('slow'), 'cancelled', 'before'});
wait_for_sql($node, q{SELECT count(*) = 3 FROM jobq.jobs WHERE job_type = 'parent' AND status IN ('completed', 'skipped', 'error')}, 'parents end');
one(q{SELECT finish(ends, id) FROM parents WHERE ends = 'cancelled'});
one(q{INSERT INTO children SELECT jobq.enqueue('child', after => ARRAY[p.id], after_rule => r), ends, r, 'before'
  FROM parents p, unnest('{success,done,any,failed}'::text[]) r WHERE moment = 'before'});

# later: the parent waits until its child is blocked
one(q{SELECT jobq.pause_job_type('parent')});
one(qq{INSERT INTO parents SELECT jobq.enqueue(CASE WHEN e IN ('cancelled', 'deleted') THEN 'slow' ELSE 'parent' END, jsonb_build_object('end', e)), e, 'later'
  FROM unnest('{$ends}'::text[]) e});
one(q{INSERT INTO children SELECT jobq.enqueue('child', after => ARRAY[p.id], after_rule => r), ends, r, 'later'
  FROM parents p, unnest('{success,done,any,failed}'::text[]) r WHERE moment = 'later'});
is(one(q{SELECT count(*), bool_and(position = 'infinity' AND waiting_for = 1) FROM jobq.queue JOIN children USING (id) WHERE moment = 'later' AND status = 'blocked'}),
	'28|t', 'all children of live parents are blocked');
is(one(q{SELECT count FROM jobq.count_by_status('child') WHERE status = 'blocked'}) >= 28, 1, 'count_by_status counts them');
is(one(q{SELECT count(*) FROM jobq.list_jobs(status => 'blocked', max_rows => 100) WHERE after_rule = 'any' AND cardinality(after) = 1}) >= 7, 1,
	'list_jobs lists them');
one(q{SELECT jobq.resume_job_type('parent')});
wait_for_sql($node, q{SELECT count(*) = 5 FROM jobq.jobs JOIN parents USING (id) WHERE moment = 'later' AND status IN ('completed', 'skipped', 'error')}, 'parents end');
is(one(q{SELECT string_agg(DISTINCT status::text, ',') FROM jobq.jobs JOIN children USING (id) WHERE ends IN ('purged', 'retried') AND rule = 'success'}),
	'blocked', 'dead letters hold children of rule success');
wait_for_sql($node, q{SELECT count(*) = 2 FROM jobq.jobs JOIN children USING (id) WHERE ends IN ('purged', 'retried') AND rule = 'failed' AND status = 'completed'},
	'and release those of rule failed');
# a retry that comes before the conductor has seen the end lets the parent complete for its children
wait_for_sql($node, q{SELECT count(*) = 2 FROM jobq.jobs JOIN children USING (id) WHERE ends IN ('purged', 'retried') AND rule = 'any' AND status = 'skipped'},
	'and end those of rule any');
one(q{SELECT finish(ends, id) FROM parents WHERE moment = 'later'});

my %cells = (
	success => 'completed skipped blocked cancelled completed cancelled cancelled',
	done => 'completed completed completed completed completed completed completed',
	any => 'completed skipped skipped skipped skipped skipped skipped',
	failed => 'skipped skipped completed completed completed completed skipped');
foreach my $rule (sort keys %cells)
{
	my @cells = split / /, $cells{$rule};

	foreach my $i (0 .. $#ends)
	{
		foreach my $moment ($i < 4 ? 'before' : (), 'later')
		{
			wait_for_sql($node, "SELECT status = '$cells[$i]' FROM jobq.jobs JOIN children USING (id)
			  WHERE ends = '$ends[$i]' AND rule = '$rule' AND moment = '$moment'", "$rule, parent $ends[$i] $moment: $cells[$i]")
			  or diag(one("SELECT status, error_code FROM jobq.jobs JOIN children USING (id) WHERE ends = '$ends[$i]' AND rule = '$rule' AND moment = '$moment'"));
		}
	}
}
is(one(q{SELECT string_agg(DISTINCT error_code, ',') FROM jobq.jobs JOIN children USING (id) WHERE status IN ('skipped', 'cancelled')}), 'dependency',
	'the error_code is dependency');
wait_for_sql($node, q{SELECT count(*) = 2 AND bool_and(child_id IN (SELECT id FROM jobq.queue)) FROM jobq.dependencies}, 'only edges of held jobs stay');
is(one(q{SELECT string_agg(DISTINCT events, ' ') FROM (SELECT string_agg(e.type, '>' ORDER BY e.ts, e.id) FILTER (WHERE e.type IN ('enqueued', 'blocked', 'released')) AS events
    FROM jobq.events e JOIN children c ON c.id = e.job_id WHERE c.rule = 'done' AND c.moment = 'later' GROUP BY c.id) x}),
	'enqueued>blocked>released', 'events of a released job');
is(one(q{SELECT jobq.purge_dead_letters('parent')}), '2', 'purge_dead_letters');
wait_for_sql($node, q{SELECT count(*) = 2 FROM jobq.jobs JOIN children USING (id) WHERE ends = 'dead' AND rule = 'success' AND status = 'cancelled'},
	'the held children are cancelled');
wait_for_sql($node, q{SELECT count(*) = 0 FROM jobq.dependencies}, 'no edge is left');

# A dead letter that expires counts as a purged one.
my $expires = one(q{SELECT jobq.enqueue('parent', '{"end": "dead"}')});
wait_status($node, 'postgres', $expires, 'error', 'one more dead letter');
my %of_expired = map { $_ => one("SELECT jobq.enqueue('child', after => '{$expires}', after_rule => '$_')") } qw(success failed);
wait_status($node, 'postgres', $of_expired{failed}, 'completed', 'releases a job of rule failed');
is(one("SELECT status FROM jobq.jobs WHERE id = '$of_expired{success}'"), 'blocked', 'and holds one of rule success');
one("UPDATE jobq.dead_letters SET expires_at = now() - interval '1 s' WHERE id = '$expires'");
wait_for_sql($node, "SELECT jobq_internal._retain() IS NOT NULL AND NOT EXISTS (SELECT FROM jobq.dead_letters WHERE id = '$expires')", 'it expires');
wait_status($node, 'postgres', $of_expired{success}, 'cancelled', 'the held child is cancelled');
is(one("SELECT error_code FROM jobq.jobs WHERE id = '$of_expired{success}'"), 'dependency', 'by its dependency');
is(one("SELECT status FROM jobq.jobs WHERE id = '$of_expired{failed}'"), 'completed', 'the other one stays as it was');

# ---------- several parents ----------

sub parents { my @e = @_; return join ',', map { "jobq.enqueue('parent', '{\"end\": \"$_\"}')" } @e; }

foreach my $case (
	[ 'success', 'completed', qw(completed skipped completed) ], [ 'success', 'skipped', qw(skipped skipped) ],
	[ 'success', 'cancelled', qw(completed cancelled) ], [ 'any', 'completed', qw(dead completed) ], [ 'any', 'skipped', qw(dead skipped) ],
	[ 'failed', 'completed', qw(completed dead) ], [ 'failed', 'skipped', qw(completed skipped) ], [ 'done', 'completed', qw(dead skipped completed) ])
{
	my ($rule, $status, @parents) = @$case;
	my @ids = map { my $e = $_; one(sprintf "SELECT jobq.enqueue('%s', '{\"end\": \"$e\"}')", $e eq 'cancelled' ? 'slow' : 'parent') } @parents;
	my $id = one("SELECT jobq.enqueue('child', after => '{" . join(',', @ids, $ids[0]) . "}', after_rule => '$rule')");

	one("SELECT jobq.cancel_job(id) FROM jobq.jobs WHERE id = ANY ('{" . join(',', @ids) . "}') AND job_type = 'slow'");
	wait_status($node, 'postgres', $id, $status, "$rule of @parents: $status");
}

# ---------- one parent ends, the other lives ----------

foreach my $case ([ 'completed', 'any' ], [ 'dead', 'failed' ])
{
	my ($end, $released) = @$case;
	my ($live, $first) = map { one("SELECT jobq.enqueue('parent', '{\"end\": \"$_\"}', delay => '1 day')") } 'completed', $end;
	my %child = map { $_ => one("SELECT jobq.enqueue('child', after => '{$live,$first}', after_rule => '$_')") } qw(success done any failed);

	is(one("SELECT string_agg(DISTINCT status::text, ' ') FROM jobq.jobs WHERE id = ANY ('{" . join(',', values %child) . "}')"), 'blocked', 'all wait');
	one("SELECT jobq.alter_job('$first', scheduled_for => now())");
	wait_status($node, 'postgres', $child{$released}, 'completed', "a parent is $end: rule $released is met while the other parent lives");
	is(one("SELECT c.started_at >= p.completed_at FROM jobq.jobs c, jobq.jobs p WHERE c.id = '$child{$released}' AND p.id = '$first'"), 't', 'the job runs after that end');
	is(one("SELECT string_agg(DISTINCT status::text, ' ') FROM jobq.jobs WHERE id = ANY ('{" . join(',', map { $child{$_} } grep { $_ ne $released } keys %child) . "}')"),
		'blocked', 'the others wait');
	is(one("SELECT status FROM jobq.jobs WHERE id = '$live'"), 'pending', 'for the parent that lives');
	one("SELECT jobq.alter_job('$live', scheduled_for => now())");
	my %status = $end eq 'completed' ? (success => 'completed', done => 'completed', failed => 'skipped') : (success => 'blocked', done => 'completed', any => 'completed');
	wait_status($node, 'postgres', $child{$_}, $status{$_}, "$end and completed: rule $_, $status{$_}") foreach sort keys %status;
	one("SELECT jobq.cancel_job('$child{success}')") if $end eq 'dead';
	wait_for_sql($node, "SELECT NOT EXISTS (SELECT FROM jobq.dependencies WHERE parent_id = '$live')", 'no edge of it is left');
}
one(q{SELECT jobq.purge_dead_letters('parent')});

# ---------- a replace of a job that one of its parents has released ----------

# The end of the other parent is not the end of a new one.
one(q{SELECT jobq.pause_job_type('ordered')});
foreach my $case ([ 'any', 'completed' ], [ 'failed', 'cancelled' ])
{
	my ($rule, $end) = @$case;
	my ($first, $second, $new) = map { one(q{SELECT jobq.enqueue('slow')}) } 1 .. 3;
	my $finish = $end eq 'completed' ? '(jobq.run_inline($id)).status' : 'jobq.cancel_job($id)';
	my $job = one("SELECT jobq.enqueue('ordered', unique_key => '$rule', after => '{$first,$second}', after_rule => '$rule')");

	one('SELECT ' . $finish =~ s/\$id/'$first'/r);
	wait_status($node, 'postgres', $job, 'pending', "one parent $end: a job of rule $rule is released");
	is(one("SELECT jobq.enqueue('ordered', unique_key => '$rule', after => '{$new}', on_conflict => 'replace')"), $job, 'it gets another parent');
	is(one("SELECT count(*) FROM jobq.dependencies WHERE child_id = '$job'"), '1', 'and has no other edge');
	one('SELECT ' . $finish =~ s/\$id/'$second'/r);
	wait_for_sql($node, "SELECT NOT EXISTS (SELECT FROM jobq.dependencies WHERE parent_id = '$second')", 'the former parent ends');
	is(one("SELECT status FROM jobq.jobs WHERE id = '$job'"), 'blocked', 'it waits for the new one');
	one("SELECT (jobq.run_inline('$new')).status");
	wait_status($node, 'postgres', $job, 'pending', 'whose end releases it');
	one("SELECT jobq.cancel_job('$job')");
}
one(q{SELECT jobq.resume_job_type('ordered')});

# ---------- management ----------

one(q{SELECT jobq.pause_job_type('parent')});
my $parent = one(q{SELECT jobq.enqueue('parent', '{"end": "completed"}')});
my $blocked = one("SELECT jobq.enqueue('child', '{\"what\": \"m\"}', after => '{$parent}')");

is(one("SELECT jobq.retry_job('$blocked')"), 'f', 'retry_job of a blocked job');
is(one("SELECT coalesce(jobq.rerun_job('$blocked')::text, 'null')"), 'null', 'rerun_job of a blocked job');
is(one("SELECT jobq.alter_job('$blocked', scheduled_for => now() + interval '1 hour', priority => 3)"), 't', 'alter_job');
is(one("SELECT position, priority, status FROM jobq.queue WHERE id = '$blocked'"), 'infinity|3|blocked', 'the job stays blocked');
sqlstate_is($node, 'postgres', "SELECT jobq.run_inline('$blocked')", '55000', 'run_inline refuses a blocked job');
is(one("SELECT jobq.cancel_job('$blocked', 'why')"), 't', 'cancel_job');
is(one("SELECT status, error_msg, after = '{$parent}' FROM jobq.jobs WHERE id = '$blocked'"), 'cancelled|why|t', 'it is cancelled');
is(one("SELECT jobq.retry_job('$blocked')"), 't', 'and retried');
wait_status($node, 'postgres', $blocked, 'completed', 'a retried job waits for nothing');
is(one('SELECT count(*) FROM jobq.dependencies'), '0', 'its edges are gone');

# due when both are
my $due = one("SELECT jobq.enqueue('child', after => '{$parent}', delay => '1 hour')");
my $many = one("SELECT string_agg(id::text, ',') FROM jobq.enqueue_many('child', ARRAY['{}', '{}']::jsonb[], after => '{$parent}') AS id");
one(q{SELECT jobq.resume_job_type('parent')});
wait_status($node, 'postgres', $due, 'pending', 'a delayed job is released');
is(one("SELECT position = scheduled_for AND position > now() + interval '50 min' FROM jobq.queue WHERE id = '$due'"), 't', 'and waits for its time');
wait_for_sql($node, "SELECT bool_and(status = 'completed') FROM jobq.jobs WHERE id = ANY ('{$many}')", 'enqueue_many');

# a chain of cancels, a forced drop, a tenant
one(q{SELECT jobq.pause_job_type('parent')});
one(q{SELECT count(*) FROM jobq.enqueue_jobs('[{"job_type": "parent"}, {"job_type": "child", "after": [1]}, {"job_type": "child", "after": [2]},
  {"job_type": "child", "after": [3], "after_rule": "done", "payload": {"what": "end of chain"}}]')});
is(one(q{SELECT jobq.cancel_jobs('parent')}), '1', 'cancel_jobs');
wait_for_sql($node, q{SELECT EXISTS (SELECT FROM ran WHERE what = 'end of chain')}, 'a cancel goes down the chain');
is(one(q{SELECT count(*) FROM jobq.queue WHERE status = 'blocked'}), '0', 'nothing is blocked');

one(q{SELECT jobq.create_job_type('gone', 'child(jsonb)'), jobq.pause_job_type('gone')});
my ($g, $own) = split /\|/, one(q{SELECT jobq.enqueue('gone'), jobq.enqueue('parent')});
my $of_gone = one("SELECT jobq.enqueue('child', after => '{$g}')");
one("SELECT jobq.enqueue('gone', after => '{$own}')");
sqlstate_is($node, 'postgres', q{SELECT jobq.drop_job_type('gone')}, '55006', 'a type with blocked jobs is in use');
one(q{SELECT jobq.drop_job_type('gone', force => true)});
wait_status($node, 'postgres', $of_gone, 'cancelled', 'children of a dropped type are cancelled');
is(one(q{SELECT count(*) FROM jobq.queue q JOIN jobq.job_types t ON t.id = q.type_id WHERE t.dropped_at IS NOT NULL}), '0', 'its blocked job, too');

my $tenants = one(q{SELECT jobq.enqueue('parent', tenant => 'a')});
my $other = one("SELECT jobq.enqueue('child', after => '{$tenants}', tenant => 'b')");
one("SELECT jobq.enqueue('child', after => '{$own}', tenant => 'a')");
is(one(q{SELECT jobq.purge_tenant('a')}), '2', 'purge_tenant takes blocked jobs');
wait_status($node, 'postgres', $other, 'cancelled', 'and ends those that wait for them');

# ---------- unique keys ----------

sub state_of { return one("SELECT status, coalesce(waiting_for, 0), position = 'infinity' FROM jobq.queue WHERE id = '$_[0]'"); }

my $p2 = one(q{SELECT jobq.enqueue('parent')});
my $u = one("SELECT jobq.enqueue('child', '{\"what\": 1}', unique_key => 'u', after => '{$own}', scheduled_for => now() + interval '1 day')");
is(one("SELECT jobq.enqueue('child', '{\"what\": 2}', unique_key => 'u', on_conflict => 'replace')"), $u, 'replace without after');
is(state_of($u), 'blocked|1|t', 'keeps the edges');
is(one("SELECT jobq.enqueue('child', '{\"what\": 3}', unique_key => 'u', on_conflict => 'replace', after => '{$p2}')"), $u, 'replace with after');
is(one("SELECT string_agg(parent_id::text, ',') FROM jobq.dependencies WHERE child_id = '$u'"), $p2, 'gives other edges');
is(one("SELECT scheduled_for > now() + interval '23 hours' FROM jobq.queue WHERE id = '$u'"), 't', 'and keeps the time');
sqlstate_is($node, 'postgres', "SELECT jobq.enqueue('child', unique_key => 'u', on_conflict => 'replace', after => '{$u}')", '22023', 'no job waits for itself');
my $behind = one("SELECT jobq.enqueue('child', after => '{$u}')");
sqlstate_is($node, 'postgres', "SELECT jobq.enqueue('child', unique_key => 'u', on_conflict => 'replace', after => '{$p2,$behind}')", '22023', 'nor in a circle');
is(one("SELECT jobq.enqueue('child', unique_key => 'u', on_conflict => 'replace', scheduled_for => now(), after => ARRAY(SELECT id FROM jobq.jobs WHERE job_type = 'child' AND status = 'completed' LIMIT 1))"),
	$u, 'replace with an ended parent');
wait_status($node, 'postgres', $u, 'completed', 'the job runs');
wait_status($node, 'postgres', $behind, 'completed', 'and the one behind it');
is(one("SELECT count(*) FROM jobq.dependencies WHERE child_id = '$u'"), '0', 'no edge is left');

my $w = one("SELECT jobq.enqueue('slow', unique_key => 'w', delay => '1 day')");
one("SELECT jobq.enqueue('slow', unique_key => 'w', on_conflict => 'replace', after => '{$p2}')");
is(state_of($w), 'blocked|1|t', 'a waiting job becomes blocked');
one(q{SELECT jobq.resume_job_type('parent')});
wait_status($node, 'postgres', $w, 'pending', 'and waits again');

# ---------- keys in order ----------

one(q{SELECT jobq.pause_job_type('ordered'), jobq.pause_job_type('parent')});
one(q{TRUNCATE ran});
my $p3 = one(q{SELECT jobq.enqueue('parent')});
one("SELECT jobq.enqueue('ordered', '{\"what\": \"first created\"}', concurrency_key => 'k', after => '{$p3}')");
one(q{SELECT jobq.enqueue('ordered', '{"what": "second"}', concurrency_key => 'k')});
is(one(q{SELECT string_agg((key_hash IS NULL)::text || (key_since IS NULL)::text, ',' ORDER BY id) FROM jobq.queue WHERE concurrency_key = 'k'}),
	'truetrue,falsefalse', 'a blocked job waits in no key');
one(q{SELECT jobq.resume_job_type('ordered')});
wait_for_sql($node, q{SELECT count(*) = 1 FROM ran}, 'a job does not wait for a blocked one of its key');
one(q{SELECT jobq.pause_job_type('ordered'), jobq.enqueue('ordered', '{"what": "third"}', concurrency_key => 'k')});
one(q{SELECT jobq.resume_job_type('parent')});
wait_for_sql($node, q{SELECT count(*) = 0 FROM jobq.queue WHERE status = 'blocked' AND concurrency_key = 'k'}, 'the parent ends');
one(q{SELECT jobq.enqueue('ordered', '{"what": "fourth"}', concurrency_key => 'k'), jobq.resume_job_type('ordered')});
wait_for_sql($node, q{SELECT count(*) = 4 FROM ran}, 'all run');
is(one(q{SELECT string_agg(what, ',' ORDER BY seq) FROM ran}), 'second,third,first created,fourth', 'a released job joins the end of its key');

# ---------- rights ----------

one(q{CREATE ROLE app; CREATE ROLE alice LOGIN IN ROLE app; CREATE ROLE bob LOGIN IN ROLE app; SELECT jobq.grant_access('app', 'enqueue')});
my $theirs = one(q{SET SESSION AUTHORIZATION alice; SELECT jobq.enqueue('slow')});
my $ended = one(q{SET SESSION AUTHORIZATION alice; SELECT jobq.enqueue('child')});
wait_status($node, 'postgres', $ended, 'completed', 'a job of alice has ended');
my @texts;
foreach my $id ($theirs, $ended, '00000000-0000-0000-0000-000000000000')
{
	my ($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nSET SESSION AUTHORIZATION bob; SELECT jobq.enqueue('child', after => '{$id}')");

	$err =~ s/\Q$id\E/id/g;
	$err =~ s/^psql.*?(?=ERROR)|^LOCATION.*//mg;
	push @texts, $err;
}
like($texts[0], qr/P0002.*"after": job id does not exist/, 'a foreign parent does not exist');
is($texts[1], $texts[0], 'a foreign parent that has ended, with the same text');
is($texts[2], $texts[0], 'as one that never existed');
my $of_alice = one("SET SESSION AUTHORIZATION alice; SELECT jobq.enqueue('child', after => '{$theirs,$ended}')");
is(one("SET SESSION AUTHORIZATION alice; SELECT status, cardinality(after) FROM jobq.jobs WHERE id = '$of_alice'"), 'blocked|2', 'its own jobs are parents');
sqlstate_is($node, 'postgres', 'SET SESSION AUTHORIZATION alice; SELECT * FROM jobq.dependencies', '42501', 'edges are not readable');

# ---------- health ----------

my $dead = one(q{SELECT jobq.enqueue('parent', '{"end": "dead"}')});
wait_status($node, 'postgres', $dead, 'error', 'a dead letter');
my $new = one("SELECT jobq.enqueue('child', after => '{$dead}')");
is(one(q{SELECT jobq.health()->'checks'->'queues'->'dead_parents'}), '', 'no check before an hour');
one("UPDATE jobq.queue SET created_at = created_at - interval '2 hours' WHERE id = '$new'");
is(one(q{SELECT jobq.health()->'checks'->'queues'->'dead_parents'}), '', 'a job that has waited for long, and whose parent died a moment ago');
one("UPDATE jobq.queue SET created_at = clock_timestamp() WHERE id = '$new'");
one("UPDATE jobq.dead_letters SET completed_at = completed_at - interval '2 hours'");
is(one(q{SELECT jobq.health()->'checks'->'queues'->'dead_parents'}), '', 'a new job behind an old dead letter has not waited for an hour');
my $old = one("SELECT jobq.enqueue('child', after => '{$dead}')");
one("UPDATE jobq.queue SET created_at = created_at - interval '61 minutes' WHERE id = '$old'");
is(one(q{SELECT jobq.health()->'checks'->'queues'->'dead_parents'}), "[\"$dead\"]", 'health names the dead letter that another one has waited for');
one(q{INSERT INTO jobq.dead_letters SELECT (jsonb_populate_record(d, jsonb_build_object('id', gen_random_uuid(), 'completed_at', d.completed_at + interval '1 min'))).*
  FROM jobq.dead_letters d, generate_series(1, 1001) WHERE d.id = '} . $dead . q{'});
is(one(q{SELECT jobq.health()->'checks'->'queues'->'dead_parents'}), "[\"$dead\"]", 'also behind many others');

$node->stop;
done_testing();
