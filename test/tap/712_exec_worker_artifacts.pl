# Artifacts of tools: rows of each attempt, malformed lines, a bounded number, warm instances,
# missing partitions, a crash.

use strict;
use warnings;

use ExecTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = jobq_node('artifacts');
my $sum = 'sha256:' . 'c' x 64;

# Returns the artifacts of a job, one a line.
sub artifacts
{
	my ($id, $columns) = @_;

	return $node->safe_psql('postgres', "SELECT $columns FROM jobq.artifacts WHERE job_id = '$id' ORDER BY id");
}

# Returns the messages of warnings about a job.
sub warnings_of
{
	my ($id) = @_;

	return $node->safe_psql('postgres', "SELECT message FROM jobq.events WHERE job_id = '$id' AND type = 'log' AND level = 'warning' ORDER BY id");
}

# ---------- a row with all its columns, while the tool runs ----------

my $gate = tools() . '/gate';
define_tool($node, 'talk', [ 'sh', '-c', <<END, $gate ], options => q('{"output": "none", "events": "all"}'), timeout => "'10min'", keep_completed => "'2 days'");
echo '{"artifact": {"key": "outputs\\/a.wav", "kind": "log", "bucket": "media", "size_bytes": 12, "content_type": "audio/wav", "checksum": "$sum", "data": {"s": 3}, "more": 1}}' >&3
while [ ! -e "\$0" ]; do sleep 0.05; done
END
my $id = enqueue($node, 'talk', undef, tenant => "'acme'");
ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM jobq.artifacts WHERE job_id = '$id'"), 'a row while the tool runs');
is(artifacts($id, q{key, kind, bucket, size_bytes, content_type, checksum, data, tenant, job_type, attempt, workflow_id, task_key,
	expires_at - created_at}), "outputs/a.wav|log|media|12|audio/wav|$sum|{\"s\": 3}|acme|talk|1|||2 days 00:10:00", 'with its columns');
is($node->safe_psql('postgres', "SELECT source, attempt, data - 'id' FROM jobq.events WHERE job_id = '$id' AND type = 'artifact'"),
	qq(helper|1|{"key": "outputs/a.wav", "kind": "log", "bucket": "media", "checksum": "$sum", "size_bytes": 12, "content_type": "audio/wav"}), 'and its event at level all');
tool('gate', '');
is(finished($node, $id)->{status}, 'completed', 'the tool ends');
is(artifacts($id, 'key'), 'outputs/a.wav', 'there is still one row');

# ---------- attempts that fail, and malformed lines ----------

define_tool($node, 'fails', [ 'sh', '-c', <<'END' ], options => q('{"output": "none", "alert": false}'), max_attempts => 2, backoff_base => "'0'");
echo '{"artifact": {"key": "a'$JOBQ_ATTEMPT'"}}' >&3
exit 3
END
$id = enqueue($node, 'fails');
is(finished($node, $id)->{status}, 'error', 'a tool fails twice');
is(artifacts($id, "key || ' ' || attempt"), "a1 1\na2 2", 'the artifacts of failed attempts stay, with their numbers');
is($node->safe_psql('postgres', "SELECT count(*) FROM jobq.events WHERE job_id = '$id' AND type = 'artifact'"), 0, 'there are no events of artifacts at level failures');

my @bad = ('{"key": "../x"}', '{"key": "/x"}', '{"key": "a//b"}', '{"key": "a\\\\b"}', '{"key": "%2e%2e/x"}', '{"key": "a\u0001"}', '{"key": "\u002e\u002e/x"}',
	'{"key": "\uff0fx"}', '{"key": ""}', '{"key": "x", "kind": "movie"}', '{"key": "x", "size_bytes": 1.5}', '{"key": "x", "size_bytes": 9223372036854775808}',
	'{"key": "x", "checksum": "md5:1"}', '{"key": "x", "bucket": ""}', '{"key": "x", "content_type": "a\nb"}', '{"key": 1}', '{}', '[]', '{"key": "x", "size_bytes": -1}');
