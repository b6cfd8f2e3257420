# health(): due jobs of a pull type that no worker claims. The monotonic clock is set.

use strict;
use warnings;

use ClockTest;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my %faked = fake_clock('-DFAKE_MONOTONIC');
my $offset = 0;
my $node = jobq_server('unclaimed', "jobq.sweep_interval = '50ms'", 'fsync = off');
{
	local %ENV = (%ENV, %faked);
	$node->start;
}
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
SELECT jobq.create_job_type(t, timeout => '0') FROM unnest('{mail,paused,late}'::text[]) t;
SELECT jobq.create_job_type('batch', options => '{"min_batch": {"jobs": 9, "wait": "1 day"}}', timeout => '0'), jobq.create_job_type('one', max_concurrent => 1, timeout => '0');
CREATE ROLE reader; CREATE ROLE few;
SELECT jobq.grant_access('reader', 'read'), jobq.grant_access('few', 'read', 'acme');
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub one { return $node->safe_psql('postgres', $_[0]); }

# Waits until the dispatcher has begun and ended a sweep: it has read a job that it was not told of.
sub sweeps
{
	foreach my $n (1 .. 2)
	{
		my $before = one('SELECT sum(turns) FROM (SELECT loops AS turns FROM jobq.stat_dispatcher) x');
		$node->poll_query_until('postgres', "SELECT sum(loops) > $before + 1 FROM jobq.stat_dispatcher") or die 'no sweep';
	}
	return;
}

sub later
{
	sweeps();
	$offset += $_[0];
	set_clock($offset);
	sweeps();
	return;
}

