/*
 * test_turn.c
 *	  Decisions of a schedule's turn: due and missed ticks, catch_up, overlap,
 *	  beside a model that lists all ticks.
 *
 *	  test_turn [CASES [SEED]]
 */
#include "fake_conductor.h"

#include "schedule/schedule_ticks.h"

#define SECOND		INT64CONST(1000000)

/* ---------- the model ---------- */

static Schedule row;
static Traced expected[MAX_TRACE];
static int	nexpected;
static bool lives;				/* the model's last job */
static bool own;
static TimestampTz waits;		/* its waiting tick; 0: none */
static int64 runs_left;
static int64 decisions;			/* of all cases */

static void
expect(const char *what, TimestampTz tick, int64 n)
{
	if (nexpected < MAX_TRACE)
		expected[nexpected++] = (Traced) {what, tick, n};
}

static void
expect_job(TimestampTz tick)
{
	if (runs_left <= 0)
		return;
	if (has_unique_job)
	{
		expect("unique_key", tick, 1);
		return;
	}
	runs_left--;
	expect("job", tick, 0);
	lives = own = true;
}

static void
expect_waiting(void)
{
	TimestampTz tick = waits;

	waits = 0;
	if (tick != 0)
		expect_job(tick);
}

/* docs/schedules.md: what overlap does with a tick while the last job lives. */
static void
expect_by_overlap(TimestampTz tick)
{
	if (!lives || row.overlap == OVERLAP_ALLOW)
		expect_waiting();
	if (lives && row.overlap == OVERLAP_SKIP)
		expect("overlap", tick, 1);
	else if (lives && row.overlap == OVERLAP_QUEUE)
	{
		if (waits != 0)
			expect("overlap", waits, 1);
		waits = tick;
	}
	else
	{
		if (lives && row.overlap == OVERLAP_CANCEL && own)
		{
			expect("cancel", 0, 0);
			lives = false;
		}
		expect_job(tick);
	}
}

/* Lists the ticks up to now, and what catch_up does with them. */
static void
expect_due(TimestampTz now)
{
	TimestampTz ticks[MAX_TRACE];
	int			n = 0;
	int			first = 0;
	bool		missed;
	bool		all;

	for (TimestampTz tick = interval; tick <= now; tick += interval)
	{
		if (tick > S_TIME(&row, S_ticks_after) && tick >= S_TIME(&row, S_starts_at) &&
			(S_NULL(&row, S_ends_at) || tick <= S_TIME(&row, S_ends_at)))
			ticks[n++] = tick;
	}
	if (!lives && waits != 0)
	{
		expect_waiting();
		if (runs_left <= 0)
			return;				/* finished */
	}
	missed = n > 0 && now - ticks[0] > 5 * SECOND && (n > 1 || row.catch_up == CATCH_UP_ALL);
	all = missed && row.catch_up == CATCH_UP_ALL;
	if (missed)
		first = Max(n - (all ? S_INT(&row, S_catch_up_limit) : 1), 0);
	if (first > 0)
		expect("missed", ticks[first], first);
	if (all)
		expect_waiting();
	for (int i = first; i < n && runs_left > 0; i++)
	{
		if (all)
			expect_job(ticks[i]);
		else if (row.catch_up == CATCH_UP_SKIP && now - ticks[i] > 60 * SECOND)
			expect("late", ticks[i], 1);
		else
			expect_by_overlap(ticks[i]);
	}
}

/* ---------- cases ---------- */

static void
set_row(CatchUp catch_up, int limit, Overlap overlap, TimestampTz ticks_after)
{
	memset(&row, 0, sizeof(row));
	memset(row.nulls, true, sizeof(row.nulls));
	row.catch_up = catch_up;
	row.overlap = overlap;
	schedule_set(&row, S_runs, Int64GetDatum(0));
	schedule_set(&row, S_catch_up_limit, Int32GetDatum(limit));
	schedule_set_time(&row, S_ticks_after, ticks_after);
	ntrace = nexpected = 0;
	is_after = has_unique_job = last_job_lives = false;
	last_job_is_own = true;
}

