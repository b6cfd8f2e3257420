# ALTER EXTENSION UPDATE to an artificial next version, and back: a waiting claim ends, the update
# waits for an open one, and live leases go on. Between the two the library and the SQL differ, as
# between a restart with a new library and the update.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use UpgradeTest;

my $stage = stage_release();
my $now = new_version();
my $next = $now =~ s/(\d+)$/$1 + 1/er;
install_new($stage);
my $scripts = (directories_of($stage))[1] . '/extension';
append_to_file("$scripts/jobq--$now--$next.sql", "LOCK TABLE jobq.queue;\n");
append_to_file("$scripts/jobq--$next--$now.sql", "LOCK TABLE jobq.queue;\n");

my $node = upgrade_server('claims', $stage, 'fsync = off');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
SELECT jobq.create_job_type('mail', timeout => '0'), jobq.create_job_type('other');
CREATE TABLE held (name text PRIMARY KEY, id uuid, token uuid);
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub one { return $node->safe_psql('postgres', $_[0]); }
sub call { my ($function, $name, $more) = @_; return one("SELECT jobq.$function(id, token" . ($more // '') . ") FROM held WHERE name = '$name'"); }

sub take
{
	my ($session, $name, $lease) = @_;

	one(qq{SELECT jobq.enqueue('mail', '{"name": "$name"}')});
	return is($session->query_safe("INSERT INTO held SELECT payload->>'name', id, lease_token FROM jobq.claim('{mail}', lease => '$lease'); SELECT count(*) FROM held WHERE name = '$name'"),
		1, "$name is claimed");
}

my ($client, $open, $waits, $update) = map { $node->background_psql('postgres', on_error_stop => 0) } 1 .. 4;
take($client, 'kept', '1h');
take($client, 'ends', '2s');
take($client, 'cancelled', '1h');
$open->query_safe('BEGIN');
take($open, 'open', '1h');
one(q{SELECT jobq.enqueue('mail', '{"name": "later"}', delay => '1h')});
$waits->{stdin} .= "SELECT count(*) FROM jobq.claim(NULL, wait => '20s');\n\\echo over :SQLSTATE\n";
$waits->{run}->pump_nb;
wait_for_sql($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE '%wait => %' AND wait_event_type = 'Extension'}, 'a claim waits');

$update->{stdin} .= "ALTER EXTENSION jobq UPDATE TO '$next';\n\\echo updated :SQLSTATE\n";
$update->{run}->pump_nb;
like($waits->query_until(qr/over \w+/, ''), qr/over 55000/, 'the update ends the waiting claim');
wait_for_sql($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE 'ALTER EXTENSION%' AND wait_event_type = 'Lock'}, 'and waits for the open one');
is($client->query(q{SET lock_timeout = '50ms'; SELECT jobq.heartbeat(id, token) FROM held WHERE name = 'kept'}), '', 'calls wait behind it');
like($client->{stderr}, qr/lock timeout/, 'for its lock');
$client->{stderr} = '';
$open->query_safe('COMMIT');
like($update->query_until(qr/updated \w+/, ''), qr/updated 00000/, 'the open claim commits, the update ends');
is(one('SELECT jobq.version()'), $next, "the extension is $next");

# --- library and SQL differ

sqlstate_is($node, 'postgres', $_, '55000', "refused: $_") foreach q{SELECT FROM jobq.claim('{mail}')}, q{SELECT jobq.heartbeat(id, token) FROM held WHERE name = 'kept'},
  q{SELECT jobq.complete(id, token) FROM held WHERE name = 'open'}, q{SELECT jobq.fail_many(array_agg(id), array_agg(token), 'x') FROM held};
wait_for_sql($node, q{SELECT jobq.health() #>> '{checks,queues,message}' LIKE 'no job runs: the library is jobq%'}, 'no job runs');
is(one(q{SELECT count(*) FROM jobq.queue WHERE status = 'running' AND attempts = 1}), 4, 'the leases are there');
wait_for_sql($node, q{SELECT lease_expires_at < clock_timestamp() FROM jobq.queue JOIN held USING (id) WHERE name = 'ends'}, 'one is over');

# --- back

one("ALTER EXTENSION jobq UPDATE TO '$now'");
is(one('SELECT jobq.version()'), $now, "the extension is $now");
is(call('heartbeat', $_), 'ok', "$_: the lease goes on") foreach 'kept', 'open';
is(call('complete', 'kept'), 't', 'kept: its end');
is(one("SELECT count(*) FROM (SELECT jobq.complete_many(ARRAY[id], ARRAY[token]) FROM held WHERE name = 'open') x"), 1, 'open: its end');
is(one(q{SELECT jobq.cancel_job(id) FROM held WHERE name = 'cancelled'}), 't', 'a cancel');
is(call('heartbeat', 'cancelled'), 'cancel', 'of which the client hears');
is(call('fail', 'cancelled', q{, 'stopped'}), 'error', 'and ends the attempt');
wait_for_sql($node, q{SELECT status = 'retry' AND error_code = 'lease_expired' FROM jobq.jobs JOIN held USING (id) WHERE name = 'ends'}, 'a lease that was over ends its attempt');
is(one(q{SELECT string_agg(concat_ws(' ', name, status, attempts), ', ' ORDER BY name) FROM jobq.jobs JOIN held USING (id)}),
	'cancelled cancelled 1, ends retry 1, kept completed 1, open completed 1', '!each job once');
is($client->query(q{RESET lock_timeout; SELECT jobq.enqueue('other') IS NOT NULL}), 't', 'a session of before the update');
is($waits->query(q{SELECT job_type FROM jobq.claim(NULL, wait => '10s')}), 'other', 'and the one whose wait has ended');
$_->quit foreach $client, $open, $waits, $update;
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|signal 11/, 'no crash');
done_testing();