my $lines = join("\n", map { qq({"artifact": $_}) } @bad, '{"key": "x", "size_bytes": 9223372036854775807, "kind": null}');
append_to_file(tools() . '/bad.lines', "$lines\n");
define_tool($node, 'bad', [ 'sh', '-c', 'cat "$0" >&3', tools() . '/bad.lines' ], options => q('{"output": "none"}'));
$id = enqueue($node, 'bad');
is(finished($node, $id)->{status}, 'completed', 'malformed artifacts are no failure');
is(artifacts($id, 'key, kind, size_bytes'), 'x|output|9223372036854775807', 'they are no rows');
is(warnings_of($id), scalar(@bad) . ' lines on descriptor 3 were malformed', 'they are counted');

# ---------- a bounded number ----------

define_tool($node, 'many', [ 'sh', '-c', <<'END' ], options => q('{"output": "none"}'));
i=0
while [ $i -lt 1007 ]; do echo '{"artifact": {"key": "a'$i'"}}'; i=$((i + 1)); done >&3
echo '{"log": "still"}' >&3
END
$id = enqueue($node, 'many');
is(finished($node, $id)->{status}, 'completed', 'a tool with many');
is($node->safe_psql('postgres', "SELECT count(*), count(DISTINCT key), count(DISTINCT id), min(attempt), max(attempt) FROM jobq.artifacts WHERE job_id = '$id'"), '1000|1000|1000|1|1', '1,000 stay');
is(warnings_of($id), '7 more artifacts of this attempt were dropped', 'the rest is counted');
is($node->safe_psql('postgres', "SELECT count(*) FROM jobq.events WHERE job_id = '$id' AND message = 'still'"), 1, 'and takes no room of log lines');

# ---------- warm instances ----------

my $warm = tool('warm', <<'END');
#!/usr/bin/perl
use strict;
$| = 1;
open(my $notes, '>&=', 3) or die;
$notes->autoflush(1);
while (my $line = <STDIN>)
{
	my ($id) = $line =~ /"id": *"([^"]+)"/;
	print $notes qq({"id": "$id", "artifact": {"key": "warm/$id"}}\n), qq({"artifact": {"key": "no/id"}}\n);
	print qq({"id": "$id", "result": 1}\n);
}
END
define_tool($node, 'warm', [$warm], options => q('{"warm": 1}'));
foreach (1 .. 2)
{
	$id = enqueue($node, 'warm');
	is(finished($node, $id)->{status}, 'completed', 'a job of a warm instance');
	is(artifacts($id, 'key'), "warm/$id", 'its artifact, and none without the id');
}

# ---------- no partition yet ----------

define_tool($node, 'far', [ 'sh', '-c', q(echo '{"artifact": {"key": "far"}}' >&3) ], options => q('{"output": "none"}'));
$id = enqueue($node, 'far', undef, keep_completed => "'20 days'");
is(finished($node, $id)->{status}, 'completed', 'a settlement without a partition for its artifact');
is(artifacts($id, 'key'), 'far', 'and the artifact is written with it');
is(artifacts($id, "expires_at > created_at + interval '20 days'"), 't', 'for as long as the job keeps');

# ---------- the death of the exec worker, and a cancelled tool ----------

define_tool($node, 'long', [ 'sh', '-c', q(echo '{"artifact": {"key": "long"}}' >&3; exec sleep 600) ], options => q('{"output": "none", "alert": false}'), max_attempts => 1);
$id = enqueue($node, 'long');
ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM jobq.artifacts WHERE job_id = '$id'"), 'a long tool has an artifact');
my $worker = $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'jobq exec worker'");
$node->safe_psql('postgres', "SELECT pg_terminate_backend($worker)");
ok($node->poll_query_until('postgres', "SELECT count(*) = 2 FROM jobq.artifacts WHERE job_id = '$id'"), 'the artifact outlives the exec worker, and the tool runs again');
is(artifacts($id, 'key, attempt'), "long|1\nlong|1", 'the attempt that was put back was not charged');
$node->safe_psql('postgres', "SELECT jobq.cancel_job('$id')");
is(finished($node, $id)->{status}, 'cancelled', 'the tool is cancelled');
is(artifacts($id, 'key, attempt'), "long|1\nlong|1", 'its artifacts stay');

$node->stop;
done_testing();
