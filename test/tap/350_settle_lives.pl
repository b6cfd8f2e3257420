# Thousands of random job histories at level all, against a model: no transition without its event,
# none too many, in order, with the right attempt; status, attempts and runs as in the model.
#
# JOBQ_SEED begins its random numbers, JOBQ_LIVES is the number of jobs.

use strict;
use warnings;

use JSON::PP;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $count = $ENV{JOBQ_LIVES} // 3000;
seed();
diag("JOBQ_LIVES=$count");

my $node = jobq_server('lives', 'jobq.max_sql_workers = 4', 'fsync = off');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE FUNCTION live(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  job jobq.jobs := jobq.current_job();
  act text := coalesce(payload->'acts'->>(job.runs - 1), 'ok');
BEGIN
  IF act LIKE '+%' THEN
    PERFORM jobq.set_progress(job.runs), jobq.log_event(act);
    act := substr(act, 2);
  END IF;
  CASE act
    WHEN 'ok' THEN NULL;
    WHEN 'fail' THEN RAISE EXCEPTION 'fail' USING ERRCODE = 'P0002';
    WHEN 'permanent' THEN RAISE EXCEPTION 'permanent' USING ERRCODE = '22012';
    WHEN 'skip' THEN PERFORM jobq.skip('skip');
    WHEN 'discard' THEN PERFORM jobq.discard('discard');
    WHEN 'snooze' THEN PERFORM jobq.snooze('0', 'snooze');
    WHEN 'raise_skip' THEN RAISE EXCEPTION 'skip' USING ERRCODE = 'JQ001';
    WHEN 'raise_discard' THEN RAISE EXCEPTION 'discard' USING ERRCODE = 'JQ002';
    WHEN 'raise_snooze' THEN RAISE EXCEPTION 'snooze' USING ERRCODE = 'JQ003', DETAIL = '0';
    WHEN 'undecided' THEN PERFORM jobq.skip('skip'), jobq.snooze('0'), jobq.discard('discard');
    WHEN 'wait' THEN PERFORM pg_sleep(600);
  END CASE;
  RETURN '1';
END $$;
SELECT jobq.create_job_type('life', 'live(jsonb)', backoff_base => '0',
  options => '{"events": "all", "permanent_codes": ["22%"]}');
SELECT jobq.create_job_type('tool', command => ARRAY['/bin/sh', '-c', $sh$
    n=$JOBQ_ATTEMPT; set -- {acts}; shift $((n - 1)); act=${1:-ok}
    case $act in +*) echo '{"progress": 1}' >&3; echo '{"log": "said"}' >&3; act=${act#+};; esac
    case $act in fail) exit 3;; permanent) exit 7;; skip) exit 8;; kill) kill -9 $$;; esac
    echo 1 $sh$], backoff_base => '0',
  options => '{"events": "all", "permanent_exit_codes": [7], "skip_exit_codes": [8]}');
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

# ---------- the model ----------

my %ends = (ok => 'completed', skip => 'skipped', raise_skip => 'skipped', wait => 'cancelled',
	discard => 'dead', raise_discard => 'dead', undecided => 'dead', permanent => 'dead');

sub pick { return $_[ int(rand(@_)) ]; }

sub new_life
{
	my ($tool) = @_;
	my @acts = $tool ? qw(ok fail fail permanent skip kill) :
	  qw(ok ok fail fail fail snooze snooze skip discard raise_skip raise_discard raise_snooze undecided permanent);
	my %life = (tool => $tool, max => 1 + int(rand(4)), kind => $tool ? 'now' : pick(qw(now now now now slow later)));

	$life{acts} = [ map { (rand() < 0.3 ? '+' : '') . pick(@acts) } 1 .. 8 ];
	$life{acts}[ int(rand(3)) ] = 'wait' if !$tool && rand() < 0.02;
	be_born(\%life);
	return \%life;
}

sub be_born
{
	my ($life) = @_;

	@$life{qw(status attempts runs dead)} = ('pending', 0, 0, 0);
	$life->{events} = ['enqueued 0'];
	$life->{waits} = $life->{kind} eq 'later';
	return;
}