static TickTurn
turn_at(TimestampTz now, int ticks_left)
{
	TickTurn	turn = {.now = now, .ticks_left = ticks_left, .missed_until = DT_NOBEGIN};

	return turn;
}

static bool
same_trace(void)
{
	bool		same = ntrace == nexpected;

	decisions += ntrace;
	for (int i = 0; i < Min(ntrace, nexpected); i++)
		same = same && strcmp(trace[i].what, expected[i].what) == 0 && trace[i].tick == expected[i].tick &&
			trace[i].n == expected[i].n;
	for (int i = 0; !same && i < Max(ntrace, nexpected) && i < 20; i++)
		printf("# %s %lld %lld, the model: %s %lld %lld\n", i < ntrace ? trace[i].what : "-",
			   (long long) trace[i].tick, (long long) trace[i].n,
			   i < nexpected ? expected[i].what : "-", (long long) expected[i].tick,
				   (long long) expected[i].n);
	return same;
}

/*
 * One turn, or several that may decide few ticks each, decide what the model
 * does.
 */
static bool
turn_case(void)
{
	TimestampTz now = 1000 * SECOND + below(1000) * SECOND + (below(2) ? below(1000000) : 0);
	int			few = below(2) ? 1 + below(3) : 0;
	TickTurn	turn;

	interval = (1 + below(below(2) ? 10 : 200)) * SECOND;
	is_every = below(2);
	set_row(below(3), 1 + below(20), below(4), now - below(below(2) ? 10 : 900) * SECOND);
	if (below(4) == 0)
		schedule_set_time(&row, S_starts_at, now - below(1000) * SECOND);
	if (below(4) == 0)
		schedule_set_time(&row, S_ends_at, now + (below(1000) - 500) * SECOND);
	if (schedule_first_tick(&row) == DT_NOEND)
		schedule_set_null(&row, S_ends_at); /* it would be finished */
	if (below(4) == 0)
		schedule_set(&row, S_max_runs, Int32GetDatum(1 + below(10)));
	has_unique_job = below(8) == 0;
	last_job_lives = lives = below(2);
	last_job_is_own = own = below(4) > 0;
	waits = row.overlap == OVERLAP_QUEUE && below(2) ? S_TIME(&row, S_ticks_after) / interval * interval : 0;
	if (waits != 0)
		schedule_set_time(&row, S_waiting_tick, waits);
	runs_left = S_NULL(&row, S_max_runs) ? INT_MAX : S_INT(&row, S_max_runs);
	schedule_set_time(&row, S_next_tick, schedule_first_tick(&row));
	expect_due(now);
	turn = turn_at(now, MAX_TRACE);
	for (int i = 0; i == 0 || (few > 0 && i < MAX_TRACE && row.status == SCHEDULE_ACTIVE &&
							   schedule_first_tick(&row) <= now); i++)
	{
		if (few > 0)
			turn.ticks_left = few;
		turn_due(&turn, &row);
	}
	if (row.status == SCHEDULE_FINISHED ? schedule_first_tick(&row) != DT_NOEND && schedule_may_run(&row) :
		S_TIME(&row, S_next_tick) != schedule_first_tick(&row) || S_TIME(&row, S_next_tick) <= now ||
			!schedule_may_run(&row))
	{
		printf("# the next tick is wrong\n");
		return false;
	}
	return same_trace() && (waits != 0) == !S_NULL(&row, S_waiting_tick);
}

/* ---------- single decisions ---------- */

static bool
traced(int n, const char *what, TimestampTz tick, int64 count)
{
	return ntrace == n + 1 && strcmp(trace[n].what, what) == 0 && trace[n].tick == tick &&
		trace[n].n == count;
}

