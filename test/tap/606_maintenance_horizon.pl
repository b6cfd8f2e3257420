# Replication slots and standbys that hold the horizon have no time of their own: maintenance notes
# since when the oldest xmin stands still, and health() is degraded after an hour of it.  One that
# moves on is healthy, however long its standby is connected.

use strict;
use warnings;

use ClockTest;
use JSON::PP ();
use PostgreSQL::Test::Cluster;
use ServerTest;
use Test::More;

my %faked = fake_clock('-DFAKE_BOTH');
my $node = jobq_server('primary', 'wal_level = logical', 'wal_sender_timeout = 0', 'autovacuum = off', 'fsync = off');
{
	local %ENV = (%ENV, %faked);
	$node->start;
}
my $offset = 0;

sub scalar_of { return $node->safe_psql('postgres', $_[0]); }

# So many seconds pass after a measurement.
sub pass
{
	my ($seconds) = @_;

	measure($node);
	$offset += $seconds;
	set_clock($offset);
	return;
}

# The check of the horizon, by a measurement of now.
sub horizon
{
	measure($node);
	return JSON::PP::decode_json(scalar_of(q{SELECT jobq.health()->'checks'->'horizon'}));
}

sub take_xid { return scalar_of('SELECT pg_current_xact_id()'); }

$node->safe_psql('postgres', 'CREATE EXTENSION jobq; CREATE ROLE clerk LOGIN');
$node->safe_psql('postgres', q{SELECT jobq.create_job_type('sales'), jobq.grant_access('clerk', 'read', job_types => '{sales}')});
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

# ---------- standbys ----------

$node->safe_psql('postgres', q{SELECT pg_create_physical_replication_slot('north')});
$node->backup('copy');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'copy', has_streaming => 1);
$standby->append_conf('postgresql.conf', <<'END');
primary_slot_name = 'north'
hot_standby_feedback = on
wal_receiver_status_interval = 1s
wal_receiver_timeout = 0
max_standby_streaming_delay = -1
END
$standby->start;

# Waits until the standby reports an xmin that is not older than now.
sub follows
{
	my ($xmin) = @_;
	my $now = take_xid();

	return wait_for_sql($node, "SELECT count(*) = 1 FROM ($xmin) x(xmin) WHERE age(x.xmin) <= age('$now'::xid)", 'the standby follows');
}

my $of_slot = q{SELECT xmin FROM pg_replication_slots WHERE slot_name = 'north'};
follows($of_slot);
pass(3700);
follows($of_slot);
is(horizon()->{status}, 'healthy', 'a standby that follows for over an hour');

my $query = $standby->background_psql('postgres');
$query->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class');
take_xid() for 1 .. 3;
pass(3500);
my $h = horizon();
is($h->{status}, 'healthy', 'its long query holds the horizon: not for an hour yet');
is($h->{holder}, 'replication slot north', 'the slot is the holder');
cmp_ok($h->{held_s}, '>=', 3500, 'held_s is its time');
pass(200);
$h = horizon();
is($h->{status}, 'degraded', 'after an hour it is degraded');
like($h->{message}, qr/^replication slot north keeps dead rows, also of jobq\.queue: .*pg_drop_replication_slot\('north'\)/, 'with cause and lever');
is(scalar_of("SELECT clock_timestamp() - '$h->{since}' > '1 hour'"), 't', 'since then');
my ($held) = scalar_of('SELECT jobq.metrics()') =~ /^jobq_horizon_held_seconds(?:\{.*\})? (\S+)$/m;
cmp_ok($held, '>', 3600, 'the metric has its time');
is($node->safe_psql('postgres', q{SELECT jobq.health()->'checks'->'horizon'->>'message'}, extra_params => [ '-U', 'clerk' ]),
	'a replication slot or a standby keeps dead rows', 'a role that may not read every job gets no name');

# The same query by a standby without a slot.
$standby->safe_psql('postgres', q{ALTER SYSTEM SET primary_slot_name = ''});
$standby->reload;
wait_for_sql($node, q{SELECT NOT active FROM pg_replication_slots WHERE slot_name = 'north'}, 'the slot is left');
scalar_of(q{SELECT pg_drop_replication_slot('north')});
my $of_sender = q{SELECT backend_xmin FROM pg_stat_activity WHERE backend_type = 'walsender'};
wait_for_sql($node, "SELECT count(*) = 1 FROM ($of_sender) s WHERE backend_xmin IS NOT NULL", 'the standby reports its xmin without it');
$h = horizon();
is($h->{status}, 'degraded', 'a standby without a slot holds it as well');
like($h->{message}, qr/^standby standby \(walsender with PID \d+\) keeps dead rows, also of jobq\.queue: .*hot_standby_feedback/, 'with cause and lever');
$query->query_safe('COMMIT');
$query->quit;
follows($of_sender);
is(horizon()->{status}, 'healthy', 'when the query has ended it is healthy');
pass(3700);
follows($of_sender);
is(horizon()->{status}, 'healthy', 'however long it is connected');
$standby->stop;

# ---------- logical replication ----------

$node->safe_psql('postgres', q{SELECT pg_create_logical_replication_slot('feed', 'pgoutput')});
take_xid() for 1 .. 3;
pass(3700);
$h = horizon();
is($h->{status}, 'degraded', 'a logical slot that no consumer reads');
like($h->{message}, qr/^replication slot feed keeps dead rows of the system catalogs: .*pg_drop_replication_slot\('feed'\)/, 'with cause and lever');
my $session = $node->background_psql('postgres');
$session->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
take_xid();
pass(3700);
$h = horizon();
like($h->{holder}, qr/^client backend with PID/, 'a session that keeps rows of all tables is named before it');
like($h->{message}, qr/^its snapshot keeps dead rows, also of jobq\.queue/, 'with its cause');
$session->query_safe('COMMIT');
$session->quit;
is(horizon()->{holder}, 'replication slot feed', 'then the slot again');
scalar_of(q{SELECT pg_drop_replication_slot('feed')});
is(horizon()->{status}, 'healthy', 'without it the check is healthy');

$node->stop;
done_testing();
