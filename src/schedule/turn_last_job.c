/*
 * turn_last_job.c
 *	  The last job of a schedule: whether it lives, its cancel, its end.
 */
#include "jobq.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "base/act_as.h"
#include "base/relations.h"
#include "enqueue/insert_job.h"
#include "schedule/schedule_ticks.h"
#include "schedule/schedule_turn_internal.h"
#include "tables/queue_find.h"

/* ---------- queries as the owner of jobq ---------- */

/*
 * Executes a query; its result stays in SPI_tuptable until end_query().  With
 * a snapshot it reads that one.
 */
static Caller
begin_query(const char *sql, int n, Oid *types, Datum *args, Snapshot snapshot)
{
	Caller		caller = act_as_owner();

	PushActiveSnapshot(snapshot != NULL ? snapshot : GetTransactionSnapshot());
	SPI_connect();
	if (SPI_execute_with_args(sql, n, types, args, NULL, snapshot != NULL, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not execute \"%s\"", sql);
	return caller;
}

static void
end_query(Caller caller)
{
	SPI_finish();
	PopActiveSnapshot();
	act_as_caller(caller);
}

/* ---------- its life ---------- */

static Snapshot
latest_snapshot(void)
{
	CommandCounterIncrement();	/* this transaction may have enqueued the job */
	return RegisterSnapshot(GetLatestSnapshot());
}

static bool
is_in_queue(TickTurn *turn, Schedule *s, Snapshot snapshot)
{
	Job			job;
	bool		found = queue_find_by_id(&turn->e.queue, DatumGetUUIDP(S_ATT(s, S_last_job_id)), snapshot, &job);

	turn->own_job = found && !JOB_NULL(&job, Q_schedule_id) && JOB_INT(&job, Q_schedule_id) == S_INT(s, S_id);
	return found;
}

bool
turn_job_lives(TickTurn *turn, Schedule *s)
{
	Snapshot	snapshot;
	bool		lives;

	if (S_NULL(s, S_last_job_id))
		return false;
	snapshot = latest_snapshot();
	lives = is_in_queue(turn, s, snapshot);
	UnregisterSnapshot(snapshot);
	return lives;
}

void
turn_cancel_job(Schedule *s)
{
	Oid			types[] = {UUIDOID, TEXTOID};
	Datum		args[] = {S_ATT(s, S_last_job_id), CStringGetTextDatum("the next tick of its schedule")};
	Caller		caller;
	bool		held;

	PG_TRY();
	{
		caller = begin_query("SELECT jobq_internal._cancel_free($1, $2, true)", 2, types, args, NULL);
	}
	PG_CATCH();
	{
		/* too many cancels are under way: the turn is put off */
		if (geterrcode() == ERRCODE_CONFIGURATION_LIMIT_EXCEEDED)
			errcode(ERRCODE_LOCK_NOT_AVAILABLE);
		PG_RE_THROW();
	}
	PG_END_TRY();
	held = strcmp(SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1), "held") == 0;
	end_query(caller);
	if (held)
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("another transaction holds the last job of schedule \"%s\"",
						TextDatumGetCString(S_ATT(s, S_name)))));
}

/* ---------- its end ---------- */

static bool
is_job(Schedule *s, int att, const pg_uuid_t *id)
{
	return !S_NULL(s, att) && memcmp(DatumGetUUIDP(S_ATT(s, att)), id, UUID_LEN) == 0;
}

/*
 * ended_job_id keeps turn_look() from counting the last job twice: only that
 * one is looked at, after jobs that began before it may have ended.
 */
static void
count_failure(TickTurn *turn, Schedule *s, const ScheduledEnd *end)
{
	int			failures = S_INT(s, S_failures);

	if (is_job(s, S_last_job_id, &end->job_id))
		schedule_set(s, S_ended_job_id, S_ATT(s, S_last_job_id));
	if (end->status == JOB_COMPLETED)
		failures = 0;
	else if (end->status == JOB_ERROR)
		failures++;
	schedule_set(s, S_failures, Int32GetDatum(failures));
	if (failures >= S_INT(s, S_pause_after_failures) && s->status == SCHEDULE_ACTIVE)
		turn_pause(turn, s, S_TIME(s, S_last_tick), psprintf("%d dead letters in a row", failures));
}

void
turn_end(TickTurn *turn, Schedule *s, const ScheduledEnd *end)
{
	if (!S_NULL(s, S_pause_after_failures) && !is_job(s, S_ended_job_id, &end->job_id))
		count_failure(turn, s, end);
	if (!is_job(s, S_last_job_id, &end->job_id))
		return;
	if (s->status == SCHEDULE_ACTIVE && schedule_is_after(s) && S_NULL(s, S_next_tick))
		turn_set_next_after(s, end->ended_at);
	if (s->status != SCHEDULE_PAUSED && !S_NULL(s, S_waiting_tick))
	{
		turn_start_waiting(turn, s);
		if (s->status == SCHEDULE_ACTIVE && !schedule_may_run(s))
			turn_set_next(s, DT_NOEND);
	}
}

/*
 * Fills in how a job ended, if a row has that; else it counts as cancelled
 * now.
 */
static void
find_end(TickTurn *turn, ScheduledEnd *end, Snapshot snapshot)
{
	static const char sql[] = "SELECT e.status = 'error', e.status = 'completed', e.completed_at"
		" FROM (SELECT d.status, d.completed_at FROM jobq.dead_letters d WHERE d.id = $1"
		" UNION ALL SELECT h.status, h.completed_at FROM jobq.history h WHERE h.id = $1) e LIMIT 1";
	Oid			type = UUIDOID;
	Datum		arg = UUIDPGetDatum(&end->job_id);
	Caller		caller;

	end->status = JOB_CANCELLED;
	end->ended_at = turn->now;
	caller = begin_query(sql, 1, &type, &arg, snapshot);
	if (SPI_processed == 1)
	{
		HeapTuple	row = SPI_tuptable->vals[0];
		bool		isnull;

		if (DatumGetBool(SPI_getbinval(row, SPI_tuptable->tupdesc, 1, &isnull)))
			end->status = JOB_ERROR;
		else if (DatumGetBool(SPI_getbinval(row, SPI_tuptable->tupdesc, 2, &isnull)))
			end->status = JOB_COMPLETED;
		end->ended_at = DatumGetTimestampTz(SPI_getbinval(row, SPI_tuptable->tupdesc, 3, &isnull));
	}
	end_query(caller);
}

/* One snapshot: a job that is retried meanwhile is in one of the tables. */
void
turn_look(TickTurn *turn, Schedule *s)
{
	ScheduledEnd end = {.schedule_id = S_INT(s, S_id)};
	Snapshot	snapshot;
	bool		lives;

	if (S_NULL(s, S_last_job_id))
		return;
	snapshot = latest_snapshot();
	lives = is_in_queue(turn, s, snapshot);
	end.job_id = *DatumGetUUIDP(S_ATT(s, S_last_job_id));
	if (!lives)
		find_end(turn, &end, snapshot);
	UnregisterSnapshot(snapshot);
	if (!lives)
		turn_end(turn, s, &end);
}

/* The change of the row may have dropped the next tick of "after 90s". */
void
turn_read(TickTurn *turn, Schedule *s)
{
	if (s->status == SCHEDULE_ACTIVE && schedule_trouble(s) == NULL && schedule_is_after(s) && S_NULL(s, S_next_tick))
		turn_look(turn, s);
}