static void
check_counts(void)
{
	TimestampTz now = 300000 * SECOND;
	TickTurn	turn = turn_at(now, 100);

	interval = SECOND;
	is_every = false;
	set_row(CATCH_UP_ONE, 1, OVERLAP_SKIP, 0);
	turn_due(&turn, &row);
	CHECK(strcmp(trace[0].what, "missed, at least") == 0 && trace[0].n == 100000,
		  "missed ticks of a calendar are counted up to 100,000");
	CHECK(traced(1, "job", now, 0), "and the newest has a job");
	is_every = true;
	set_row(CATCH_UP_ONE, 1, OVERLAP_SKIP, 0);
	turn_due(&turn, &row);
	CHECK(strcmp(trace[0].what, "missed") == 0 && trace[0].n == 299999,
		  "those of an interval are counted exactly");
}

static void
check_pauses(void)
{
	TickTurn	turn = turn_at(1000 * SECOND, 100);
	ErrorData	error = {.sqlerrcode = ERRCODE_INSUFFICIENT_PRIVILEGE, .message = "no"};

	interval = 10 * SECOND;
	set_row(CATCH_UP_ALL, 100, OVERLAP_ALLOW, 0);
	row.status = SCHEDULE_PAUSED;
	schedule_set_time(&row, S_paused_until, 1001 * SECOND);
	turn_due(&turn, &row);
	CHECK(row.status == SCHEDULE_PAUSED && ntrace == 0, "a pause holds until its time");
	turn.now = 1001 * SECOND;
	turn_due(&turn, &row);
	CHECK(row.status == SCHEDULE_ACTIVE && ntrace == 0 && S_TIME(&row, S_next_tick) == 1010 * SECOND,
		  "the ticks of a pause are gone");
	turn.now = 1012 * SECOND;
	turn_refused(&turn, &row, &error);
	CHECK(strcmp(trace[0].what, "refused") == 0 && trace[0].tick == 1010 * SECOND &&
		  traced(1, "pause", 1010 * SECOND, 0),
		  "an error that lasts drops the tick and pauses the schedule");
	row.status = SCHEDULE_ACTIVE;
	ntrace = 0;
	turn.now = 1022 * SECOND;
	error.sqlerrcode = ERRCODE_INVALID_PARAMETER_VALUE;
	turn_refused(&turn, &row, &error);
	CHECK(traced(0, "refused", 1020 * SECOND, 1) && row.status == SCHEDULE_ACTIVE &&
		  S_TIME(&row, S_next_tick) == 1030 * SECOND, "another one drops the tick");
}

/* "after 90s" */
static void
check_after(void)
{
	TickTurn	turn = turn_at(1000 * SECOND, 100);

	interval = 90 * SECOND;
	set_row(CATCH_UP_SKIP, 1, OVERLAP_SKIP, 1000 * SECOND);
	is_after = true;
	turn_due(&turn, &row);
	CHECK(ntrace == 0 && S_TIME(&row, S_next_tick) == 1090 * SECOND,
		  "the first tick comes an interval later");
	turn.now = 1091 * SECOND;
	turn_due(&turn, &row);
	CHECK(traced(0, "job", 1090 * SECOND, 0) && S_NULL(&row, S_next_tick),
		  "while its job lives there is no next one");
	turn.now = 2000 * SECOND;
	turn_due(&turn, &row);
	CHECK(ntrace == 1, "however long");
	last_job_lives = false;
	schedule_set_time(&row, S_next_tick, 1900 * SECOND);
	turn_due(&turn, &row);
	CHECK(traced(1, "late", 1900 * SECOND, 1) && S_TIME(&row, S_next_tick) == 2090 * SECOND,
		  "one that is a minute late is skipped by catch_up = skip");
	has_unique_job = true;
	turn.now = 2090 * SECOND;
	turn_due(&turn, &row);
	CHECK(traced(2, "unique_key", 2090 * SECOND, 1) && S_TIME(&row, S_next_tick) == 2180 * SECOND,
		  "without a job the next tick comes an interval later");
}

int
main(int argc, char **argv)
{
	int			cases = random_start(argc, argv, 20000);
	bool		ok = true;

	for (int i = 0; ok && i < cases; i++)
		ok = turn_case();
	CHECK(ok, "due and missed ticks are decided as the model has it");
	CHECK(!ok || decisions > cases, "cases have ticks");
	check_counts();
	check_pauses();
	check_after();
	return done();
}
