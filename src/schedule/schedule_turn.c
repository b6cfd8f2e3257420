/*
 * schedule_turn.c
 *	  Decisions about one schedule: catch_up, overlap, max_runs,
 *	  pause_after_failures.
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

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/json_build.h"
#include "base/relations.h"
#include "base/texts.h"
#include "enqueue/insert_job.h"
#include "registry/options.h"
#include "schedule/schedule_turn.h"
#include "security/act_as.h"
#include "security/grants.h"
#include "tables/queue_find.h"

#define LATE_US			(5 * USECS_PER_SEC)
#define SKIP_LATE_US	USECS_PER_MINUTE	/* catch_up = skip */
#define MAX_COUNTED		100000	/* missed ticks that are counted one by one */

/* ---------- events ---------- */

/* Adds an event of the schedule; level: the least of the type that wants it. */
static void
add_event(Turn *turn, Schedule *s, EventsLevel level, Event *event, Jsonb *data)
{
	char	   *type_name = TextDatumGetCString(S_ATT(s, S_job_type));
	JobType    *type = job_type_by_name(type_name);
	Datum		values[Q_NATTS] = {0};
	bool		nulls[Q_NATTS];

	if (type != NULL && !EVENTS_WANTED(type, level))
		return;
	memset(nulls, true, sizeof(nulls));
	values[Q_tenant - 1] = S_ATT(s, S_tenant);
	nulls[Q_tenant - 1] = S_NULL(s, S_tenant);
	event->source = "dispatcher";
	event->data = data;
	event_add_at_once(&turn->e.events, values, nulls, type_name, event);
}

static void
begin_data(JsonBuild *b, Schedule *s, TimestampTz tick, const char *reason)
{
	json_begin_object(b);
	json_add_string(b, "schedule", TextDatumGetCString(S_ATT(s, S_name)));
	if (tick != DT_NOBEGIN)
		json_add_time(b, "tick", tick);
	json_add_string(b, "reason", reason);
}

static void
add_ticked(Turn *turn, Schedule *s, TimestampTz tick, const pg_uuid_t *job)
{
	Event		event = {.type = "ticked", .level = "info"};
	JsonBuild	b;

	begin_data(&b, s, tick, NULL);
	json_add_string(&b, "job_id", DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(job))));
	add_event(turn, s, EVENTS_ALL, &event, json_end_object(&b));
}

/* Drops n ticks, the newest of which is given. */
static void
skip(Turn *turn, Schedule *s, TimestampTz tick, const char *reason, int64 n)
{
	Event		event = {.type = "tick_skipped", .level = "info"};
	JsonBuild	b;

	if (n <= 0)
		return;
	begin_data(&b, s, tick, reason);
	json_add_number(&b, "count", n);
	add_event(turn, s, EVENTS_FAILURES, &event, json_end_object(&b));
	schedule_set(s, S_skipped, Int64GetDatum(DatumGetInt64(S_ATT(s, S_skipped)) + n));
	turn->counts[TICK_SKIPPED] += n;
}

static void
pause_schedule(Turn *turn, Schedule *s, const char *reason)
{
	Event		event = {.type = "schedule_paused", .level = "warning", .message = reason};
	JsonBuild	b;

	schedule_set_status(s, SCHEDULE_PAUSED, reason);
	schedule_set_null(s, S_next_tick);
	if (!S_NULL(s, S_waiting_tick))
		skip(turn, s, S_TIME(s, S_waiting_tick), "paused", 1);
	schedule_set_null(s, S_waiting_tick);
	begin_data(&b, s, DT_NOBEGIN, reason);
	add_event(turn, s, EVENTS_FAILURES, &event, json_end_object(&b));
}

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
start(Turn *turn, Schedule *s, TimestampTz tick)
{
	pg_uuid_t  *id = palloc(sizeof(pg_uuid_t));

	if (!schedule_may_run(s))
		return false;
	if (is_too_soon(s, tick))
	{
		skip(turn, s, tick, "min_interval", 1);
		return false;
	}
	if (!tick_enqueue(&turn->e, s, tick, id))
	{
		skip(turn, s, tick, "unique_key", 1);
		return false;
	}
	schedule_set_time(s, S_last_tick, tick);
	turn->counts[TICK_ENQUEUED]++;
	add_ticked(turn, s, tick, id);
	return true;
}

static bool
last_job_lives(Turn *turn, Schedule *s)
{
	Snapshot	snapshot;
	Job			job;
	bool		lives;

	if (S_NULL(s, S_last_job_id))
		return false;
	CommandCounterIncrement();	/* this transaction may have enqueued it */
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	lives = queue_find_by_id(&turn->e.queue, DatumGetUUIDP(S_ATT(s, S_last_job_id)), snapshot, &job);
	turn->own_job = lives && !JOB_NULL(&job, Q_schedule_id) && JOB_INT(&job, Q_schedule_id) == S_INT(s, S_id);
	UnregisterSnapshot(snapshot);
	return lives;
}

