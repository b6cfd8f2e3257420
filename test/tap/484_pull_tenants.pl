# A role with access "work" to some tenants only: it gets their jobs and no
# others, whatever waits before them.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('tenants', 'max_connections = 40', 'fsync = off', 'jobq.max_concurrent = 5000');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE ROLE wa LOGIN; CREATE ROLE wb LOGIN; CREATE ROLE wnone LOGIN; CREATE ROLE wc LOGIN; CREATE ROLE wmany LOGIN; CREATE ROLE wall LOGIN; CREATE ROLE wtype LOGIN;
SELECT jobq.create_job_type('mail'), jobq.create_job_type('fair', options => '{"fair_by": "tenant"}'), jobq.create_job_type('keyed'),
  jobq.create_job_type('two', max_concurrent => 2),
  jobq.grant_access('wa', 'work', 'a'), jobq.grant_access('wb', 'work', 'b'), jobq.grant_access('wc', 'work', 'c'), jobq.grant_access('wnone', 'work', ''),
  jobq.grant_access('wall', 'work'), jobq.grant_access('wtype', 'work', 'a', '{mail}'),
  jobq.grant_access('wmany', 'work', 'a'), jobq.grant_access('wmany', 'work', 'c', '{mail}');
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub one { return $node->safe_psql('postgres', $_[0]); }

# Runs SQL as a role; returns the output, or the SQLSTATE.
sub as
{
	my ($role, $sql) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', $sql, extra_params => [ '-U', $role, '-v', 'VERBOSITY=sqlstate' ], on_error_stop => 1);

	return $rc == 0 ? $out : $err =~ /ERROR:\s+(\w{5})/ ? $1 : $err;
}

