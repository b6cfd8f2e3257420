/*
 * schedule_turn.c
 *	  Decisions about the ticks of one schedule: catch_up, overlap, max_runs.
 *
 * The row has all state, so that a decision that was rolled back is made again
 * from the row:
 *
 *	 ticks_after	each tick up to this time has a job or a reason, or is gone
 *	 next_tick		the next one; of "after 90s" NULL while the last job lives
 *	 waiting_tick	overlap = queue: the newest tick that came while the last
 *					job lived
 *
 *	 event						effect
 *	 a tick is due				by overlap: a job, a skip, or it waits
 *	 several are due			all of them, unless the first is LATE_US late:
 *								then by catch_up
 *	 one is LATE_US late		the same with catch_up = all
 *	 the last job has ended		the waiting tick, the next tick of "after 90s"
 *	 a job became a dead letter	counts for pause_after_failures
 *	 enqueue raises an error	a skip; a pause if right, role or type lack
 *	 paused_until has passed	active
 *	 no tick up to ends_at, or	finished
 *		max_runs jobs
 */
#include "jobq.h"

#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/texts.h"
#include "enqueue/insert_job.h"
#include "registry/options.h"
#include "schedule/schedule_ticks.h"
#include "schedule/schedule_turn.h"
#include "schedule/schedule_turn_internal.h"
#include "security/access.h"

#define LATE_US			(5 * USECS_PER_SEC)
#define SKIP_LATE_US	USECS_PER_MINUTE	/* catch_up = skip */
#define MAX_COUNTED		100000	/* missed ticks of a calendar, which are counted one by one */

/* Missed ticks without a job. */
typedef struct Dropped
{
	int64		n;
	bool		at_least;		/* there are more: n is MAX_COUNTED */
} Dropped;

/* ---------- one tick ---------- */

/*
 * True if the tick follows the last one sooner than the job type allows to an
 * owner that is held to its grants.  schedule() looks at the next ticks only.
 */
static bool
is_too_soon(Schedule *s, TimestampTz tick)
{
	JobType    *type;

	if (S_NULL(s, S_last_tick) || access_is_free(DatumGetObjectId(S_ATT(s, S_owner_oid))))
		return false;
	type = job_type_by_name(TextDatumGetCString(S_ATT(s, S_job_type)));
	return type != NULL &&
		tick - S_TIME(s, S_last_tick) < option_interval(type->options, "min_interval", USECS_PER_MINUTE);
}

/*
 * Returns false if the tick has no job: another one has its unique key, or it
 * comes too soon.
 */
static bool
start(TickTurn *turn, Schedule *s, TimestampTz tick)
{
	pg_uuid_t  *id = palloc(sizeof(pg_uuid_t));

	if (!schedule_may_run(s))
		return false;
	if (is_too_soon(s, tick))
	{
		turn_skip(turn, s, tick, "min_interval", 1);
		return false;
	}
	if (!tick_enqueue(&turn->e, s, tick, id))
	{
		turn_skip(turn, s, tick, "unique_key", 1);
		return false;
	}
	schedule_set_time(s, S_last_tick, tick);
	turn->counts[TICK_ENQUEUED]++;
	turn_ticked(turn, s, tick, id);
	return true;
}

void
turn_start_waiting(TickTurn *turn, Schedule *s)
{
	TimestampTz tick = S_TIME(s, S_waiting_tick);

	schedule_set_null(s, S_waiting_tick);
	(void) start(turn, s, tick);
}

/*
 * Starts, drops or keeps a tick, by the rule for a last job that still lives.
 * An older tick that waits goes first: the end of its job may not be heard yet.
 */
static void
start_by_overlap(TickTurn *turn, Schedule *s, TimestampTz tick)
{
	if (!S_NULL(s, S_waiting_tick) && (s->overlap == OVERLAP_ALLOW || !turn_job_lives(turn, s)))
		turn_start_waiting(turn, s);
	if (s->overlap == OVERLAP_ALLOW || !turn_job_lives(turn, s))
	{
		(void) start(turn, s, tick);
		return;
	}
	switch (s->overlap)
	{
		case OVERLAP_SKIP:
			turn_skip(turn, s, tick, "overlap", 1);
			break;
		case OVERLAP_QUEUE:
			if (!S_NULL(s, S_waiting_tick))
				turn_skip(turn, s, S_TIME(s, S_waiting_tick), "overlap", 1);
			schedule_set_time(s, S_waiting_tick, tick);
			break;
		case OVERLAP_CANCEL:
			if (turn->own_job)	/* else it was retried, and is a user's */
				turn_cancel_job(s);
			(void) start(turn, s, tick);
			break;
		case OVERLAP_ALLOW:
			break;
	}
}