sub record { my ($life, $attempt, @types) = @_; push @{ $life->{events} }, map { "$_ $attempt" } @types; return; }

# One attempt; its action is chosen by the number of the run, of a tool by that of the attempt.
sub attempt
{
	my ($life) = @_;
	my $n = $life->{attempts} + 1;
	my $act = $life->{acts}[ $life->{tool} ? $n - 1 : $life->{runs} ] // 'ok';

	# told while it was taken back from a batch, to run alone
	if ($act =~ /wait$/ && $life->{runs_stored} == $life->{runs})
	{
		cancel($life);
		return;
	}
	$life->{runs}++;
	record($life, $n, 'claimed') if $life->{tool};
	record($life, $n, 'started');
	record($life, $n, qw(progress log)) if $act =~ s/^\+//;
	if ($act =~ /snooze$/)
	{
		record($life, $n, 'snoozed');
		return;
	}
	$life->{attempts} = $n;
	my $end = $ends{$act} // ($n >= $life->{max} ? 'dead' : 'retry_scheduled');
	record($life, $n, 'failed') if $end =~ /dead|retry/;
	record($life, $n, $end);
	$life->{dead}++ if $end eq 'dead';
	$life->{status} = $end eq 'dead' ? 'error' : $end eq 'retry_scheduled' ? 'retry' : $end;
	$life->{waits} = $end eq 'retry_scheduled' && $life->{kind} eq 'slow';
	return;
}

sub live_on
{
	my ($life) = @_;

	attempt($life) while $life->{status} =~ /^(pending|retry)$/ && !$life->{waits};
	return;
}

# ---------- a client's actions on a job that has ended or waits for long, with their SQL ----------

my @lives;

sub enqueue_statement
{
	my ($life, $i) = @_;
	my $type = $life->{tool} ? 'tool' : 'life';
	my $acts = $life->{tool} ? join(' ', @{ $life->{acts} }) : $life->{acts};
	my $more = '';

	$more .= q(, delay => '1 hour', unique_key => ') . "u$i'" if $life->{kind} eq 'later';
	$more .= q(, backoff => '{"base": "1 hour", "jitter": 0}') if $life->{kind} eq 'slow';
	return sprintf q(SELECT %d, jobq.enqueue('%s', '%s', max_attempts => %d%s);), $i, $type,
	  encode_json({ acts => $acts }), $life->{max}, $more;
}

sub retry
{
	my ($life) = @_;

	record($life, $life->{attempts}, 'retried');
	@$life{qw(status attempts waits)} = ('pending', 0, 0);
	return "SELECT jobq.retry_job('$life->{id}');";
}

sub rerun
{
	my ($life) = @_;
	my $new = { %$life, id => undef };

	be_born($new);
	push @lives, $new;
	return "SELECT $#lives, jobq.rerun_job('$life->{id}');";
}

sub cancel
{
	my ($life) = @_;

	record($life, $life->{attempts}, 'cancelled');
	@$life{qw(status waits)} = ('cancelled', 0);
	return "SELECT jobq.cancel_job('$life->{id}', 'no');";
}

sub replace
{
	my ($life, $i) = @_;

	record($life, 0, 'enqueued');
	my $statement = enqueue_statement($life, $i);
	$statement =~ s/\);$/, on_conflict => 'replace');/;
	return $statement;
}

sub intervene
{
	my ($life, $i) = @_;
	my @can;

	if ($life->{waits})
	{
		@can = (\&cancel);
		push @can, \&retry if $life->{status} eq 'retry';
		push @can, \&replace if $life->{status} eq 'pending';
	}
	else
	{
		# one job at a time with a unique key
		@can = (\&rerun) if $life->{kind} ne 'later';
		push @can, \&retry, \&retry if $life->{status} ne 'completed';
	}
	return if !@can;
	return pick(@can)->($life, $i);
}

# ---------- the test ----------

