# Bad input over HTTP: the answer names the argument; methods and paths that nothing serves; logs
# that tell nothing of passwords, tokens and payloads.

use strict;
use warnings;

use JSON::PP;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use WebTest;

my $node = web_node('bad_input', 'log_statement = none');
$node->safe_psql('postgres', <<'END');
CREATE ROLE boss LOGIN PASSWORD 'hidden-password';
SELECT jobq.create_job_type('pull');
SELECT jobq.grant_access('boss', a) FROM unnest('{admin,work,enqueue}'::text[]) a;
INSERT INTO jobq.alerts (severity, title, message) VALUES ('high', 't', 'm'), ('high', 't2', 'm');
END
my $web = start_web($node);
my %boss = (headers => { basic('boss', 'hidden-password') });
my $api = '/api/v1';

# ---------- arguments ----------

my $deep = '[' x 10_000 . ']' x 10_000;
my $id = $node->safe_psql('postgres', "SELECT jobq.enqueue('pull')");
sub job { return qq({"job_type": "pull", $_[0]}); }
sub type { return qq({"name": "t", $_[0]}); }

# A cursor with the mark of its list without a filter.
sub cursor
{
	my ($list, $key) = @_;
	my $hash = 2166136261;

	$hash = (($hash ^ $_) * 16777619) & 0xffffffff foreach unpack('C*', "$list\0");
	return sprintf '%s?cursor=%s_%08x', $list, $key, $hash;
}
my @bad = (
	[ 'a cursor of another filter', 'GET', cursor("$api/jobs", $id) . '&job_type=pull', undef, '400 cursor' ],
	[ 'a cursor of another list', 'GET', cursor("$api/jobs", $id) =~ s/jobs/runs/r, undef, '400 cursor' ],
	[ 'a cursor without a mark', 'GET', "$api/jobs?cursor=$id", undef, '400 cursor' ],
	[ 'an unknown parameter', 'GET', "$api/jobs?statu=x", undef, '400 statu' ],
	[ 'an unknown member', 'POST', "$api/jobs", job('"prioritty": 1'), '400 prioritty' ],
	[ 'a word that is none of the list', 'GET', "$api/jobs?status=late", undef, '400 status 22P02' ],
	[ 'a wait below zero', 'POST', "$api/claim", '{"job_types": ["pull"], "wait": "-1 s"}', '400 wait 22003' ],
	[ 'an unknown status of a bulk action', 'POST', "$api/bulk", '{"action": "cancel", "filter": {"job_type": "pull", "status": "late"}}', '400 filter 22P02' ],
	[ 'a status alone', 'POST', "$api/bulk", '{"action": "cancel", "filter": {"status": "retry"}}', '400 filter' ],
	[ 'an unknown level', 'GET', "$api/events?level=warn", undef, '400 level' ],
	[ 'an unknown severity', 'GET', "$api/alerts?severity=low", undef, '400 severity' ],
	[ 'an unknown status of schedules', 'GET', "$api/schedules?status=active,paused", undef, '400 status' ],
	[ 'an unknown action', 'POST', "$api/bulk", '{"action": "cance", "filter": {"job_type": "pull"}}', '400 action' ],
	[ 'such a word in a body', 'POST', "$api/jobs", job('"on_conflict": "late"'), '400 on_conflict 22023' ],
	[ 'no UUID', 'GET', "$api/jobs/x", undef, '400 id' ],
	[ 'a UUID that is too long', 'GET', "$api/jobs/${id}0", undef, '400 id' ],
	[ 'no UUID in an array', 'POST', "$api/jobs", job('"after": ["x"]'), '400 after' ],
	[ 'a number in an array of UUIDs', 'POST', "$api/jobs", job('"after": [1]'), '400 after' ],
	[ 'a number in an array of texts', 'POST', "$api/claim", '{"job_types": [1]}', '400 job_types' ],
	[ 'a cursor of jobs for events', 'GET', cursor("$api/events", "$id"), undef, '400 cursor 22P02' ],
	[ 'a cursor of events for jobs', 'GET', cursor("$api/jobs", "1.1"), undef, '400 cursor 22P02' ],
	[ 'a cursor of jobs for types', 'GET', cursor("$api/types", "$id"), undef, '400 cursor 22P02' ],
	[ 'a cursor of jobs for limits', 'GET', cursor("$api/limits", "$id"), undef, '400 cursor 22023' ],
	[ 'a cursor that is no text', 'GET', cursor("$api/limits", "ff"), undef, '400 cursor 22021' ],
	[ 'a cursor beyond all times', 'GET', cursor("$api/events", "9223372036854775807.1"), undef, '400 cursor 22008' ],
	[ 'NaN', 'POST', "$api/types", type('"backoff_jitter": NaN'), '400 backoff_jitter' ],
	[ 'NaN as text', 'POST', "$api/types", type('"backoff_jitter": "NaN"'), '400 backoff_jitter' ],
	[ 'a number beyond double', 'POST', "$api/types", type('"backoff_jitter": 1e400'), '400 backoff_jitter' ],
	[ 'NaN in a payload', 'POST', "$api/jobs", job('"payload": {"a": NaN}'), '400 payload' ],
	[ '2^31', 'POST', "$api/jobs", job('"priority": 2147483648'), '400 priority' ],
	[ '2^63', 'PUT', "$api/tenants/x", '{"max_live": 9223372036854775808}', '400 max_live' ],
	[ '-2^63 - 1', 'PUT', "$api/tenants/x", '{"max_live": -9223372036854775809}', '400 max_live' ],
	[ '2^63 for a page', 'GET', "$api/jobs?limit=9223372036854775808", undef, '400 limit' ],
	[ '2^63 for an offset', 'GET', '/admin/jobs?offset=9223372036854775808', undef, '400 offset' ],
	[ 'no interval', 'POST', "$api/jobs", job('"delay": "soon"'), '400 delay 22007' ],
	[ 'no time', 'POST', "$api/jobs", job('"scheduled_for": "2026-02-30"'), '400 scheduled_for 22008' ],
	[ 'no time in a query', 'GET', "$api/events?since=soon", undef, '400 since 22007' ],
	[ 'no interval of a claim', 'POST', "$api/claim", '{"job_types": ["pull"], "lease": "soon"}', '400 lease 22007' ],
	[ 'no function', 'POST', "$api/types", type('"handler": "public.none(jsonb)"'), '404 handler 42883' ],
	[ 'no name of a function', 'POST', "$api/types", type('"handler": "none("'), '400 handler 22P02' ],
	[ 'no role', 'POST', "$api/types", type('"handler": "pg_catalog.now()", "run_as": "nobody_here"'), '404 run_as 42704' ],
	[ 'a zero byte in a query', 'GET', "$api/jobs?job_type=a%00b", undef, '400 job_type' ],
	[ 'a zero byte in a body', 'POST', "$api/jobs", job('"payload": "\u0000"'), '400 payload' ],
	[ 'bad UTF-8 in a query', 'GET', "$api/jobs?job_type=%ff", undef, '400 job_type' ],
	[ 'a broken escape', 'GET', "$api/jobs?job_type=%f", undef, '400 job_type' ],
	[ 'a parameter twice', 'GET', "$api/jobs?job_type=a&job_type=b", undef, '400 job_type' ],
	[ 'bad UTF-8 in a body', 'POST', "$api/jobs", job("\"payload\": {\"a\": \"\xff\"}"), '400 payload' ],
	[ 'half a surrogate pair', 'POST', "$api/jobs", job('"tenant": "\ud800"'), '400 tenant' ],
	[ 'a depth of 10,000', 'POST', "$api/jobs", job("\"payload\": $deep"), '400 payload' ],
	[ 'a depth of 10,000 that does not end', 'POST', "$api/jobs", '{"payload": ' . '{"a":' x 10_000, '400 payload' ],
	[ 'a depth of 70 in a query', 'GET', "$api/jobs?payload_contains=" . '%5B' x 70 . '%5D' x 70, undef, '400 payload_contains' ],
	[ 'a filter of a bulk action that is no filter', 'POST', "$api/bulk", '{"action": "cancel", "filter": {"job_type": "x", "include_running": "maybe"}}', '400 filter 22P02' ],
	[ 'an unknown type in such a filter', 'POST', "$api/bulk", '{"action": "cancel", "filter": {"job_type": "x"}}', '404 filter 42704' ],
	[ 'an unknown key in such a filter', 'POST', "$api/bulk", '{"action": "cancel", "filter": {"job_typ": "x"}}', '400 filter' ],
	[ 'runs of an unknown workflow', 'GET', "$api/runs?workflow=x", undef, '404 42704' ],
	[ 'runs of a type that is none', 'GET', "$api/runs?workflow=pull", undef, '404 42704' ],
	[ 'a cursor of jobs for the audit', 'GET', cursor("$api/audit", "$id"), undef, '400 cursor 22P02' ],
	[ 'a cursor of events for runs', 'GET', cursor("$api/runs", "1.1"), undef, '400 cursor 22P02' ],
	[ 'a broken body', 'POST', "$api/jobs", '{"job_type": "pull"', '400' ],
	[ 'a broken name', 'POST', "$api/jobs", '{"job_ty', '400' ],
	[ 'text behind a body', 'POST', "$api/jobs", '{"job_type": "pull"} x', '400' ],
);
foreach (@bad)
{
	my ($what, $method, $path, $body, $expected) = @$_;
	my ($status, $answer) = ask($web, $method, $path, %boss, body => $body);
	my $found = join ' ', $status, grep { defined } ref $answer ? ($answer->{argument}, $answer->{sqlstate}) : ();

	is($found, $expected, "$what: $expected") or diag(ref $answer ? encode_json($answer) : $answer);
}
is($node->safe_psql('postgres', 'SELECT count(*) FROM jobq.jobs'), 1, 'none of them has enqueued a job');
my ($status, $answer) = ask($web, 'POST', "$api/jobs/00000000-0000-7000-8000-000000000000/rerun", %boss);
is($status, 404, 'an unknown job is not rerun');
is(status_of($web, 'POST', "$api/jobs/$id/rerun", %boss), 409, 'nor one that waits');
is(status_of($web, 'POST', "$api/claim", %boss, body => {}), 200, 'a claim without job_types is one of all pull types');