/* ---------- the ticks that are due ---------- */

/*
 * Returns a time before the newest `limit` ticks up to the newest one, not
 * long before the first of them; ticks_after if there are no more.
 */
static TimestampTz
time_before_newest(Schedule *s, TimestampTz newest, int limit)
{
	TimestampTz bound = S_TIME(s, S_ticks_after);

	for (int64 span = USECS_PER_MINUTE; span < newest - bound; span *= 2)
	{
		if (schedule_count(s, newest - span, newest, limit) >= limit)
			return newest - span;
	}
	return bound;
}

/* True if the ticks that are due count as missed: catch_up decides. */
static bool
is_missed(TickTurn *turn, Schedule *s, TimestampTz first)
{
	if (first <= turn->missed_until)
		return true;
	return turn->now - first > LATE_US &&
		(s->catch_up == CATCH_UP_ALL || schedule_next(s, first) <= turn->now);
}

/* Counts the ticks up to the newest one, but for the newest `kept`. */
static Dropped
count_dropped(Schedule *s, TimestampTz newest, int kept)
{
	Dropped		dropped;
	int64		max;

	schedule_parse(s);
	max = cron_is_every(s->cron) ? PG_INT64_MAX : MAX_COUNTED + kept + 1;
	dropped.n = Max(schedule_count(s, S_TIME(s, S_ticks_after), newest, max) - kept, 0);
	dropped.at_least = dropped.n == max - kept;
	if (dropped.at_least)
		dropped.n = MAX_COUNTED;
	return dropped;
}

/*
 * Returns the first tick to decide, and the number of missed ones before it
 * that are dropped; DT_NOEND: none is due.
 */
static TimestampTz
first_decision(TickTurn *turn, Schedule *s, Dropped *dropped)
{
	TimestampTz first = schedule_first_tick(s);
	TimestampTz newest;
	TimestampTz before;
	int64		surplus;

	*dropped = (Dropped) {0};
	if (first > turn->now)
		return DT_NOEND;
	if (!is_missed(turn, s, first))
		return first;
	if (s->catch_up == CATCH_UP_ALL && first <= turn->missed_until)
		return first;			/* an earlier turn has dropped the older ones */
	newest = schedule_last(s, S_TIME(s, S_ticks_after), turn->now);
	*dropped = count_dropped(s, newest, s->catch_up == CATCH_UP_ALL ? S_INT(s, S_catch_up_limit) : 1);
	if (s->catch_up != CATCH_UP_ALL)
		return newest;
	turn->missed_until = newest;
	before = time_before_newest(s, newest, S_INT(s, S_catch_up_limit));
	surplus = schedule_count(s, before, newest, PG_INT64_MAX) - S_INT(s, S_catch_up_limit);
	for (first = schedule_next(s, before); surplus > 0; surplus--)
		first = schedule_next(s, first);
	return first;
}

/*
 * Decides the ticks up to now, the first turn->ticks_left of them, and none
 * after the last run that max_runs allows: it would cancel that one.  Missed ones
 * with catch_up = all end at the newest that was missed when the first of them
 * was decided: later ones are for another turn.
 */
static void
decide_ticks(TickTurn *turn, Schedule *s)
{
	Dropped		dropped;
	TimestampTz first = first_decision(turn, s, &dropped);
	bool		all = s->catch_up == CATCH_UP_ALL && first <= turn->missed_until;
	TimestampTz until = all ? turn->missed_until : turn->now;

	turn_skip_missed(turn, s, first, dropped.n, dropped.at_least);
	if (all && !S_NULL(s, S_waiting_tick))
		turn_start_waiting(turn, s);
	for (TimestampTz tick = first; tick <= until && turn->ticks_left > 0 && schedule_may_run(s); tick = schedule_next(s, tick))
	{
		CHECK_FOR_INTERRUPTS();
		if (s->catch_up == CATCH_UP_SKIP && turn->now - tick > SKIP_LATE_US)
			turn_skip(turn, s, tick, "late", 1);
		else if (all)
			(void) start(turn, s, tick);
		else
			start_by_overlap(turn, s, tick);
		schedule_set_time(s, S_ticks_after, tick);
		turn->ticks_left--;
	}
}

void
turn_set_next(Schedule *s, TimestampTz next)
{
	if (next == DT_NOEND || !schedule_may_run(s))
	{
		schedule_set_status(s, SCHEDULE_FINISHED, NULL);
		next = DT_NOEND;
	}
	if (next == DT_NOEND ? !S_NULL(s, S_next_tick) : next != S_TIME(s, S_next_tick))
		schedule_set_time(s, S_next_tick, next);
}

