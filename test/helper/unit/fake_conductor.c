/*
 * fake_conductor.c
 *	  The conductor around decisions of a schedule's turn: see fake_conductor.h.
 */
#include "fake_conductor.h"

#include "miscadmin.h"
#include "utils/builtins.h"

#include "base/texts.h"
#include "registry/job_types.h"
#include "registry/options.h"
#include "schedule/schedule_ticks.h"
#include "security/access.h"

Traced		trace[MAX_TRACE];
int			ntrace;
int64		interval;
bool		is_every;
bool		is_after;
bool		last_job_lives;
bool		last_job_is_own;
bool		has_unique_job;

static void
note(const char *what, TimestampTz tick, int64 n)
{
	if (ntrace < MAX_TRACE)
		trace[ntrace++] = (Traced) {what, tick, n};
}

volatile sig_atomic_t InterruptPending = false;

void
ProcessInterrupts(void)
{
}

bool
access_is_free(Oid role)
{
	return true;
}

JobType *
job_type_by_name(const char *name)
{
	return NULL;
}

int64
option_interval(Jsonb *options, const char *key, int64 fallback)
{
	return fallback;
}

char *
text_to_cstring(const text *t)
{
	return NULL;
}

char *
bounded_text(char *text)
{
	return text;
}

void
schedule_set(Schedule *s, int att, Datum value)
{
	S_ATT(s, att) = value;
	S_NULL(s, att) = false;
}

void
schedule_set_null(Schedule *s, int att)
{
	S_NULL(s, att) = true;
}

void
schedule_set_time(Schedule *s, int att, TimestampTz value)
{
	schedule_set(s, att, TimestampTzGetDatum(value));
	S_NULL(s, att) = value == DT_NOEND;
}

void
schedule_set_status(Schedule *s, ScheduleStatus status, const char *reason)
{
	s->status = status;
	schedule_set_null(s, S_paused_until);
}

void
schedule_parse(Schedule *s)
{
	static union
	{
		Cron		cron;
		char		space[sizeof(Cron) + sizeof(CronRule)];
	}			parsed;

	parsed.cron.count = 1;
	parsed.cron.rules[0].kind = is_every ? CRON_EVERY : CRON_CALENDAR;
	s->cron = &parsed.cron;
}

const char *
schedule_trouble(Schedule *s)
{
	return NULL;
}

bool
schedule_is_after(Schedule *s)
{
	return is_after;
}

int64
schedule_interval_us(Schedule *s)
{
	return interval;
}

/* Returns the last tick up to a time, whatever starts_at. */
static TimestampTz
tick_until(Schedule *s, TimestampTz until)
{
	return (S_NULL(s, S_ends_at) ? until : Min(until, S_TIME(s, S_ends_at))) / interval * interval;
}

/* Returns the first tick after a time, whatever ends_at. */
static TimestampTz
tick_after(Schedule *s, TimestampTz after)
{
	return Max(after, S_TIME(s, S_starts_at) - !S_NULL(s, S_starts_at)) / interval * interval + interval;
}

TimestampTz
schedule_next(Schedule *s, TimestampTz after)
{
	TimestampTz tick = tick_after(s, after);

	return !S_NULL(s, S_ends_at) && tick > S_TIME(s, S_ends_at) ? DT_NOEND : tick;
}

TimestampTz
schedule_last(Schedule *s, TimestampTz after, TimestampTz until)
{
	TimestampTz tick = tick_until(s, until);

	return tick < tick_after(s, after) ? DT_NOEND : tick;
}

int64
schedule_count(Schedule *s, TimestampTz after, TimestampTz until, int64 max)
{
	return Min(Max((tick_until(s, until) - tick_after(s, after)) / interval + 1, 0), max);
}

TimestampTz
schedule_first_tick(Schedule *s)
{
	if (is_after)
		return S_NULL(s, S_next_tick) ? DT_NOEND : S_TIME(s, S_next_tick);
	return schedule_next(s, S_TIME(s, S_ticks_after));
}

bool
schedule_waits(Schedule *s)
{
	return !S_NULL(s, S_waiting_tick);
}

bool
schedule_may_run(Schedule *s)
{
	return S_NULL(s, S_max_runs) || DatumGetInt64(S_ATT(s, S_runs)) < S_INT(s, S_max_runs);
}

bool
tick_enqueue(Enqueuer *e, Schedule *s, TimestampTz tick, pg_uuid_t *id)
{
	if (has_unique_job)
		return false;
	note("job", tick, 0);
	schedule_set(s, S_runs, Int64GetDatum(DatumGetInt64(S_ATT(s, S_runs)) + 1));
	S_NULL(s, S_last_job_id) = false;
	last_job_lives = last_job_is_own = true;
	return true;
}

bool
turn_job_lives(TickTurn *turn, Schedule *s)
{
	turn->own_job = last_job_is_own;
	return last_job_lives;
}

void
turn_cancel_job(Schedule *s)
{
	note("cancel", 0, 0);
	last_job_lives = false;
}

/* The end of the last job is noticed here. */
void
turn_look(TickTurn *turn, Schedule *s)
{
	if (last_job_lives || S_NULL(s, S_waiting_tick))
		return;
	turn_start_waiting(turn, s);
	if (!schedule_may_run(s))
		turn_set_next(s, DT_NOEND);
}

void
turn_ticked(TickTurn *turn, Schedule *s, TimestampTz tick, const pg_uuid_t *job)
{
}

void
turn_skip(TickTurn *turn, Schedule *s, TimestampTz tick, const char *reason, int64 n)
{
	note(reason, tick, n);
}

void
turn_skip_missed(TickTurn *turn, Schedule *s, TimestampTz tick, int64 n, bool at_least)
{
	if (n > 0)
		note(at_least ? "missed, at least" : "missed", tick, n);
}

void
turn_add_refused(TickTurn *turn, Schedule *s, TimestampTz tick, const ErrorData *error)
{
	note("refused", tick, 1);
}

void
turn_pause(TickTurn *turn, Schedule *s, TimestampTz tick, const char *reason)
{
	note("pause", tick, 0);
	s->status = SCHEDULE_PAUSED;
}

void
turn_fail(TickTurn *turn, Schedule *s, const char *message)
{
	abort();
}