# ---------- methods and paths ----------

my @paths = (
	[ 'GET', "$api/types/%2e%2e", 404 ], [ 'GET', "$api/types/../jobs", 404 ], [ 'GET', "$api/%2e%2e/%2e%2e/etc/passwd", 404 ],
	[ 'GET', "$api/types/%00", 404 ], [ 'DELETE', "$api/signals/%00", 404 ], [ 'GET', "$api/types/%ff", 404 ], [ 'GET', "$api/types/%", 404 ],
	[ 'GET', "$api//jobs", 404 ], [ 'GET', "$api/jobs/", 404 ], [ 'GET', '/assets/%2e%2e%2fweb.conf', 404 ], [ 'GET', '/assets/../index.html', 404 ],
	[ 'OPTIONS', "$api/jobs", 405 ], [ 'OPTIONS', '/nothing', 404 ], [ 'TRACE', "$api/jobs", 405 ], [ 'DELETE', "$api/jobs", 405 ],
	[ 'HEAD', "$api/jobs", 200 ], [ 'HEAD', "$api/nothing", 404 ], [ 'HEAD', "$api/stop", 405 ],
);
foreach (@paths)
{
	my ($method, $path, $expected) = @$_;
	my ($found, $body, $headers) = ask($web, $method, $path, %boss);

	is($found, $expected, "$method $path: $expected") or diag $body;
	is($headers->{allow}, $path =~ /stop/ ? 'POST' : 'GET, POST', 'with the methods that it has') if $expected == 405;
	is($body // '', '', 'without a body') if $method eq 'HEAD';
}

# ---------- logs ----------

my $secret = 'hidden-payload';
($status, $answer, my $headers) = ask($web, 'POST', "$api/session", body => { user => 'boss', password => 'hidden-password' });
my ($token) = $headers->{'set-cookie'} =~ /=([^;]+)/;
my %session = (headers => { Cookie => "__Host-jobq=$token", Origin => "http://127.0.0.1:$web->{port}", 'X-Csrf-Token' => $answer->{csrf} });
is(status_of($web, 'POST', "$api/jobs", %session, body => { job_type => 'pull', payload => { a => $secret }, @$_ }), $_->[1] eq 'x' ? 400 : 200, 'a payload')
  foreach [ tenant => 'a' ], [ delay => 'x' ], [ on_conflict => 'x' ];
ask($web, 'POST', "$api/jobs", %session, body => qq({"job_type": "pull", "payload": {"a": "$secret", "b": NaN}}));
ask($web, 'GET', "$api/jobs?payload_contains=%7B%22a%22:%22$secret%22%7D&limit=x", %session);
ask($web, 'GET', "$api/jobs?payload_contains=%7B%22a%22:%22$secret%22%7D", %session);
my ($lease) = @{ (ask($web, 'POST', "$api/claim", %session, body => { job_types => ['pull'], wait => '5 s' }))[1]{items} };
is(status_of($web, 'POST', "$api/jobs/$lease->{id}/complete", %session, body => { lease_token => $lease->{lease_token}, result => { r => $secret } }), 200, 'a lease');
is(status_of($web, 'POST', "$api/jobs/$lease->{id}/complete", %session, body => { lease_token => $lease->{lease_token} }), 409, 'and its end');
is(status_of($web, 'POST', "$api/session", body => { user => 'boss', password => 'hidden-password-2' }), 401, 'a wrong password');
is(status_of($web, 'POST', "$api/session", body => qq({"user": "boss", "password": "hidden-password", "x": 1})), 400, 'an unknown member of a sign-in');
my %secrets = ('a password' => 'hidden-password', 'a payload' => $secret, 'the token of a session' => $token, 'its second token' => $answer->{csrf},
	'a lease token' => $lease->{lease_token}, 'Basic' => { basic('boss', 'hidden-password') }->{Authorization} =~ s/^Basic //r);
# the role's password is in the statement that made it, which the superuser may log
my %logs = ('jobq-web' => web_log($web), 'the server' => slurp_file($node->logfile) =~ s/^.*CREATE ROLE boss.*$//mr);
foreach my $log (sort keys %logs)
{
	cmp_ok(length $logs{$log}, '>', 100, "$log has a log");
	is(index($logs{$log}, $secrets{$_}), -1, "$_ is not in it") foreach sort keys %secrets;
}

is(stop_web($web), 0, 'it ends');
done_testing();
