# jobq.metrics(): both formats are valid, every family is there, values are those of the views, and
# no lock of a table delays it.  Types beyond the bounds are "_other".

use strict;
use warnings;

use IPC::Run qw(run);
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('metrics', 'jobq.max_sql_workers = 2', 'jobq.max_stat_types = 8', 'fsync = off');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE FUNCTION noop(p jsonb) RETURNS void LANGUAGE sql AS 'SELECT';
CREATE FUNCTION fails(p jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
SELECT jobq.create_job_type('odd " \ type', 'noop(jsonb)'), jobq.create_job_type('fails', 'fails(jsonb)', max_attempts => 2, backoff_base => '1ms'),
       jobq.create_job_type('held', 'noop(jsonb)', max_concurrent => 3);
SELECT jobq.pause_job_type('held', 'test'), jobq.set_limit('api', 5), jobq.set_signal('night', true);
SELECT jobq.enqueue('odd " \ type') FROM generate_series(1, 30);
SELECT jobq.enqueue('held') FROM generate_series(1, 4);
SELECT jobq.enqueue('held', delay => '1h'), jobq.enqueue('fails');
END

sub scalar_of { return $node->safe_psql('postgres', $_[0]); }

wait_for_sql($node, q{SELECT count(*) = 31 FROM jobq.jobs WHERE status IN ('completed', 'error')}, 'the jobs have run');
wait_for_sql($node, q{SELECT due = 4 AND oldest_due_s > 0 AND due_exact FROM jobq.stat_job_types WHERE job_type = 'held'}, 'due jobs are counted');
wait_for_sql($node, q{SELECT jobq.metrics() ~ 'jobq_health'}, 'maintenance has read its values');

# Returns the samples of a text as a hash.
sub samples_of
{
	my ($text) = @_;

	return { map { /^(\S.*\}|\S+) (\S+)$/ ? ($1 => $2) : () } grep { !/^#/ } split /\n/, $text };
}

my %families = (
	jobs_total => 'counter', jobs_enqueued_total => 'counter', jobs_started_total => 'counter', jobs_retried_total => 'counter',
	job_failures_total => 'counter', jobs_active => 'gauge', job_type_paused => 'gauge', queue_oldest_seconds => 'gauge',
	queue_depth => 'gauge', job_duration_seconds => 'histogram', queue_wait_seconds => 'histogram', job_attempts => 'histogram',
	workers => 'gauge', dispatcher_up => 'gauge', dispatcher_loops_total => 'counter', dispatcher_wakeups_total => 'counter',
	handed_out_total => 'counter', health => 'gauge', limit_used => 'gauge', limit_max => 'gauge', signal_active => 'gauge',
	disk_used_ratio => 'gauge', queue_bytes => 'gauge', dead_row_bytes => 'gauge', horizon_held_seconds => 'gauge',
	alerts_total => 'counter', build_info => 'gauge', schedule_ticks_total => 'counter', schedule_late_seconds => 'gauge');
my $text = scalar_of('SELECT jobq.metrics()');
my %found = $text =~ /^# TYPE jobq_(\w+) (\w+)$/mg;
is_deeply(\%found, \%families, 'the families');
my $s = samples_of($text);
is_deeply([ grep { my $f = $_; !grep { /^jobq_\Q$f\E(?:_bucket)?(?:\{| |$)/ } keys %$s } sort keys %families ], [], 'each has a sample');
my $odd = 'type="odd \\" \\\\ type"';
is($s->{"jobq_jobs_total{$odd,status=\"completed\"}"}, 30, 'jobs by status, with an escaped name');
is($s->{"jobq_queue_wait_seconds_count{$odd}"}, 30, 'a histogram');
is($s->{"jobq_job_duration_seconds_bucket{$odd,le=\"+Inf\"}"}, 30, 'its last bucket');
is($s->{'jobq_job_attempts_bucket{type="fails",le="1"}'}, 0, 'a bucket');
is($s->{'jobq_job_attempts_bucket{type="fails",le="2"}'}, 1, 'buckets add up');
ok(!exists $s->{'jobq_queue_wait_seconds_count{type="held"}'}, 'none before the first observation');
is($s->{'jobq_job_failures_total{type="fails",kind="error"}'}, 2, 'failures');
is($s->{'jobq_alerts_total{severity="warning"}'}, 1, 'alerts');
is(join(' ', map { $s->{"jobq_queue_depth{type=\"held\",state=\"$_\"}"} } qw(waiting delayed blocked active dead)), '4 1 0 0 0', 'the depth');
is($s->{'jobq_job_type_paused{type="held"}'}, 1, 'a pause');
is($s->{'jobq_limit_max{kind="job_type",limit="held"}'}, 3, 'limits of types');
is($s->{'jobq_limit_max{kind="limit",limit="api"}'}, 5, 'shared limits');
is($s->{'jobq_signal_active{signal="night"}'}, 1, 'signals');
is($s->{'jobq_build_info{version="0.2.0"}'}, 1, 'the version');
my $open = scalar_of(q{SELECT jobq.metrics('openmetrics')});
like($open, qr/^# TYPE jobq_jobs counter\n.*^jobq_jobs_total\{.*^# EOF\s*\z/ms, 'OpenMetrics: names of counters, and the end');
like($open, qr/le="1\.0"/, 'and bounds');
unlike(scalar_of(q{SET jobq.metrics_histograms = off; SELECT jobq.metrics()}), qr/histogram/, 'jobq.metrics_histograms');
like(scalar_of(q{SET jobq.metrics_prefix = 'q:'; SELECT jobq.metrics()}), qr/^q:jobs_total\{.*^q:queue_wait_seconds_bucket/ms, 'jobq.metrics_prefix');
sqlstate_is($node, 'postgres', q{SET jobq.metrics_prefix = 'a b'}, '22023', 'a prefix that is none');
my $few = samples_of(scalar_of(q{SET jobq.metrics_types = 1; SELECT jobq.metrics()}));
is(join(' ', @$few{ "jobq_jobs_enqueued_total{$odd}", 'jobq_jobs_enqueued_total{type="_other"}' }), '30 6', 'jobq.metrics_types');

# Runs a program with the text of a format as its input; returns its output, '' if all is well.
sub complaints
{
	my ($format, @command) = @_;
	my $in = scalar_of("SELECT jobq.metrics('$format')") . "\n";
	my $out = '';
	my $ok = run(\@command, '<', \$in, '>&', \$out);

	return $out . ($ok ? '' : 'failed');
}

SKIP:
{
	skip 'promtool is not installed', 1 if !$ENV{JOBQ_FULL} && !grep { -x "$_/promtool" } split /:/, $ENV{PATH};
	is(complaints('prometheus', qw(promtool check metrics)), '', 'promtool check metrics');
}
SKIP:
{
	skip 'python3-prometheus-client is not installed', 1 if !$ENV{JOBQ_FULL} && !run([ 'python3', '-c', 'import prometheus_client' ], '2>', \my $no);
	is(complaints('openmetrics', 'python3', '-c', <<'END'), '', 'the parser of OpenMetrics');
import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
families = list(text_string_to_metric_families(sys.stdin.read().rstrip("\n") + "\n"))
sys.exit(len(families) < 25)
END
}

# ---------- the views of the dispatcher ----------

is(scalar_of(q{SELECT job_type, held_by, priority FROM jobq.stat_lanes}), 'held|type_paused|0', 'stat_lanes');
is(scalar_of(q{SELECT string_agg(kind || ' ' || coalesce(name, '-') || ' ' || used || ' ' || max, ', ' ORDER BY kind, name COLLATE "C") FROM jobq.stat_limits
  WHERE name IS NULL OR name IN ('api', 'held')}), 'job_type held 0 3, jobs - 0 50, limit api 0 5', 'stat_limits');
wait_for_sql($node, q{SELECT sum(enqueued) = 36 AND sum(completed) = 30 AND sum(failed) = 2 AND max(job_type) IS NULL FROM jobq.stat_series()}, 'stat_series');
is(scalar_of(q{SELECT sum(enqueued) FROM jobq.stat_series('2 minutes')}), '36', 'in longer steps');
is(scalar_of(q{SELECT job_type, sum(enqueued), sum(failed) FROM jobq.stat_series('1 minute') WHERE job_type = 'fails' GROUP BY 1}), 'fails|1|2', 'by type');

# ---------- locks ----------

my $session = $node->background_psql('postgres');
$session->query_safe('BEGIN; LOCK TABLE jobq.queue, jobq.dead_letters, jobq.history, jobq.events, jobq.limits, jobq.signals');
like(scalar_of(q{SET statement_timeout = '5s'; SELECT jobq.metrics()}), qr/jobq_jobs_total/, 'a lock of the tables does not matter');
$session->query_safe('ROLLBACK');
$session->quit;

# ---------- types beyond the bound ----------

scalar_of(q{SELECT jobq.create_job_type('t' || i, 'noop(jsonb)') FROM generate_series(1, 20) i});
scalar_of(q{SELECT jobq.pause_job_type('t' || i, 'test') FROM generate_series(1, 20) i});
scalar_of(q{SELECT jobq.enqueue('t' || i) FROM generate_series(1, 20) i});
is(scalar_of(q{SELECT count(*), count(job_type), sum(enqueued), sum(pending) FROM jobq.stat_job_types}), '9|8|56|25', '8 types have an entry, the others share one');
is(scalar_of(q{SELECT pending, enqueued FROM jobq.stat_job_types WHERE job_type IS NULL}), '15|15', 'with their jobs');
is(samples_of(scalar_of('SELECT jobq.metrics()'))->{'jobq_jobs_enqueued_total{type="_other"}'}, 15, 'as _other in metrics');
scalar_of(q{SELECT jobq.cancel_job(id) FROM jobq.jobs WHERE job_type = 't20'});
is(scalar_of(q{SELECT pending, cancelled FROM jobq.stat_job_types WHERE job_type IS NULL}), '14|1', 'which count on');
sqlstate_is($node, 'postgres', q{SELECT jobq.stat_reset('t20')}, '55000', 'and are not reset alone');
$node->restart;
is(scalar_of(q{SELECT pending, enqueued FROM jobq.stat_job_types WHERE job_type IS NULL}), '14|15', 'also after a restart');
is(scalar_of(q{SELECT sum(pending) FROM jobq.stat_job_types}), '24', 'with all rows');

# ---------- a type that is dropped and comes again ----------

scalar_of(q{SELECT jobq.drop_job_type('fails'); SELECT jobq.create_job_type('fails', 'fails(jsonb)')});
is(scalar_of(q{SELECT count(*) FROM jobq.stat_job_types WHERE job_type = 'fails'}), '1', 'is one row');

# ---------- rights ----------

$node->safe_psql('postgres', <<'END');
CREATE ROLE watcher LOGIN IN ROLE pg_monitor;
CREATE ROLE reader LOGIN;
CREATE ROLE partial LOGIN;
CREATE ROLE admin LOGIN;
CREATE ROLE stranger LOGIN;
SELECT jobq.grant_access('reader', 'read'), jobq.grant_access('partial', 'read', tenant => 'x'), jobq.grant_access('admin', 'admin');
END
my @queries = ((map { "SELECT count(*) FROM jobq.stat_$_" } qw(job_types workers lanes limits dispatcher)), 'SELECT count(*) FROM jobq.stat_series()', 'SELECT jobq.metrics()');
foreach my $query (@queries)
{
	foreach my $role (qw(watcher reader admin))
	{
		is(($node->psql('postgres', "SET ROLE $role; $query"))[0], 0, "$role: $query");
	}
	sqlstate_is($node, 'postgres', "SET ROLE $_; $query", '42501', "$_: $query") foreach qw(partial stranger);
}
sqlstate_is($node, 'postgres', "SET ROLE $_; SELECT jobq.stat_reset()", '42501', "$_: stat_reset") foreach qw(watcher reader partial stranger);
is(($node->psql('postgres', 'SET ROLE admin; SELECT jobq.stat_reset()'))[0], 0, 'admin: stat_reset');

# ---------- a primary without jobq's shared memory ----------

$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$node->restart;
my $none = samples_of(scalar_of('SELECT jobq.metrics()'));
is(join(' ', map { $_ // 'none' } @$none{ 'jobq_dispatcher_up', 'jobq_workers{kind="pull",state="busy"}', 'jobq_workers{kind="sql",state="idle"}' }), '0 0 0',
	'is no standby: JobqDispatcherDown fires');
$node->stop;
done_testing();