/* Cancels the last job, without waiting for a transaction that holds it. */
static void
cancel_last_job(Schedule *s)
{
	Oid			types[] = {UUIDOID, TEXTOID};
	Datum		args[] = {S_ATT(s, S_last_job_id), CStringGetTextDatum("the next tick of its schedule")};
	Oid			user;
	int			context;
	bool		held;

	GetUserIdAndSecContext(&user, &context);
	act_as(jobq_owner());
	PushActiveSnapshot(GetTransactionSnapshot());
	SPI_connect();
	if (SPI_execute_with_args(jobq_internal_sql("SELECT jobq_internal._cancel_free($1, $2, true)"), 2, types, args, NULL,
							  false, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not cancel a job");
	held = strcmp(SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1), "held") == 0;
	SPI_finish();
	PopActiveSnapshot();
	SetUserIdAndSecContext(user, context);
	if (held)
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("another transaction holds the last job of schedule \"%s\"",
						TextDatumGetCString(S_ATT(s, S_name)))));
}

static void
start_waiting(Turn *turn, Schedule *s)
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
start_by_overlap(Turn *turn, Schedule *s, TimestampTz tick)
{
	if (!S_NULL(s, S_waiting_tick) && (s->overlap == OVERLAP_ALLOW || !last_job_lives(turn, s)))
		start_waiting(turn, s);
	if (s->overlap == OVERLAP_ALLOW || !last_job_lives(turn, s))
	{
		(void) start(turn, s, tick);
		return;
	}
	switch (s->overlap)
	{
		case OVERLAP_SKIP:
			skip(turn, s, tick, "overlap", 1);
			break;
		case OVERLAP_QUEUE:
			if (!S_NULL(s, S_waiting_tick))
				skip(turn, s, S_TIME(s, S_waiting_tick), "overlap", 1);
			schedule_set_time(s, S_waiting_tick, tick);
			break;
		case OVERLAP_CANCEL:
			if (turn->own_job)	/* else it was retried, and is a user's */
				cancel_last_job(s);
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
is_missed(Turn *turn, Schedule *s, TimestampTz first)
{
	if (first <= turn->missed_until)
		return true;
	return turn->now - first > LATE_US &&
		(s->catch_up == CATCH_UP_ALL || schedule_next(s, first) <= turn->now);
}

/*
 * Returns the first tick to decide, and the number of missed ones before it
 * that are dropped; DT_NOEND: none is due.
 */
static TimestampTz
first_decision(Turn *turn, Schedule *s, int64 *dropped)
{
	TimestampTz after = S_TIME(s, S_ticks_after);
	TimestampTz first = schedule_first_tick(s);
	TimestampTz newest;
	TimestampTz before;
	int64		surplus;

	*dropped = 0;
	if (first > turn->now)
		return DT_NOEND;
	if (!is_missed(turn, s, first))
		return first;
	newest = schedule_last(s, after, turn->now);
	if (turn->one_tick)
		turn->missed_until = newest;
	*dropped = schedule_count(s, after, newest, MAX_COUNTED) - 1;
	if (s->catch_up != CATCH_UP_ALL)
		return newest;
	*dropped = Max(*dropped + 1 - S_INT(s, S_catch_up_limit), 0);
	before = time_before_newest(s, newest, S_INT(s, S_catch_up_limit));
	surplus = schedule_count(s, before, newest, PG_INT64_MAX) - S_INT(s, S_catch_up_limit);
	for (first = schedule_next(s, before); surplus > 0; surplus--)
		first = schedule_next(s, first);
	return first;
}

/*
 * Decides the ticks up to now; with turn->one_tick the first of them, so that
 * the error of one rolls back no other.
 */
static void
decide_ticks(Turn *turn, Schedule *s)
{
	int64		dropped;
	TimestampTz first = first_decision(turn, s, &dropped);
	bool		all = s->catch_up == CATCH_UP_ALL && first != DT_NOEND && is_missed(turn, s, schedule_first_tick(s));

	skip(turn, s, first, "missed", dropped);
	if (all && !S_NULL(s, S_waiting_tick))
		start_waiting(turn, s);
	for (TimestampTz tick = first; tick <= turn->now; tick = schedule_next(s, tick))
	{
		CHECK_FOR_INTERRUPTS();
		if (s->catch_up == CATCH_UP_SKIP && turn->now - tick > SKIP_LATE_US)
			skip(turn, s, tick, "late", 1);
		else if (all)
			(void) start(turn, s, tick);
		else
			start_by_overlap(turn, s, tick);
		schedule_set_time(s, S_ticks_after, tick);
		if (turn->one_tick)
			break;
	}
}

/* Sets next_tick, and the end of a schedule that has no more ticks. */
static void
set_next(Schedule *s, TimestampTz next)
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
calendar_due(Turn *turn, Schedule *s)
{
	if (schedule_first_tick(s) <= turn->now)
		decide_ticks(turn, s);
	set_next(s, schedule_first_tick(s));
}

/* Sets the next tick of "after 90s", an interval after a time. */
static void
set_next_after(Schedule *s, TimestampTz time)
{
	TimestampTz next = time + schedule_interval_us(s);

	if (!S_NULL(s, S_starts_at))
		next = Max(next, S_TIME(s, S_starts_at));
	set_next(s, !S_NULL(s, S_ends_at) && next > S_TIME(s, S_ends_at) ? DT_NOEND : next);
}

static void
after_due(Turn *turn, Schedule *s)
{
	TimestampTz tick = schedule_first_tick(s);

	if (S_NULL(s, S_next_tick) && S_NULL(s, S_last_job_id))
		set_next_after(s, S_TIME(s, S_ticks_after));
	if (tick > turn->now)
		return;
	schedule_set_time(s, S_ticks_after, tick);
	if (last_job_lives(turn, s))
		schedule_set_null(s, S_next_tick);	/* run_schedule() has started it */
	else if (s->catch_up == CATCH_UP_SKIP && turn->now - tick > SKIP_LATE_US)
	{
		skip(turn, s, tick, "late", 1);
		set_next_after(s, turn->now);
	}
	else
	{
		schedule_set_null(s, S_next_tick);
		if (!start(turn, s, tick))
			set_next_after(s, turn->now);
		if (!schedule_may_run(s))
			set_next(s, DT_NOEND);
	}
}

/* Ends a pause whose duration is over; ticks before its end are gone. */
static void
resume_in_time(Turn *turn, Schedule *s)
{
	TimestampTz until = S_TIME(s, S_paused_until);

	if (s->status != SCHEDULE_PAUSED || S_NULL(s, S_paused_until) || until > turn->now)
		return;
	schedule_set_status(s, SCHEDULE_ACTIVE, NULL);
	schedule_set(s, S_failures, Int32GetDatum(0));
	schedule_set_null(s, S_waiting_tick);
	schedule_set_time(s, S_ticks_after, Max(until, S_TIME(s, S_ticks_after)));
	if (schedule_is_after(s))
		set_next_after(s, until);
	else
		set_next(s, schedule_first_tick(s));
}

void
turn_due(Turn *turn, Schedule *s)
{
	bool		waited = !S_NULL(s, S_waiting_tick);

	resume_in_time(turn, s);
	if (schedule_waits(s))
		turn_look(turn, s);
	if (s->status != SCHEDULE_ACTIVE || (turn->one_tick && waited && S_NULL(s, S_waiting_tick)))
		return;
	if (schedule_is_after(s))
		after_due(turn, s);
	else
		calendar_due(turn, s);
}

/* ---------- the end of a job ---------- */

static void
count_failure(Turn *turn, Schedule *s, const ScheduledEnd *end)
{
	pg_uuid_t  *id = palloc(sizeof(pg_uuid_t));
	int			failures = S_INT(s, S_failures);

	*id = end->job_id;
	schedule_set(s, S_ended_job_id, UUIDPGetDatum(id));
	if (end->status == JOB_COMPLETED)
		failures = 0;
	else if (end->status == JOB_ERROR)
		failures++;
	schedule_set(s, S_failures, Int32GetDatum(failures));
	if (failures >= S_INT(s, S_pause_after_failures) && s->status == SCHEDULE_ACTIVE)
		pause_schedule(turn, s, psprintf("%d dead letters in a row", failures));
}

static bool
is_job(Schedule *s, int att, const pg_uuid_t *id)
{
	return !S_NULL(s, att) && memcmp(DatumGetUUIDP(S_ATT(s, att)), id, UUID_LEN) == 0;
}

void
turn_end(Turn *turn, Schedule *s, const ScheduledEnd *end)
{
	if (!S_NULL(s, S_pause_after_failures) && !is_job(s, S_ended_job_id, &end->job_id))
		count_failure(turn, s, end);
	if (!is_job(s, S_last_job_id, &end->job_id))
		return;
	if (s->status == SCHEDULE_ACTIVE && schedule_is_after(s) && S_NULL(s, S_next_tick))
		set_next_after(s, end->ended_at);
	if (s->status != SCHEDULE_PAUSED && !S_NULL(s, S_waiting_tick))
	{
		start_waiting(turn, s);
		if (s->status == SCHEDULE_ACTIVE && !schedule_may_run(s))
			set_next(s, DT_NOEND);
	}
}

/*
 * Fills in how a job ended, if a row has that; else it counts as cancelled
 * now.
 */
static void
find_end(Turn *turn, ScheduledEnd *end)
{
	static const char query[] = "SELECT e.status = 'error', e.status = 'completed', e.completed_at"
		" FROM (SELECT d.status, d.completed_at FROM jobq.dead_letters d WHERE d.id = $1"
		" UNION ALL SELECT h.status, h.completed_at FROM jobq.history h WHERE h.id = $1) e LIMIT 1";
	Oid			type = UUIDOID;
	Datum		arg = UUIDPGetDatum(&end->job_id);
	Oid			user;
	int			context;

	end->status = JOB_CANCELLED;
	end->ended_at = turn->now;
	GetUserIdAndSecContext(&user, &context);
	act_as(jobq_owner());
	PushActiveSnapshot(GetLatestSnapshot());
	SPI_connect();
	if (SPI_execute_with_args(query, 1, &type, &arg, NULL, true, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not execute \"%s\"", query);
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
	SPI_finish();
	PopActiveSnapshot();
	SetUserIdAndSecContext(user, context);
}

void
turn_look(Turn *turn, Schedule *s)
{
	ScheduledEnd end = {.schedule_id = S_INT(s, S_id)};

	if (S_NULL(s, S_last_job_id) || last_job_lives(turn, s))
		return;
	end.job_id = *DatumGetUUIDP(S_ATT(s, S_last_job_id));
	find_end(turn, &end);
	turn_end(turn, s, &end);
}

/* The change of the row may have dropped the next tick of "after 90s". */
void
turn_read(Turn *turn, Schedule *s)
{
	if (s->status == SCHEDULE_ACTIVE && schedule_trouble(s) == NULL && schedule_is_after(s) && S_NULL(s, S_next_tick))
		turn_look(turn, s);
}

/* ---------- errors ---------- */

/* True if the error lasts until the owner, a right or the type changes. */
static bool
lasts(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_INSUFFICIENT_PRIVILEGE || error->sqlerrcode == ERRCODE_UNDEFINED_OBJECT;
}

static void
add_refused(Turn *turn, Schedule *s, TimestampTz tick, const ErrorData *error)
{
	Event		event = {.type = "tick_skipped", .level = "warning", .message = bounded_text(error->message)};
	JsonBuild	b;

	begin_data(&b, s, tick, "refused");
	json_add_string(&b, "code", unpack_sql_state(error->sqlerrcode));
	json_add_number(&b, "count", 1);
	add_event(turn, s, EVENTS_FAILURES, &event, json_end_object(&b));
	schedule_set(s, S_skipped, Int64GetDatum(DatumGetInt64(S_ATT(s, S_skipped)) + 1));
	turn->counts[TICK_REFUSED]++;
}

/* The definition itself is no longer valid: a time zone that is gone, say. */
static void
fail(Turn *turn, Schedule *s, const char *message)
{
	Event		event = {.type = "schedule_failed", .level = "warning", .message = message};
	JsonBuild	b;

	begin_data(&b, s, DT_NOBEGIN, message);
	add_event(turn, s, EVENTS_FAILURES, &event, json_end_object(&b));
	pause_schedule(turn, s, message);
}

/*
 * Decides the tick of a turn that was rolled back, and returns it: the one
 * that waited, unless its job still lives, or the first that is due.
 */
static TimestampTz
take_refused(Turn *turn, Schedule *s)
{
	TimestampTz tick = S_TIME(s, S_waiting_tick);
	int64		dropped = 0;

	if (!S_NULL(s, S_waiting_tick) && !last_job_lives(turn, s))
	{
		schedule_set_null(s, S_waiting_tick);
		return tick;
	}
	tick = schedule_is_after(s) ? schedule_first_tick(s) : first_decision(turn, s, &dropped);
	if (tick > turn->now)
		return DT_NOBEGIN;
	skip(turn, s, tick, "missed", dropped);
	schedule_set_time(s, S_ticks_after, tick);
	return tick;
}

void
turn_refused(Turn *turn, Schedule *s, const ErrorData *error)
{
	const char *trouble = schedule_trouble(s);
	TimestampTz tick;

	if (trouble != NULL)
	{
		fail(turn, s, trouble);
		return;
	}
	resume_in_time(turn, s);
	tick = take_refused(turn, s);
	if (tick != DT_NOBEGIN)
		add_refused(turn, s, tick, error);
	if (lasts(error))
		pause_schedule(turn, s, bounded_text(error->message));
	else if (schedule_is_after(s))
		set_next_after(s, turn->now);
	else
		set_next(s, schedule_first_tick(s));
}