my $check = q{jobq.health() #>> '{checks,queues,status}' || ': ' || coalesce(jobq.health() #>> '{checks,queues,message}', '')};
sub queues { my ($role) = @_; return one(($role ? "SET ROLE $role; " : '') . "SELECT $check"); }

is(one(q{SELECT count(*) FROM jobq.enqueue_many('one', array_fill('{}'::jsonb, '{2}'))}), 2, 'two jobs');
is(one(q{SELECT count(*) FROM jobq.claim('{one}', 2, lease => '1h')}), 1, 'of which one is claimed, and the other waits for the limit');
one(q{SELECT jobq.enqueue('late', delay => '1h'), jobq.enqueue('batch'), jobq.enqueue('paused'), jobq.pause_job_type('paused', 'x')});
one(q{SELECT jobq.cancel_jobs('paused')});
one(q{SELECT count(*) FROM jobq.claim(NULL)});
later(61);
is(queues(), 'healthy: ', 'no due job waits for a claim alone');

one(q{SELECT jobq.enqueue('mail')});
later(50);
is(queues(), 'healthy: ', 'a job waits for less than a minute');
later(11);
my $all = 'degraded: due jobs of pull types wait that no worker has claimed for a minute';
is(queues(), qq{$all ("mail"): start a worker that may work them}, 'after a minute');
is(queues('reader'), qq{$all ("mail"): start a worker that may work them}, 'a role that reads all knows the type');
is(queues('few'), $all, 'another one no name');
one(q{SELECT jobq.stop_all('x')});
sweeps();
unlike(queues(), qr/claimed/, 'stopped: that is the reason');
one(q{SELECT jobq.start_all()});
sweeps();
is(queues(), 'healthy: ', 'the minute begins when jobs may start again');
later(61);
is(queues(), qq{$all ("mail"): start a worker that may work them}, 'and ends');
one(q{SELECT jobq.pause_job_type('mail', 'x')});
sweeps();
unlike(queues(), qr/claimed/, 'a paused type');
one(q{SELECT jobq.enqueue('late')});
later(61);
is(queues(), qq{degraded: jobs of paused types wait ("mail"): jobq.resume_job_type() lets them run; due jobs of pull types wait that no worker has claimed for a minute ("late"): start a worker that may work them},
	'one cause does not hide another');
one(q{SELECT jobq.cancel_jobs('late')});
sweeps();
one(q{SELECT jobq.resume_job_type('mail')});
later(61);
is(queues(), qq{$all ("mail"): start a worker that may work them}, 'it is resumed');
one(q{ALTER SYSTEM SET jobq.max_concurrent = 1; SELECT pg_reload_conf()});
wait_for_sql($node, "SELECT $check = 'healthy: '", 'no room under jobq.max_concurrent');
one(q{ALTER SYSTEM RESET jobq.max_concurrent; SELECT pg_reload_conf()});
later(61);
wait_for_sql($node, qq{SELECT $check LIKE '%"mail"%'}, 'there is room again');

is(one(q{SELECT count(*) FROM jobq.claim('{mail}', lease => '1h')}), 1, 'a worker claims');
sweeps();
is(queues(), 'healthy: ', 'healthy');
one(q{SELECT jobq.enqueue('mail') FROM generate_series(1, 2)});
later(40);
is(one(q{SELECT count(*) FROM jobq.claim('{mail}', lease => '1h')}), 1, 'a claim takes one of two jobs');
later(40);
is(queues(), 'healthy: ', 'the minute begins with a claim');
later(21);
is(queues(), qq{$all ("mail"): start a worker that may work them}, 'no further one has come');
one(q{SELECT jobq.cancel_jobs('mail')});
sweeps();
is(queues(), 'healthy: ', 'no job waits');

# A tenant that no claim may work: the claims of others are no reason not to say so.
one(q{CREATE ROLE theirs; GRANT theirs TO postgres; SELECT jobq.grant_access('theirs', 'work', tenant => 'theirs'); SELECT jobq.enqueue('mail', tenant => 'forgotten')});
one(q{SELECT jobq.enqueue('mail', tenant => 'theirs') FROM generate_series(1, 4)});
sub theirs { return is(one(q{SET ROLE theirs; SELECT count(*) FROM jobq.claim('{mail}', lease => '1h')}), 1, 'a worker of one tenant claims'); }
theirs();
wait_for_sql($node, q{SELECT held_by = 'no_worker' FROM jobq.stat_lanes WHERE job_type = 'mail'}, 'the other job is passed over');
theirs(), later(40) foreach 1, 2;
is(queues(), qq{$all ("mail"): start a worker that may work them}, 'the job of a tenant without a worker is named');
one(q{SELECT jobq.grant_access('theirs', 'work', tenant => 'forgotten')});
is(one(q{SET ROLE theirs; SELECT count(*) FROM jobq.claim('{mail}', 9, lease => '1h', wait => '10s') WHERE tenant = 'forgotten'}), 1, 'a worker may claim it');
sweeps();
is(queues(), 'healthy: ', 'and health() is healthy');
one(q{SELECT jobq.cancel_jobs('mail')});

# An older job of the lane, passed for its key, hides it no more than it keeps it listed.
one(q{SELECT jobq.create_job_type('keyed', timeout => '0')});
one(q{SELECT jobq.enqueue('keyed', tenant => 'theirs', concurrency_key => 'k') FROM generate_series(1, 2)});
is(one(q{SET ROLE theirs; SELECT count(*) FROM jobq.claim('{keyed}', 2, lease => '1h')}), 1, 'a job waits for its key');
one(q{SELECT jobq.enqueue('keyed', tenant => t) FROM unnest('{lost,theirs,theirs,theirs}'::text[]) t});
foreach (1 .. 3)
{
	is(one(q{SET ROLE theirs; SELECT count(*) FROM jobq.claim('{keyed}', lease => '1h', wait => '10s')}), 1, 'others pass it');
	later(40) if $_ < 3;
}
is(queues(), qq{$all ("keyed"): start a worker that may work them}, 'a later job of a tenant without a worker is named');
is(one(q{SELECT tenant FROM jobq.claim('{keyed}', 9, lease => '1h', wait => '10s')}), 'lost', 'a worker of all claims it');
sweeps();
is(queues(), 'healthy: ', 'the other waits for its key');
one(q{SELECT jobq.cancel_jobs('keyed')});

# more types than are listed
one(q{SELECT jobq.create_job_type('t' || n) FROM generate_series(1, 12) n; SELECT jobq.enqueue('t' || n) FROM generate_series(1, 12) n});
later(61);
like(queues(), qr/^\Q$all\E \(("t\d+", ){9}"t\d+" and 2 more\): start a worker that may work them$/, 'ten types are named');
done_testing();
