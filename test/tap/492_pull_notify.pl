# The channel of a pull type: notified at once, then coalesced, and only while
# a listener could claim a job.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use Time::HiRes 'time';

my $node = jobq_server('notify', 'max_connections = 40', 'fsync = off', "jobq.sweep_interval = '300ms'", "jobq.notify_interval = '2s'");
# The smallest queue that the server allows: the last part fills it.
my $small = $node->pg_version >= 17;
$node->append_conf('postgresql.conf', 'max_notify_queue_pages = 64') if $small;
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
SELECT jobq.create_job_type('mail'), jobq.create_job_type('narrow', max_concurrent => 1),
  jobq.create_job_type('batch', options => '{"min_batch": {"jobs": 5, "wait": "1h"}}'), jobq.create_job_type('tenants');
SELECT jobq.set_limit('paced');
SELECT jobq.create_job_type('heavy', cpu_weight => 3), jobq.create_job_type('rated', options => '{"limits": ["paced"]}'),
  jobq.create_job_type('other', cpu_weight => 2), jobq.create_job_type('pacer', options => '{"limits": ["paced"]}'),
  jobq.create_job_type('light'), jobq.create_job_type('keyed'), jobq.create_job_type('owned');
CREATE ROLE worker LOGIN;
SELECT jobq.grant_access('worker', 'work', 'acme', '{tenants}');
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub one { return $node->safe_psql('postgres', $_[0]); }

sub enqueue { return one("SELECT jobq.enqueue('$_[0]')"); }