# The jobs that a claim of the role gets: tenant and number, in order.
sub claims
{
	my ($role, $types, $n, $wait) = @_;

	return as($role, sprintf(q{SELECT string_agg(coalesce(tenant, '-') || (payload->>'n'), ' ') FROM jobq.claim(%s, %d, wait => '%s')},
		$types, $n, $wait // '0'));
}

sub end_all { return one(q{SELECT count(jobq.complete(id, lease_token)) FROM jobq.queue WHERE status = 'running'}); }

sub enqueue
{
	my ($type, $tenant, $from, $to) = @_;

	return one("SELECT count(jobq.enqueue('$type', jsonb_build_object('n', n), tenant => '$tenant')) FROM generate_series($from, $to) n");
}

# ---------- whose jobs ----------

enqueue('mail', 'b', 1, 2);
one(q{SELECT jobq.enqueue('mail', '{"n": 3}')});
enqueue('mail', 'a', 4, 5);
enqueue('mail', 'a/x', 6, 6);
enqueue('mail', 'ab', 7, 7);
enqueue('mail', 'c', 8, 8);
is(claims('wa', q('{mail}'), 1), 'a4', 'a role of tenant a gets its oldest job, though older ones of others wait');
is(claims('wa', q('{mail}'), 100), 'a5 a/x6', 'then the others of a and of those below');
is(claims('wa', q('{mail}'), 100), '', 'and no more');
is(claims('wa', 'NULL', 100), '', 'NULL stands for its types');
is(claims('wnone', q('{mail}'), 100), '-3', 'a role for jobs without tenant gets those');
is(claims('wmany', q('{mail}'), 100), 'c8', 'a role with several grants');
is(claims('wall', q('{mail}'), 100), 'b1 b2 ab7', 'a role of all tenants gets what was passed over, in order');
is(as('wtype', q{SELECT FROM jobq.claim('{fair}')}), '42501', 'no claim of a type without a grant');
is(as('wtype', q{SELECT count(*) FROM jobq.claim(NULL)}), 0, 'NULL leaves it out');
end_all();

one(q{CREATE ROLE wlong LOGIN; SELECT jobq.grant_access('wlong', 'work', repeat(n::text, 200)) FROM generate_series(1, 9) n;
  SELECT jobq.grant_access('wlong', 'work', repeat('x', 200), '{mail}')});
is(claims('wlong', q('{fair}'), 1), '', 'a role with nine long tenants');
is(claims('wlong', q('{fair,two}'), 1), '54000', 'more tenants than a request holds');

# ---------- in turn, many ----------

enqueue('mail', 'b', 1, 20000);
enqueue('mail', 'c', 1, 2);
enqueue('mail', 'a', 1, 300);
enqueue('mail', 'b', 20001, 20010);
is(claims('wa', q('{mail}'), 2), 'a1 a2', 'behind 20,000 jobs of another tenant');
is(claims('wb', q('{mail}'), 3), 'b1 b2 b3', 'whose role gets the oldest of them');
my $finds = q{SELECT sum(sweep_finds) FROM jobq.stat_dispatcher};
my $before = one($finds);
is(claims('wa', q('{mail}'), 2), 'a3 a4', 'in turn');
# The lane's sweep brings back to memory what was passed over, from the oldest on.
wait_for_sql($node, "SELECT ($finds) > $before", 'the sweep finds jobs');
$before = one($finds);
is(claims('wa', q('{mail}'), 1), 'a5', 'older jobs of others in memory: its own are still found');
enqueue('mail', 'c', 3, 4);
is(claims('wc', q('{mail}'), 1), 'c1', 'so are those of a tenant that claims for the first time, the oldest first');
is(claims('wc', q('{mail}'), 9), 'c2 c3 c4', 'then the others');
wait_for_sql($node, "SELECT ($finds) > $before", 'the sweep finds jobs again');
is(claims('wall', q('{mail}'), 2), 'b4 b5', 'all tenants');
is(as('wa', q{SELECT count(*), count(DISTINCT tenant), min((payload->>'n')::int), max((payload->>'n')::int) FROM jobq.claim('{mail}', 1000)}), '295|1|6|300',
	'more than an answer holds');
is(claims('wb', q('{mail}'), 2), 'b6 b7', 'the other tenant goes on');
end_all();
one(q{SELECT jobq.purge_tenant('b')});

# ---------- waiting claims ----------

my %waiting = map { my $s = $node->background_psql('postgres', on_error_stop => 0, extra_params => [ '-U', $_ ]); ($_ => $s) } qw(wa wb);
foreach my $role (qw(wa wb))
{
	$waiting{$role}{stdin} .= "SELECT 'got ' || tenant FROM jobq.claim('{mail}', wait => '20s');\n\\echo over\n";
	$waiting{$role}{run}->pump_nb;
}
wait_for_sql($node, "SELECT count(*) = 2 FROM pg_stat_activity WHERE query LIKE 'SELECT ''got%' AND state = 'active' AND wait_event_type = 'Extension'", 'two claims wait');

# Voluntary switches of the dispatcher: each turn ends with one.
sub turns
{
	my ($pid) = jobq_pids($node, 'dispatcher');

	return slurp_file("/proc/$pid/status") =~ /^voluntary_ctxt_switches:\s+(\d+)/m ? $1 : -1;
}

enqueue('mail', 'c', 1, 5);
one(q{SELECT jobq.health()});
$before = turns();
is(one(q{SELECT pg_sleep(3)}), '', 'three seconds pass with jobs that no waiting claim may work');
cmp_ok(turns() - $before, '<', 60, 'the dispatcher does not spin');
enqueue('mail', 'b', 1, 1);
like($waiting{wb}->query_until(qr/over/, ''), qr/got b/, 'the job of b goes to the claim for b, the younger one');
enqueue('mail', 'a', 1, 1);
like($waiting{wa}->query_until(qr/over/, ''), qr/got a/, 'that of a to the other');
is(claims('wmany', q('{mail}'), 9), 'c1 c2 c3 c4 c5', 'those that were passed over wait for the role of their tenant');
end_all();

# A grant that is revoked while a claim waits.
$waiting{wa}{stdin} .= "SELECT 'got ' || tenant FROM jobq.claim('{mail}', wait => '20s');\n\\echo over\n";
$waiting{wa}{run}->pump_nb;
wait_for_sql($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE 'SELECT ''got%' AND state = 'active' AND wait_event_type = 'Extension'", 'a claim waits');
one(q{SELECT jobq.revoke_access('wa', 'work', 'a'), jobq.grant_access('wa', 'work', 'z')});
enqueue('mail', 'a', 2, 2);
unlike($waiting{wa}->query_until(qr/over/, ''), qr/got/, 'a claim whose grant was revoked gets nothing');
like($waiting{wa}{stderr}, qr/permission denied to work jobs of type "mail"/, 'but an error');
$waiting{wa}{stderr} = '';
is(claims('wmany', q('{mail}'), 1, '5s'), 'a2', 'the job goes to another role, uncharged');
is(one(q{SELECT attempts FROM jobq.jobs WHERE status = 'running'}), 1, 'it is charged once');
end_all();
one(q{SELECT jobq.revoke_access('wa', 'work', 'z'), jobq.grant_access('wa', 'work', 'a')});

# ---------- beside limits, keys and fairness ----------

enqueue('two', 'b', 1, 3);
enqueue('two', 'a', 1, 3);
is(claims('wa', q('{two}'), 9), 'a1 a2', 'max_concurrent holds');
is(claims('wall', q('{two}'), 9), '', 'for all roles');
end_all();
is(claims('wall', q('{two}'), 9), 'b1 b2', 'the oldest come next');
end_all();
is(claims('wa', q('{two}'), 9), 'a3', 'a later job of a');
end_all();
one(q{SELECT jobq.enqueue('keyed', jsonb_build_object('n', n), tenant => CASE n % 2 WHEN 0 THEN 'a' ELSE 'b' END, concurrency_key => 'k') FROM generate_series(1, 6) n});
is(claims('wa', q('{keyed}'), 9), 'a2', 'one job of a key');
is(claims('wb', q('{keyed}'), 9), 'b1', 'the key of another tenant is another one');
end_all();
is(claims('wa', q('{keyed}'), 9, '5s'), 'a4', 'the next of the key');
is(claims('wall', q('{keyed}'), 9, '5s'), 'b3', 'and of the other one');
end_all();
enqueue('fair', 'b', 1, 400);
enqueue('fair', 'c', 1, 400);
enqueue('fair', 'a', 1, 3);
is(claims('wa', q('{fair}'), 9), 'a1 a2 a3', 'a fair type: the lane of its tenant');
is(claims('wa', q('{fair}'), 9), '', 'has no more');
is(as('wall', q{SELECT count(*), count(*) FILTER (WHERE tenant = 'b') FROM jobq.claim('{fair}', 200)}), '200|100', 'the others get their turns');
end_all();

# ---------- a new dispatcher ----------

my ($pid) = jobq_pids($node, 'dispatcher');
one("SELECT pg_terminate_backend($pid)");
wait_dispatcher($node, 'postgres', 'another dispatcher', $pid);
enqueue('fair', 'a', 4, 4);
is(claims('wa', q('{fair}'), 9, '10s'), 'a4', 'it hands out by tenant, too');
done_testing();
