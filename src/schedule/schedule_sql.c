/*
 * schedule_sql.c
 *	  Functions behind jobq.schedule() and its relatives (48_schedules.sql):
 *	  the check of a definition, its ticks, and jobs of given ticks.
 */
#include "jobq.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/errors.h"
#include "base/relations.h"
#include "enqueue/enqueue.h"
#include "enqueue/insert_job.h"
#include "schedule/cron_arguments.h"
#include "schedule/schedule_ticks.h"
#include "schedule/tick.h"
#include "shared/publish_schedules.h"

PG_FUNCTION_INFO_V1(jobq_check_schedule);
PG_FUNCTION_INFO_V1(jobq_run_ticks);
PG_FUNCTION_INFO_V1(jobq_ticks_of);

/* Returns the next tick of a valid definition; DT_NOEND: none up to ends_at. */
static TimestampTz
next_tick(Schedule *s)
{
	TimestampTz next;

	schedule_parse(s);
	if (!schedule_is_after(s))
	{
		next = schedule_next(s, S_TIME(s, S_ticks_after));
		if (next == DT_NOEND && S_NULL(s, S_ends_at))
			cron_without_tick(TextDatumGetCString(S_ATT(s, S_cron)));
		return next;
	}
	next = S_TIME(s, S_ticks_after) + schedule_interval_us(s);
	if (!S_NULL(s, S_starts_at) && S_TIME(s, S_starts_at) > S_TIME(s, S_ticks_after))
		next = S_TIME(s, S_starts_at);
	return !S_NULL(s, S_ends_at) && next > S_TIME(s, S_ends_at) ? DT_NOEND : next;
}

/*
 * jobq_internal._check_schedule(s), STRICT: checks expression, time zone, the
 * arguments of its jobs, and the right of its owner to enqueue them.  Returns
 * the first tick after ticks_after; NULL: none up to ends_at.
 */
Datum
jobq_check_schedule(PG_FUNCTION_ARGS)
{
	Schedule	s;
	TimestampTz next;

	schedule_from_record(PG_GETARG_HEAPTUPLEHEADER(0), &s);
	next = next_tick(&s);
	tick_check(&s);
	see_that_jobs_run("the schedule");
	if (next == DT_NOEND)
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(next);
}

/*
 * jobq_internal._ticks_of(s, since, until, max_ticks), STRICT: returns the
 * ticks from one time to another, the oldest first.
 */
Datum
jobq_ticks_of(PG_FUNCTION_ARGS)
{
	TimestampTz since = PG_GETARG_TIMESTAMPTZ(1);
	TimestampTz until = PG_GETARG_TIMESTAMPTZ(2);
	int			max = PG_GETARG_INT32(3);
	Datum	   *ticks = palloc(sizeof(Datum) * Max(max, 1));
	int			n = 0;
	Schedule	s;

	schedule_from_record(PG_GETARG_HEAPTUPLEHEADER(0), &s);
	if (schedule_is_after(&s))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"name\": the ticks of schedule \"%s\" depend on the ends of its jobs",
						TextDatumGetCString(S_ATT(&s, S_name)))));
	for (TimestampTz tick = schedule_next(&s, since - 1); tick <= until && tick != DT_NOEND && n < max;
		 tick = schedule_next(&s, tick))
	{
		CHECK_FOR_INTERRUPTS();
		ticks[n++] = TimestampTzGetDatum(tick);
	}
	PG_RETURN_ARRAYTYPE_P(construct_array(ticks, n, TIMESTAMPTZOID, 8, FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

/*
 * jobq_internal._run_ticks(schedule_id, ticks), STRICT: enqueues a job for
 * each of the ticks, whatever the policies of the schedule say.  Changes runs
 * and last_job_id, not last_tick; max_runs jobs finish the schedule.  Returns
 * the ids of the jobs.
 */
Datum
jobq_run_ticks(PG_FUNCTION_ARGS)
{
	int32		id = PG_GETARG_INT32(0);
	Datum	   *ticks;
	Datum	   *ids;
	int			n;
	Table		table;
	Enqueuer	e;
	Schedule	s;

	PreventCommandIfReadOnly("jobq_internal._run_ticks()");
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(1), TIMESTAMPTZOID, 8, FLOAT8PASSBYVAL, TYPALIGN_DOUBLE, &ticks, NULL, &n);
	ids = palloc(sizeof(Datum) * Max(n, 1));
	table_open_for_write(&table, jobq_relid("schedules"));
	enqueuer_begin(&e);
	if (!schedule_lock(&table, id, &s))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("schedule %d does not exist", id)));
	for (int i = 0; i < n; i++)
	{
		pg_uuid_t  *job = palloc(sizeof(pg_uuid_t));

		CHECK_FOR_INTERRUPTS();
		(void) tick_enqueue(&e, &s, DatumGetTimestampTz(ticks[i]), job);
		ids[i] = UUIDPGetDatum(job);
	}
	if (s.status == SCHEDULE_ACTIVE && !schedule_may_run(&s))
	{
		schedule_set_status(&s, SCHEDULE_FINISHED, NULL);
		schedule_set_null(&s, S_next_tick);
	}
	schedule_write(&table, &s, GetCurrentTimestamp());
	note_schedule(id);
	enqueuer_end(&e);
	table_close_after_write(&table);
	PG_RETURN_ARRAYTYPE_P(construct_array(ids, n, UUIDOID, UUID_LEN, false, TYPALIGN_CHAR));
}