sub claims { return one("SELECT count(*) FROM jobq.claim('{$_[0]}', " . ($_[1] // 1) . ')'); }

sub complete_all { return one('SELECT count(jobq.complete(id, lease_token)) FROM jobq.queue WHERE lease_token IS NOT NULL'); }

sub set
{
	my ($name, $value) = @_;

	one("ALTER SYSTEM SET $name = '$value'");
	$node->reload;
	return wait_for_sql($node, "SELECT current_setting('$name') = '$value'", "$name is $value");
}

my $listener = $node->background_psql('postgres');
$listener->query_safe("LISTEN jobq_$_") foreach qw(mail narrow batch tenants heavy rated keyed owned);
$listener->query_safe('LISTEN barrier');
my $unread = '';

sub count_of { return scalar(() = $unread =~ /Asynchronous notification "jobq_$_[0]" received/g); }

# Waits for a notification of the type; forgets all that have come.  Returns its time.
sub heard
{
	my ($type, $what) = @_;

	foreach (1 .. 50 * $PostgreSQL::Test::Utils::timeout_default)
	{
		$unread .= $listener->query('SELECT 1');
		last if count_of($type) > 0;
		Time::HiRes::usleep(20_000);
	}
	ok(count_of($type) > 0, $what);
	$unread = '';
	return time;
}

# The number of notifications of the type since the last heard, all that were sent before included.
sub number
{
	my ($type) = @_;

	one('SELECT jobq.health()');	# the dispatcher has ended a turn
	one('NOTIFY barrier');
	foreach (1 .. 50 * $PostgreSQL::Test::Utils::timeout_default)
	{
		last if $unread =~ /"barrier"/;
		$unread .= $listener->query('SELECT 1');
	}
	my $n = $unread =~ /"barrier"/ ? count_of($type) : -1;

	$unread = '';
	return $n;
}

# Ends all jobs; later notifications are not of these, and are not kept back by former ones.
sub restore
{
	foreach (1 .. 100)
	{
		one(q{SELECT count(*) FROM jobq.claim('{mail,narrow,batch,tenants,heavy,rated,other,pacer,light,keyed,owned}', 100)});
		complete_all();
		last if one('SELECT NOT EXISTS (SELECT FROM jobq.queue)') eq 't';
	}
	is(one('SELECT count(*) FROM jobq.queue'), 0, 'all jobs have ended');
	one('SELECT pg_sleep(2.1)');
	return number('mail');
}

# ---------- coalesced ----------

my $begun = time;
enqueue('mail');
my $first = heard('mail', 'the first notification');
cmp_ok($first - $begun, '<', 1.9, 'comes at once');
is(claims('mail'), 1, 'the job is claimed');
foreach (1 .. 30)
{
	enqueue('mail');
	claims('mail');		# as many as it asked for: it may be the last one or not
}
my $n = number('mail');
cmp_ok($n, '<=', (time - $begun) / 2 + 1, "30 jobs within the interval: $n notifications");
enqueue('mail');
my $second = heard('mail', 'a job at the interval has its notification');
cmp_ok($second - $begun, '>', 2, 'when the interval is over');
restore();

# An empty claim: the next job is notified early.  Many: they are a crowd.
set('jobq.notify_interval', '20s');
enqueue('mail');
heard('mail', 'a notification');
is(claims('mail', 2), 1, 'a claim finds fewer jobs than it asks for');
$begun = time;
enqueue('mail');
cmp_ok(heard('mail', 'the next job') - $begun, '<', 15, 'is notified before the interval is over');
set('jobq.notify_interval', '3s');
restore();
$begun = time;
enqueue('mail');
heard('mail', 'a notification');
is(claims('mail', 100), 1, 'the job is claimed');
claims('mail') foreach 1 .. 8;
enqueue('mail');
cmp_ok(heard('mail', 'the next job') - $begun, '>', 3, 'after the empty claims of a crowd waits for the interval');
set('jobq.notify_interval', '2s');
restore();

enqueue('mail');
my $text = '';
foreach (1 .. 50 * $PostgreSQL::Test::Utils::timeout_default)
{
	$text .= $listener->query('SELECT 1');
	last if $text =~ /jobq_mail/;
	Time::HiRes::usleep(20_000);
}
like($text, qr/notification "jobq_mail" received from server process/, 'the payload is empty');

# ---------- nothing new ----------

one('SELECT pg_sleep(4)');
is(number('mail'), 0, 'sweeps notify nothing of a job that waits');
restore();
one(q{SELECT jobq.enqueue('batch') FROM generate_series(1, 3)});
heard('batch', 'jobs of a type with batches');
is(claims('batch', 10), 0, 'are too few');
one('SELECT pg_sleep(4)');
is(number('batch'), 0, 'sweeps notify nothing of them');
one(q{SELECT jobq.enqueue('batch') FROM generate_series(1, 2)});
heard('batch', 'a full batch');
restore();
one(q{BEGIN; SELECT jobq.enqueue('mail'); ROLLBACK});
is(number('mail'), 0, 'nor is anything after a rollback');

# ---------- a waiting claim ----------

my $waiter = $node->background_psql('postgres', on_error_stop => 0);

sub begin_wait
{
	my ($type) = @_;

	$waiter->{stdin} .= "SELECT 'got ' || count(*) FROM jobq.claim('{$type}', wait => '20s');\n";
	$waiter->{run}->pump_nb;
	return wait_for_sql($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE 'SELECT ''got%' AND state = 'active' AND wait_event_type = 'Extension'},
		'a claim waits');
}

begin_wait('mail');
enqueue('mail');
like($waiter->query_until(qr/got \d/, ''), qr/got 1/, 'it gets the job');
is(number('mail'), 0, 'and its type is not notified');
restore();
$waiter->query_safe('SET ROLE worker');
begin_wait('tenants');
one(q{SELECT jobq.enqueue('tenants', tenant => 'other')});
heard('tenants', 'a job of a tenant that the waiting claim may not work');
one(q{SELECT jobq.enqueue('tenants', tenant => 'acme')});
like($waiter->query_until(qr/got \d/, ''), qr/got 1/, 'its own tenant\'s job goes to it');
restore();

# ---------- nothing may start ----------

# Jobs that arrive while nothing may start, and one that arrived before and
# whose notification is due then.
sub keeps_quiet
{
	my ($type, $stop, $start, $what) = @_;

	enqueue($type);
	heard($type, "$what: a job");
	claims($type);
	enqueue($type);
	one($stop);
	enqueue($type);
	one('SELECT pg_sleep(2.5)');
	is(number($type), 0, "$what: nothing is notified");
	one($start);
	heard($type, "$what: notified after the end of it");
	return restore();
}
keeps_quiet('mail', q{SELECT jobq.pause_job_type('mail')}, q{SELECT jobq.resume_job_type('mail')}, 'a paused type');
keeps_quiet('mail', q{SELECT jobq.stop_all('a test')}, q{SELECT jobq.start_all()}, 'all is stopped');
keeps_quiet('narrow', 'SELECT 1', 'SELECT jobq.complete(id, lease_token) FROM jobq.queue WHERE lease_token IS NOT NULL', 'a full limit');
keeps_quiet('mail', q{SELECT jobq.alter_job_type('mail', max_concurrent => 1)}, q{SELECT jobq.alter_job_type('mail', max_concurrent => 10)},
	'a limit that is set below');

# A limit that a job of another type fills: while the notification of a job
# that has come before waits for the interval, and before the next one comes.
sub keeps_quiet_while_full
{
	my ($type, $filler, $options, $free, $what) = @_;

	one("SELECT jobq.enqueue('$type'$options)");
	heard($type, "$what: a job");
	is(claims($type), 1, "$what: it is claimed");
	one("SELECT jobq.enqueue('$type'$options)");	# its notification waits for the interval
	complete_all();
	one("SELECT jobq.enqueue('$filler'$options)");
	is(claims($filler), 1, "$what: a job of another type fills the limit");
	one("SELECT jobq.enqueue('$type'$options)") foreach 1 .. 2;
	is(claims($type), 0, "$what: a claim gets nothing");
	one('SELECT pg_sleep(2.5)');
	is(number($type), 0, "$what: nothing is notified while it is full");
	one("SELECT jobq.enqueue('$type'$options)");
	one(q{SELECT jobq.enqueue('light')});
	is(claims('light'), 1, "$what: a job without the limit starts");
	one(q{SELECT jobq.complete(q.id, lease_token) FROM jobq.queue q JOIN jobq.jobs j USING (id) WHERE j.status = 'running' AND j.job_type = 'light'});
	one('SELECT pg_sleep(2.1)');
	is(number($type), 0, "$what: nor of a job that comes then, or when another one ends");
	one($free);
	heard($type, "$what: notified when it has room");
	is(number($type), 0, "$what: once");
	is(claims($type), 1, "$what: a claim gets a job then");
	one(q{SELECT jobq.set_limit('paced')});
	return restore();
}
set('jobq.max_weight', '4');
keeps_quiet_while_full('heavy', 'other', '', q{SELECT jobq.complete(id, lease_token) FROM jobq.queue WHERE lease_token IS NOT NULL}, 'weight');
set('jobq.max_weight', '0');
one(q{SELECT jobq.set_limit('paced', rate_limit => 2, rate_window => '1h')});
keeps_quiet_while_full('rated', 'pacer', '', q{SELECT jobq.set_limit('paced', rate_limit => 2, rate_window => '1s')}, 'a rate');
keeps_quiet_while_full('keyed', 'other', q{, concurrency_key => 'k'}, q{SELECT jobq.complete(id, lease_token) FROM jobq.queue WHERE lease_token IS NOT NULL},
	'a concurrency key');
one(q{SELECT jobq.set_tenant_quota('acme', max_running => 1)});
keeps_quiet_while_full('owned', 'other', q{, tenant => 'acme'}, q{SELECT jobq.complete(id, lease_token) FROM jobq.queue WHERE lease_token IS NOT NULL},
	'a tenant');

# ---------- cancel ----------

my $job = enqueue('mail');
heard('mail', 'a job');
is(claims('mail'), 1, 'is claimed');
one('SELECT pg_sleep(2.1)');
is(number('mail'), 0, 'no notification');
one("SELECT jobq.cancel_job('$job')");
heard('mail', 'its cancel is notified');
is(one('SELECT jobq.heartbeat(id, lease_token) FROM jobq.queue'), 'cancel', 'the heartbeat says so');
one("SELECT jobq.fail(id, lease_token, 'stopped') FROM jobq.queue");
restore();

# A cancelled job leaves its place in memory to the next one.
$job = enqueue('mail');
heard('mail', 'a job');
one("SELECT jobq.cancel_job('$job')");
enqueue('mail');
heard('mail', 'a job behind one that was cancelled while it waited');
restore();

# ---------- another dispatcher ----------

enqueue('mail');
heard('mail', 'a job waits');
my $former = dispatcher($node, 'postgres');
one("SELECT pg_terminate_backend($former)");
wait_dispatcher($node, 'postgres', 'another dispatcher', $former);
heard('mail', 'notifies of the jobs that wait');
restore();

# A type that is dropped before its notification is due keeps no dispatcher awake.
one(q{SELECT jobq.create_job_type('brief')});
enqueue('brief');
is(claims('brief'), 1, 'a job of another type');
complete_all();
enqueue('brief');
one(q{SELECT jobq.cancel_job(id) FROM jobq.queue});
wait_for_sql($node, 'SELECT NOT EXISTS (SELECT FROM jobq.queue)', 'its job is cancelled');
one(q{SELECT jobq.drop_job_type('brief')});
my $dispatcher = dispatcher($node, 'postgres');
one('SELECT pg_sleep(2.5)');

sub turns { return slurp_file("/proc/$dispatcher/stat") =~ /\) \S (?:\S+ ){10}(\d+) (\d+)/ ? $1 + $2 : -1; }
my $ticks = turns();
one('SELECT pg_sleep(2)');
cmp_ok(turns() - $ticks, '<', 50, 'a dropped type: the dispatcher sleeps');

# ---------- a listener that does not read ----------

SKIP:
{
	skip 'the queue of notifications of this release has 8 GB', 6 if !$small;
	my $stuck = $node->background_psql('postgres', on_error_stop => 0);

	$stuck->query_safe('LISTEN elsewhere');
	$stuck->query_safe('BEGIN');
	one(q{SELECT pg_notify('elsewhere', repeat(n::text, 7000 / length(n::text))) FROM generate_series(1000, 1039) n});
	is(one(q{SELECT pg_notification_queue_usage() > 0.5}), 't', 'the queue is over half full');
	is(one(q{SELECT c->>'status', c->>'message' FROM jobq.health() h, jsonb_path_query(h, '$.checks.notify_queue') c}),
		'degraded|a session that listens does not read its notifications; jobq sends none meanwhile', 'health() says so');
	enqueue('mail');
	one('SELECT pg_sleep(2.5)');
	is(number('mail'), 0, 'no notification is sent');
	is(claims('mail'), 1, 'a claim that polls gets the job');
	enqueue('mail');
	$stuck->query_safe('COMMIT');
	heard('mail', 'notifications go on when it has read');
	is(one(q{SELECT jobq.health()->'checks'->'notify_queue'->>'status'}), 'healthy', 'the queue is well');
	$stuck->quit;
}
$_->quit foreach $listener, $waiter;
done_testing();
