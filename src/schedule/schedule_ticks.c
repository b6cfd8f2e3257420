/*
 * schedule_ticks.c
 *	  The ticks of a row of jobq.schedules: see schedule_ticks.h.
 */
#include "jobq.h"

#include "common/hashfn.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/interval.h"
#include "schedule/cron_arguments.h"
#include "schedule/schedule_ticks.h"

/* Returns the first whole second at or after a time. */
static int64
second_from(TimestampTz time)
{
	int64		second = tick_seconds(time);

	return tick_time(second) < time ? second + 1 : second;
}

void
schedule_parse(Schedule *s)
{
	if (s->cron != NULL)
		return;
	s->cron = cron_argument(TextDatumGetCString(S_ATT(s, S_cron)));
	s->zone = zone_argument(TextDatumGetCString(S_ATT(s, S_timezone)));
	if (!S_NULL(s, S_starts_at))
		s->cron->origin = second_from(S_TIME(s, S_starts_at));
}

const char *
schedule_trouble(Schedule *s)
{
	char	   *expression = TextDatumGetCString(S_ATT(s, S_cron));
	char	   *zone = TextDatumGetCString(S_ATT(s, S_timezone));
	CronError	error;

	if (cron_zone_find(zone) == NULL)
		return psprintf("time zone \"%s\" does not exist", zone);
	if (strlen(expression) > CRON_MAX_BYTES || !cron_parse(expression, palloc(cron_size(expression)), &error))
		return psprintf("cron \"%s\" is no expression", expression);
	return NULL;
}

bool
schedule_is_after(Schedule *s)
{
	schedule_parse(s);
	return cron_is_after(s->cron);
}

int64
schedule_interval_us(Schedule *s)
{
	schedule_parse(s);
	return s->cron->rules[0].interval * USECS_PER_SEC;
}

/* Returns the second before the first one that counts. */
static int64
lower_bound(Schedule *s, TimestampTz after)
{
	int64		second = tick_seconds(after);

	return S_NULL(s, S_starts_at) ? second : Max(second, second_from(S_TIME(s, S_starts_at)) - 1);
}

static int64
upper_bound(Schedule *s, TimestampTz until)
{
	return tick_seconds(S_NULL(s, S_ends_at) ? until : Min(until, S_TIME(s, S_ends_at)));
}

TimestampTz
schedule_next(Schedule *s, TimestampTz after)
{
	TimestampTz tick;

	schedule_parse(s);
	tick = tick_time(cron_next(s->cron, s->zone, lower_bound(s, after)));
	return !S_NULL(s, S_ends_at) && tick > S_TIME(s, S_ends_at) ? DT_NOEND : tick;
}

TimestampTz
schedule_last(Schedule *s, TimestampTz after, TimestampTz until)
{
	int64		from = lower_bound(s, after);
	int64		to = upper_bound(s, until);

	schedule_parse(s);
	return from >= to ? DT_NOEND : tick_time(cron_last(s->cron, s->zone, from, to));
}

int64
schedule_count(Schedule *s, TimestampTz after, TimestampTz until, int64 max)
{
	int64		from = lower_bound(s, after);
	int64		to = upper_bound(s, until);

	schedule_parse(s);
	return from >= to ? 0 : cron_count(s->cron, s->zone, from, to, max);
}

TimestampTz
schedule_first_tick(Schedule *s)
{
	if (!schedule_is_after(s))
		return schedule_next(s, S_TIME(s, S_ticks_after));
	return S_NULL(s, S_next_tick) ? DT_NOEND : S_TIME(s, S_next_tick);
}

/* The name counts and not the id: a definition that is made again keeps it. */
int64
schedule_jitter_us(Schedule *s, TimestampTz tick)
{
	int64		jitter = interval_to_us(DatumGetIntervalP(S_ATT(s, S_jitter)));
	text	   *name = DatumGetTextPP(S_ATT(s, S_name));
	uint64		hash;

	if (jitter <= 0)
		return 0;
	hash = hash_bytes_extended((unsigned char *) VARDATA_ANY(name), VARSIZE_ANY_EXHDR(name), (uint64) tick);
	return (int64) (hash % (uint64) jitter);
}

bool
schedule_hears(Schedule *s)
{
	return s->overlap == OVERLAP_QUEUE || !S_NULL(s, S_waiting_tick) || !S_NULL(s, S_pause_after_failures) ||
		schedule_is_after(s);
}

bool
schedule_may_run(Schedule *s)
{
	return S_NULL(s, S_max_runs) || DatumGetInt64(S_ATT(s, S_runs)) < S_INT(s, S_max_runs);
}

bool
schedule_waits(Schedule *s)
{
	if (!S_NULL(s, S_waiting_tick))
		return true;
	return s->status == SCHEDULE_ACTIVE && schedule_is_after(s) && S_NULL(s, S_next_tick) && !S_NULL(s, S_last_job_id);
}
