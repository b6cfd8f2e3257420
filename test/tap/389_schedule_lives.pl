# Random lives of schedules against a model.  A tick in the life of a schedule has one job or one
# reason: none is lost, none comes twice, while sessions change the schedules, processes and the
# server end, and the clock steps.
#
# JOBQ_SEED begins its random numbers, JOBQ_BEATS is its length in seconds of the schedule that
# gives the pace.

use strict;
use warnings;

use JSON::PP;
use List::Util qw(shuffle sum0);
use ClockTest;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $beats = $ENV{JOBQ_BEATS} // 24;
seed();
diag("JOBQ_BEATS=$beats");

my %faked = fake_clock();
my $node = jobq_server('lives', 'jobq.max_sql_workers = 4', 'fsync = off', 'restart_after_crash = on', 'autovacuum_naptime = 5s');

sub scalar_of { return $node->safe_psql('postgres', $_[0]); }
sub pick { return $_[ int(rand(@_)) ]; }

sub started_server
{
	local %ENV = (%ENV, %faked);

	return $node->start;
}

my $offset = 0;

# Moves the server's clock by so many seconds.
sub step_clock
{
	my ($seconds) = @_;

	$offset += $seconds;
	set_clock($offset);
	return;
}

started_server();
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE FUNCTION quick(p jsonb) RETURNS void LANGUAGE sql AS 'SELECT';
CREATE FUNCTION slow(p jsonb) RETURNS void LANGUAGE sql AS 'SELECT pg_sleep(0.7)';
CREATE FUNCTION fails(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF random() < 0.5 THEN RAISE 'no'; END IF;
END $$;
SELECT jobq.create_job_type(t, (t || '(jsonb)')::regprocedure, max_attempts => 1, options => '{"events": "all"}')
  FROM unnest('{quick,slow,fails}'::text[]) t;
-- Runs a statement; false: the definition would have no further tick.
CREATE FUNCTION try(statement text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE statement;
  RETURN true;
EXCEPTION WHEN invalid_parameter_value THEN
  IF SQLERRM NOT LIKE '%has no tick before it' THEN RAISE; END IF;
  RETURN false;
END $$;
CREATE FUNCTION us(t timestamptz) RETURNS bigint LANGUAGE sql RETURN (extract(epoch FROM t) * 1000000)::bigint;
CREATE FUNCTION state(s jobq.schedules) RETURNS jsonb LANGUAGE sql AS $$
  SELECT to_jsonb(s) || jsonb_build_object('after', us(s.ticks_after), 'until', us(s.paused_until), 'waiting', us(s.waiting_tick),
                                           'last', us(s.last_tick))
$$;
CREATE VIEW tick_jobs AS
  SELECT j.metadata->>'schedule' AS name, us((j.metadata->>'tick')::timestamptz) AS tick, j.metadata->>'tick' < '2002' AS by_hand
    FROM jobq.jobs j;
CREATE VIEW tick_events AS
  SELECT e.data->>'schedule' AS name, e.type, us((e.data->>'tick')::timestamptz) AS tick, coalesce(e.data->>'reason', '') AS reason,
         coalesce((e.data->>'count')::int, 1) AS count
    FROM jobq.events e WHERE e.type IN ('ticked', 'tick_skipped');
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

# ---------- the model: for each schedule the stretches of time in which it lives ----------

my %periods = ('every 1s' => 1, 'every 2s' => 2, '*/3 * * * * *' => 3, '0-58/2 * * * * *' => 2, '* * * * * *' => 1);
my (@lives, $made);

# Ends the stretch at the last decided tick.  A schedule that has used up its runs ends at its last
# job: ticks after that may have a reason.
sub end_stretch
{
	my ($life, $row) = @_;
	my $used_up = $row->{status} eq 'finished' && defined $row->{max_runs} && $row->{runs} >= $row->{max_runs};

	push @{ $life->{stretches} },
	  { from => $life->{from}, to => $row->{after}, sure => $used_up ? ($row->{last} // 0) : $row->{after}, period => $life->{period} };
	delete $life->{from};
	return;
}

sub begin_stretch
{
	my ($life, $from, $row) = @_;

	$life->{from} = $from;
	$life->{period} = $periods{ $row->{cron} };
	return;
}

# Notes changes that jobq has made since the session looked last.
sub follow
{
	my ($life, $row) = @_;

	# a pause has ended by its duration; the next one is by dead letters
	begin_stretch($life, delete $life->{until}, $row)
	  if !defined $life->{from} && defined $life->{until} && ($row->{status} ne 'paused' || $row->{paused_by_jobq});
	end_stretch($life, $row) if defined $life->{from} && $row->{status} ne 'active';
	return;
}

# Notes a change by a session, which has locked the row.
sub changed
{
	my ($life, $before, $after) = @_;

	follow($life, $before);
	# a change may use up the runs of a tick that waits
	$life->{gone}{ $before->{waiting} } = 1
	  if defined $before->{waiting} && (!defined $after->{waiting} || defined $after->{max_runs} && $after->{runs} >= $after->{max_runs});
	end_stretch($life, $before)
	  if defined $life->{from} && ($after->{status} ne 'active' || $after->{after} != $before->{after} || $after->{cron} ne $before->{cron});
	$life->{until} = $after->{status} eq 'paused' ? $after->{until} : undef;
	begin_stretch($life, $after->{after}, $after) if $after->{status} eq 'active' && !defined $life->{from};
	return;
}

# ---------- changes by sessions ----------

sub new_schedule
{
	my ($catch_up, $overlap) = @_;
	my %life = (name => 's' . ++$made, stretches => [], gone => {});
	my $args = '';

	$args .= ', max_runs => ' . (5 + int(rand(20))) if rand() < 0.2;
	$args .= ', pause_after_failures => 2, job_type => ' . q('fails') if rand() < 0.2;
	$args .= sprintf q(, job_type => '%s'), pick(qw(quick slow)) if $args !~ /job_type/;
	$args .= q(, options => '{"unique_key": "k"}') if rand() < 0.15;
	$args .= q(, jitter => '2s') if rand() < 0.2;
	$args .= q(, ends_at => clock_timestamp() + '15s') if rand() < 0.1;
	$args .= ', catch_up_limit => ' . pick(3, 10) if rand() < 0.5;
	$life{definition} = sprintf q('%s', '%s', catch_up => '%s', overlap => '%s'%s), $life{name}, pick(sort keys %periods), $catch_up, $overlap, $args;
	scalar_of("SELECT jobq.schedule($life{definition})");
	my $row = decode_json(scalar_of("SELECT state(s) || jsonb_build_object('after', us(s.created_at)) FROM jobq.schedules s WHERE name = '$life{name}'"));
	@life{qw(id catch_up overlap)} = ($row->{id}, $catch_up, $overlap);
	begin_stretch(\%life, $row->{after}, $row);
	push @lives, \%life;
	return;
}

# Returns the state of a row in a line.
sub summary
{
	my $row = decode_json($_[0]);

	return join ' ', map { "$_=" . ($row->{$_} // '-') } qw(status runs max_runs after until waiting last);
}

# Runs a statement about a schedule, and notes its effect.
sub change
{
	my ($life, $statement) = @_;
	my @rows = split /\n/, scalar_of(<<"END");
BEGIN;
SELECT id FROM jobq.schedules WHERE id = $life->{id} FOR UPDATE \\g /dev/null
SELECT state(s) FROM jobq.schedules s WHERE id = $life->{id};
SELECT try(\$try\$$statement\$try\$) \\g /dev/null
SELECT state(s) FROM jobq.schedules s WHERE id = $life->{id};
COMMIT;
END
	$life->{history} .= join("\n", $statement, map { '  ' . summary($_) } @rows) . "\n";
	if (@rows == 2)
	{
		changed($life, map { decode_json($_) } @rows);
		return;
	}
	my $row = decode_json($rows[0]);
	follow($life, $row);
	end_stretch($life, $row) if defined $life->{from};
	$life->{dropped} = $row;
	$life->{gone}{ $row->{waiting} } = 1 if defined $row->{waiting};
	return;
}

sub old_tick { return sprintf q('2001-01-01 00:%02d:%02d+00'), map { int(rand(60)) } 1, 2; }

my %changes = (
	alter => sub { return q{SELECT jobq.alter_schedule('%s', } . pick(
			q(cron => ') . pick(sort keys %periods) . q('), q(payload => '{"at": {"$": "$.tick"}}'), q(jitter => '1s'),
			'catch_up_limit => 5', q(job_type => ') . pick(qw(quick slow)) . q('), 'max_runs => ' . (10 + int(rand(40))),
			q(reset => '{max_runs}'), q(overlap => ') . pick(qw(skip queue allow cancel)) . q(')) . ')'; },
	pause => sub { return q{SELECT jobq.pause_schedule('%s'} . pick('', q(, duration => '2s')) . ')'; },
	resume => sub { return q{SELECT jobq.resume_schedule('%s')}; },
	run => sub { return q{SELECT jobq.run_schedule('%s', } . old_tick() . ')'; },
	backfill => sub { return q{SELECT jobq.backfill_schedule('%s', '2001-02-01 00:00+00', '2001-02-01 00:00:02+00')}; },
	replace => sub { return "SELECT jobq.schedule($_[0]{definition}, on_conflict => 'replace')"; },
	unschedule => sub { return q{SELECT jobq.unschedule('%s')}; });
my @kinds = ((qw(alter) x 6), qw(pause pause resume resume resume resume run run backfill replace replace unschedule));

sub change_one
{
	my $life = pick(grep { !$_->{dropped} } @lives);
	my $kind = pick(@kinds);

	if ($kind eq 'unschedule')
	{
		return if rand() < 0.5;
		new_schedule($life->{catch_up}, $life->{overlap});
	}
	my $statement = $changes{$kind}->($life);
	$life->{overlaps}{$1} = 1 if $statement =~ /overlap => '(\w+)'/;
	return change($life, $kind eq 'replace' ? $statement : sprintf $statement, $life->{name});
}

# ---------- what else happens ----------

sub terminate { return scalar_of("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE backend_type = 'jobq $_[0]'"); }

sub kill_conductor
{
	my $pid = (jobq_pids($node, 'conductor'))[0];

	return if !defined $pid;
	my $before = scalar_of('SELECT us(pg_postmaster_start_time()) + pid FROM pg_stat_activity WHERE ' . q(backend_type = 'checkpointer'));
	kill 'KILL', $pid;
	return wait_for_sql($node, "SELECT us(pg_postmaster_start_time()) + pid <> $before FROM pg_stat_activity WHERE backend_type = 'checkpointer'",
		'the server restarts after the end of its conductor');
}

my @events = shuffle(
	(sub { terminate('conductor') }) x 3, sub { terminate('dispatcher') },
	\&kill_conductor,
	sub { $node->stop('immediate'); started_server() },
	sub { $node->stop('fast'); step_clock(pick(3, 20)); started_server() },
	sub { scalar_of('SELECT jobq.reload()') },
	sub { step_clock(600) }, sub { step_clock(8) }, sub { step_clock(-5) });

# ---------- the lives ----------

foreach my $catch_up (qw(skip one all)) { new_schedule($catch_up, $_) foreach qw(skip queue allow cancel); }
new_schedule(pick(qw(skip one all)), pick(qw(skip queue allow cancel))) foreach 1 .. 8;
scalar_of(q{SELECT jobq.schedule('beat', 'every 1s', 'quick', overlap => 'allow')});

foreach my $beat (1 .. $beats)
{
	my $before = scalar_of(q{SELECT us(ticks_after) FROM jobq.schedules WHERE name = 'beat'});

	change_one() foreach 1 .. 5;
	$events[ $beat / 2 ]->() if $beat % 2 == 0 && $events[ $beat / 2 ];
	wait_for_sql($node, "SELECT us(ticks_after) > $before FROM jobq.schedules WHERE name = 'beat'", "beat $beat");
}
wait_for_sql($node, <<'END', 'no tick is late, and none waits for a job that has ended');
SELECT NOT EXISTS (SELECT FROM jobq.schedules s WHERE s.status = 'active' AND s.next_tick < clock_timestamp() - interval '1s'
                      OR s.waiting_tick IS NOT NULL AND NOT EXISTS (SELECT FROM jobq.queue q WHERE q.id = s.last_job_id))
END

# ---------- the end, in one snapshot ----------

my @answer = split /\n/, scalar_of(<<'END');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT coalesce(jsonb_object_agg(s.name, state(s)), '{}') FROM jobq.schedules s;
SELECT coalesce(jsonb_agg(to_jsonb(j)), '[]') FROM tick_jobs j WHERE name IS NOT NULL;
SELECT coalesce(jsonb_agg(to_jsonb(e)), '[]') FROM tick_events e;
COMMIT;
END
my ($rows, $jobs, $events) = map { decode_json($_) } @answer;
my (%jobs_of, %events_of);
push @{ $jobs_of{ $_->{name} } }, $_ foreach @$jobs;
push @{ $events_of{ $_->{name} } }, $_ foreach @$events;

# Returns the ticks of a stretch.
sub ticks_of
{
	my ($stretch) = @_;
	my $us = $stretch->{period} * 1_000_000;
	my @ticks;

	for (my $tick = (int($stretch->{from} / $us) + 1) * $us; $tick <= $stretch->{to}; $tick += $us) { push @ticks, $tick; }
	return @ticks;
}

# Returns the faults of a life.
sub faults_of
{
	my ($life, $row) = @_;
	my @events = sort { $a->{tick} <=> $b->{tick} } @{ $events_of{ $life->{name} } // [] };
	my (%decided, %missed, %sure, %expected, @faults);

	foreach my $job (grep { !$_->{by_hand} } @{ $jobs_of{ $life->{name} } // [] }) { $decided{ $job->{tick} } .= 'job '; }
	foreach my $event (grep { $_->{type} eq 'tick_skipped' } @events)
	{
		if ($event->{reason} eq 'missed') { $missed{ $event->{tick} } += $event->{count}; }
		else { $decided{ $event->{tick} } .= "$event->{reason} "; }
	}
	$decided{ $row->{waiting} } .= 'waits ' if defined $row->{waiting};
	foreach my $stretch (@{ $life->{stretches} })
	{
		foreach my $tick (ticks_of($stretch)) { $expected{$tick} = 1; $sure{$tick} = 1 if $tick <= $stretch->{sure}; }
	}
	push @faults, map { "$_: $decided{$_}" } grep { $decided{$_} !~ /^\w+ $/ } sort keys %decided;
	push @faults, map { "$_: $decided{$_}outside of its life" } grep { !$expected{$_} } sort keys %decided;
	# each "missed" counts the ticks without a job since the one before
	my ($least, $most) = (0, 0);
	foreach my $tick (sort { $a <=> $b } keys %expected, grep { !$expected{$_} } keys %missed)
	{
		if ($expected{$tick} && !$decided{$tick} && !$life->{gone}{$tick}) { $most++; $least++ if $sure{$tick}; }
		next if !defined $missed{$tick};
		push @faults, "$tick: $missed{$tick} missed of $least..$most" if $missed{$tick} < $least || $missed{$tick} > $most;
		($least, $most) = (0, 0);
	}
	push @faults, "$least ticks are lost" if $least > 0;
	return (@faults, faults_of_sums($life, $row, \@events));
}

sub faults_of_sums
{
	my ($life, $row, $events) = @_;
	my @jobs = @{ $jobs_of{ $life->{name} } // [] };
	my $skipped = sum0(map { $_->{count} } grep { $_->{type} eq 'tick_skipped' } @$events);
	my @ticked = map { $_->{tick} } grep { $_->{type} eq 'ticked' } @$events;
	my @by_tick = sort { $a <=> $b } map { $_->{tick} } grep { !$_->{by_hand} } @jobs;
	my @overlaps = sort keys %{ { map { $_->{reason} => 1 } @$events } };
	my @faults;

	push @faults, "the events are not those of its jobs" if "@ticked" ne "@by_tick";
	push @faults, 'skipped although it may overlap'
	  if $life->{overlap} =~ /allow|cancel/ && !$life->{overlaps} && grep { $_ eq 'overlap' } @overlaps;
	return @faults if $life->{dropped};
	push @faults, "runs = $row->{runs}, but there are " . @jobs . ' jobs' if $row->{runs} != @jobs;
	push @faults, "skipped = $row->{skipped}, events have $skipped" if $row->{skipped} != $skipped;
	return @faults;
}

foreach my $life (@lives)
{
	my $row = $life->{dropped} // $rows->{ $life->{name} };

	follow($life, $row) if !$life->{dropped};
	end_stretch($life, $row) if defined $life->{from};
	my @faults = faults_of($life, $row);
	is("@faults", '', "!$life->{name}: each tick has one job or one reason");
	diag("schedule($life->{definition})\n" . ($life->{history} // '') . encode_json($life->{stretches})) if @faults;
}
my %outcomes;
$outcomes{ $_->{reason} || 'ticked' } += $_->{count} foreach @$events;
note(join ', ', map { "$_ $outcomes{$_}" } sort keys %outcomes);
cmp_ok($outcomes{$_} // 0, '>', 0, "some ticks: $_") foreach qw(ticked overlap missed);
unlike(slurp_file($node->logfile), qr/PANIC|TRAP:|could not take its turn/, 'no process of the server failed');
$node->stop;
done_testing();