static void
calendar_due(TickTurn *turn, Schedule *s)
{
	if (schedule_first_tick(s) <= turn->now)
		decide_ticks(turn, s);
	turn_set_next(s, schedule_first_tick(s));
}

void
turn_set_next_after(Schedule *s, TimestampTz time)
{
	TimestampTz next = time + schedule_interval_us(s);

	if (!S_NULL(s, S_starts_at))
		next = Max(next, S_TIME(s, S_starts_at));
	turn_set_next(s, !S_NULL(s, S_ends_at) && next > S_TIME(s, S_ends_at) ? DT_NOEND : next);
}

static void
after_due(TickTurn *turn, Schedule *s)
{
	TimestampTz tick = schedule_first_tick(s);

	if (S_NULL(s, S_next_tick) && S_NULL(s, S_last_job_id))
		turn_set_next_after(s, S_TIME(s, S_ticks_after));
	if (tick > turn->now)
		return;
	schedule_set_time(s, S_ticks_after, tick);
	if (turn_job_lives(turn, s))
		schedule_set_null(s, S_next_tick);	/* run_schedule() has started it */
	else if (s->catch_up == CATCH_UP_SKIP && turn->now - tick > SKIP_LATE_US)
	{
		turn_skip(turn, s, tick, "late", 1);
		turn_set_next_after(s, turn->now);
	}
	else
	{
		schedule_set_null(s, S_next_tick);
		if (!start(turn, s, tick))
			turn_set_next_after(s, turn->now);
		if (!schedule_may_run(s))
			turn_set_next(s, DT_NOEND);
	}
}

/* Ends a pause whose duration is over; ticks before its end are gone. */
static void
resume_in_time(TickTurn *turn, Schedule *s)
{
	TimestampTz until = S_TIME(s, S_paused_until);

	if (s->status != SCHEDULE_PAUSED || S_NULL(s, S_paused_until) || until > turn->now)
		return;
	schedule_set_status(s, SCHEDULE_ACTIVE, NULL);
	schedule_set(s, S_failures, Int32GetDatum(0));
	schedule_set_null(s, S_waiting_tick);
	schedule_set_time(s, S_ticks_after, Max(until, S_TIME(s, S_ticks_after)));
	if (schedule_is_after(s))
		turn_set_next_after(s, until);
	else
		turn_set_next(s, schedule_first_tick(s));
}

void
turn_due(TickTurn *turn, Schedule *s)
{
	bool		waited = !S_NULL(s, S_waiting_tick);

	resume_in_time(turn, s);
	if (schedule_waits(s))
		turn_look(turn, s);
	if (waited && S_NULL(s, S_waiting_tick))
		turn->ticks_left--;
	if (s->status != SCHEDULE_ACTIVE || turn->ticks_left <= 0)
		return;
	if (schedule_is_after(s))
		after_due(turn, s);
	else
		calendar_due(turn, s);
}

/* ---------- errors ---------- */

/* True if the error lasts until the owner, a right or the type changes. */
static bool
lasts(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_INSUFFICIENT_PRIVILEGE || error->sqlerrcode == ERRCODE_UNDEFINED_OBJECT;
}

/*
 * Decides the tick of a turn that was rolled back, and returns it: the one
 * that waited, unless its job still lives, or the first that is due.
 */
static TimestampTz
take_refused(TickTurn *turn, Schedule *s)
{
	TimestampTz tick = S_TIME(s, S_waiting_tick);
	Dropped		dropped = {0};

	if (!S_NULL(s, S_waiting_tick) && !turn_job_lives(turn, s))
	{
		schedule_set_null(s, S_waiting_tick);
		return tick;
	}
	tick = schedule_is_after(s) ? schedule_first_tick(s) : first_decision(turn, s, &dropped);
	if (tick > turn->now)
		return DT_NOBEGIN;
	turn_skip_missed(turn, s, tick, dropped.n, dropped.at_least);
	schedule_set_time(s, S_ticks_after, tick);
	return tick;
}

void
turn_refused(TickTurn *turn, Schedule *s, const ErrorData *error)
{
	const char *trouble = schedule_trouble(s);
	TimestampTz tick;

	if (trouble != NULL)
	{
		turn_fail(turn, s, trouble);
		return;
	}
	resume_in_time(turn, s);
	tick = take_refused(turn, s);
	if (tick != DT_NOBEGIN)
		turn_add_refused(turn, s, tick, error);
	if (lasts(error))
		turn_pause(turn, s, tick != DT_NOBEGIN ? tick : S_TIME(s, S_last_tick), bounded_text(error->message));
	else if (schedule_is_after(s))
		turn_set_next_after(s, turn->now);
	else
		turn_set_next(s, schedule_first_tick(s));
}
