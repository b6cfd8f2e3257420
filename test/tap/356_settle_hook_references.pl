# Payloads of hooks that would be too large: they name the job; its row stays
# until the hook's job has ended.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('hook_references', q{jobq.max_payload = '4kB'}, 'fsync = off');
$node->start;
my $tool = $node->basedir . '/tool';
append_to_file($tool, "#!/bin/sh\nprintf '\"%05000d\"' 0\n");
chmod 0755, $tool or die "chmod: $!";
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE FUNCTION work(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  IF (p->>'fails')::int >= (SELECT runs FROM jobq.current_job()) THEN
    RAISE EXCEPTION 'oops' USING DETAIL = repeat('d', 1000);
  END IF;
  RETURN to_jsonb(repeat('x', (p->>'size')::int));
END $$;
CREATE FUNCTION reader(story jsonb) RETURNS jsonb LANGUAGE sql AS $$
  SELECT jsonb_build_object('by_name', story ? 'result', 'truncated', story->'truncated', 'details', length(story->'error_details'->>'detail'),
                            'status', j.status, 'result', length(j.result #>> '{}'), 'payload', length(j.payload->>'text'))
    FROM (SELECT) s LEFT JOIN jobq.jobs j ON j.id = (story->>'job_id')::uuid
$$;
SELECT jobq.create_job_type('reader', 'reader(jsonb)', options => '{"max_depth": 5}');
SELECT jobq.create_job_type('keeps', 'work(jsonb)', options => '{"on_complete": "reader"}');
SELECT jobq.create_job_type('nothing', 'work(jsonb)', keep_completed => '0', keep_dead => '0', max_attempts => 2, backoff_base => '0',
  options => '{"on_complete": "reader", "on_dead": "reader"}');
SELECT jobq.create_job_type('counted', 'work(jsonb)', options => '{"keep_completed_count": 0, "on_complete": "reader"}');
SELECT jobq.create_job_type('failing', 'work(jsonb)', keep_completed => '0', keep_dead => '0', max_attempts => 2, backoff_base => '0',
  options => '{"on_failure": "reader"}');
END
$node->safe_psql('postgres', "SELECT jobq.create_job_type('tool', command => '{$tool}', keep_completed => '0', options => '{\"on_complete\": \"reader\"}')");
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub query { return $node->safe_psql('postgres', $_[0]); }

# Returns the data of a job that the hook's handler found.
sub read_of
{
	wait_for_sql($node, "SELECT EXISTS (SELECT FROM jobq.jobs WHERE parent_id = '$_[0]' AND status = 'completed')", 'its hook has run');
	return query("SELECT result - 'by_name' FROM jobq.jobs WHERE parent_id = '$_[0]' ORDER BY id LIMIT 1");
}

sub is_there { return query("SELECT count(*) FROM jobq.jobs WHERE id = '$_[0]'"); }

sub retain
{
	query('SELECT jobq_internal._retain()');
	return;
}

# Runs a job while the type of its hooks is paused; returns its id.
sub run_paused
{
	my ($type, $payload) = @_;
	my $id;

	query(q{SELECT jobq.pause_job_type('reader')});
	$id = query("SELECT jobq.enqueue('$type', '$payload')");
	wait_for_sql($node, "SELECT count(*) > 0 AND NOT EXISTS (SELECT FROM jobq.queue WHERE id = '$id') FROM jobq.queue WHERE parent_id = '$id'", "$type has ended");
	return $id;
}

my $small = query(q{SELECT jobq.enqueue('keeps', '{"size": 10}')});
is(read_of($small), '{"result": null, "status": null, "details": null, "payload": null, "truncated": null}', 'a story that fits names nobody');
my $kept = run_paused('keeps', '{"size": 5000}');
is(query(q{SELECT count(*) FROM jobq.hook_references}), '1', 'one reference, at least until the hook has run');
query(q{SELECT jobq.resume_job_type('reader')});
is(read_of($kept), '{"result": 5000, "status": "completed", "details": null, "payload": null, "truncated": true}', 'the result by reference');

# types that keep no jobs: the row stays until the hook's job has ended
foreach my $case (
	[ 'nothing', '{"size": 5000}', '{"result": 5000, "status": "completed", "details": null, "payload": null, "truncated": true}' ],
	[ 'counted', '{"size": 5000}', '{"result": 5000, "status": "completed", "details": null, "payload": null, "truncated": true}' ],
	[ 'tool', '{}', '{"result": 5000, "status": "completed", "details": null, "payload": null, "truncated": true}' ],
	[ 'nothing', sprintf('{"fails": 2, "text": "%s"}', 't' x 4000), '{"result": null, "status": "error", "details": 1000, "payload": 4000, "truncated": true}' ],
	[ 'failing', sprintf('{"fails": 1, "size": 1, "text": "%s"}', 't' x 4000), '{"result": null, "status": "completed", "details": 1000, "payload": 4000, "truncated": true}' ])
{
	my ($type, $payload, $found) = @$case;
	my $id = run_paused($type, $payload);

	retain();
	is(is_there($id), '1', "the row of $type stays while its hook waits");
	query(q{SELECT jobq.resume_job_type('reader')});
	is(read_of($id) =~ s/"result": 1,/"result": null,/r, $found, 'which finds the data');
	wait_for_sql($node, "SELECT NOT EXISTS (SELECT FROM jobq.queue)", 'all have ended');
	retain();
	is(is_there($id), '0', 'and goes when that has ended');
}
is(query(q{SELECT count(*) FROM jobq.hook_references}), '0', 'no reference is left');
my $none = query(q{SELECT jobq.enqueue('nothing', '{"size": 10}')});
wait_for_sql($node, "SELECT NOT EXISTS (SELECT FROM jobq.queue)", 'a job with a payload that fits');
is(is_there($none), '0', 'keeps nothing');

# rows past their retention move to a later partition
my $old = run_paused('keeps', '{"size": 5000}');
my $other = query(q{SELECT jobq.enqueue('counted', '{"size": 1}')});
query(q{SELECT jobq_internal._ensure_partition('jobq.history', '2001-01-01 12:00+00')});
query(q{UPDATE jobq.history SET expires_at = '2001-01-01 12:00+00'});
wait_for_sql($node, q{SELECT jobq_internal._maintain() IS NOT NULL AND NOT EXISTS (SELECT FROM jobq_internal._partitions('jobq.history') WHERE high < '2010-01-01')},
	'their partition goes');
retain();
is(is_there($old), '1', 'a row that a hook waits for stays');
is(is_there($kept), '0', 'with the others');
query(q{SELECT jobq.resume_job_type('reader')});
is(read_of($old), '{"result": 5000, "status": "completed", "details": null, "payload": null, "truncated": true}', 'the hook reads it');

# inline, and a hook that could not be enqueued
query(q{SELECT jobq.alter_job_type('nothing', options => '{"on_complete": "nosuch"}')});
is(query(q{BEGIN; SELECT status, length(result #>> '{}') FROM jobq.run_inline(jobq.enqueue('nothing', '{"size": 5000}')); SELECT count(*) FROM jobq.hook_references h JOIN jobq.queue q ON q.id = h.hook_job; ROLLBACK}),
	"completed|5000\n0", 'a hook that fails leaves no reference');
query(q{SELECT jobq.alter_job_type('nothing', options => '{"on_complete": "reader"}')});
is(query(q{BEGIN; SELECT status, length(result #>> '{}') FROM jobq.run_inline(jobq.enqueue('nothing', '{"size": 5000}')); SELECT count(*) FROM jobq.hook_references h JOIN jobq.queue q ON q.id = h.hook_job; ROLLBACK}),
	"completed|5000\n1", 'inline, too');
$node->stop;
done_testing();