# Runs statements that return the number of a history and its job; stores the jobs.
sub run_statements
{
	my @rows = split /\n/, $node->safe_psql('postgres', join("\n", @_));

	foreach (@rows) { $lives[$1]{id} = $2 if /^(\d+)\|([-0-9a-f]{36})$/; }
	return scalar grep { /^(t|\d+\|[-0-9a-f]{36})$/ } @rows;
}

# Cancels the jobs that wait for a cancel, until all others have ended or wait for long.
sub settle_down
{
	my ($what) = @_;

	return ok($node->poll_query_until('postgres', q{
	WITH told AS MATERIALIZED (SELECT jobq.cancel_job(j.id, 'told') FROM jobq.jobs j
		WHERE j.status = 'running' AND j.payload->'acts'->>(j.runs - 1) = 'wait' AND j.job_type = 'life')
	SELECT (SELECT count(*) FROM told) = 0 AND NOT EXISTS (SELECT FROM jobq.queue
		WHERE status = 'running' OR scheduled_for < clock_timestamp() + '1 min')}), $what);
}

sub live_round
{
	my ($what, @chosen) = @_;
	my $done = run_statements(@chosen);

	is($done, scalar @chosen, "$what: every call did what it should");
	settle_down("$what: everything has ended or waits");
	my %runs = map { split /\|/ } split /\n/, $node->safe_psql('postgres', q{SELECT id, runs FROM jobq.jobs WHERE payload->>'acts' LIKE '%wait"%'});
	foreach (@lives) { $_->{runs_stored} = $runs{ $_->{id} } if exists $runs{ $_->{id} }; }
	live_on($_) foreach @lives;
	return;
}

@lives = map { new_life($_ % 20 == 0) } 1 .. $count;
live_round('first lives', map { enqueue_statement($lives[$_], $_) } 0 .. $#lives);
foreach my $round (1 .. 3)
{
	my @chosen = grep { rand() < 0.4 } 0 .. $#lives;

	live_round("round $round", grep { defined } map { scalar intervene($lives[$_], $_) } @chosen);
}

my (%story, %fate);
foreach (split /\n/, $node->safe_psql('postgres', q{SELECT job_id, string_agg(type || ' ' || attempt, ', ' ORDER BY ts, id)
	FROM jobq.events GROUP BY job_id}))
{
	my ($id, $events) = split /\|/;
	$story{$id} = $events;
}
foreach (split /\n/, $node->safe_psql('postgres', q{SELECT id, concat_ws(' ', status, attempts, runs) FROM jobq.jobs}))
{
	my ($id, $fate) = split /\|/;
	$fate{$id} = $fate;
}
my ($dead, @wrong) = (0);
foreach my $life (@lives)
{
	my $events = join ', ', @{ $life->{events} };
	my $fate = "$life->{status} $life->{attempts} $life->{runs}";

	$dead += $life->{dead};
	push @wrong, "$life->{id} (@{$life->{acts}}; $life->{max} attempts)\n  is   $fate{$life->{id}}: $story{$life->{id}}\n  want $fate: $events"
	  if ($story{ $life->{id} } // '') ne $events || ($fate{ $life->{id} } // '') ne $fate;
}
is(scalar @wrong, 0, '!every life is as the model has it') or diag(join "\n", @wrong[ 0 .. ($#wrong < 4 ? $#wrong : 4) ]);
is(scalar keys %fate, scalar @lives, '!there are no other jobs');
is(scalar keys %story, scalar @lives, 'no other stories');
is($node->safe_psql('postgres', 'SELECT count(*) FROM jobq.alerts'), $dead, 'an alert for each dead letter');
is($node->safe_psql('postgres', q{SELECT count(*) FROM jobq.jobs j WHERE j.parent_id IS NOT NULL}),
	$node->safe_psql('postgres', q{SELECT count(*) FROM jobq.events WHERE type = 'enqueued' AND data ? 'parent_id'}), 'rerun jobs have their parent');
is($node->safe_psql('postgres', q{SELECT count(*) FROM jobq.events WHERE type = 'failed'
	AND NOT data ?& '{error,code,duration_ms,worker}'}), 0, 'every failure says error, code, duration and worker');

$node->stop;
done_testing();
