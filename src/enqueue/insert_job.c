/*
 * insert_job.c
 *	  The row of a new job, and the conflict when its unique key is taken.
 */
#include "jobq.h"

#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "base/concurrency_key_hash.h"
#include "base/job_id.h"
#include "base/job_status.h"
#include "base/json_build.h"
#include "base/relations.h"
#include "enqueue/insert_job.h"
#include "enqueue/quota.h"
#include "enqueue/spawn_limit.h"
#include "registry/tenant_lane.h"
#include "security/grants.h"
#include "shared/publish_jobs.h"
#include "shared/wait_events.h"
#include "tables/unique_key_lookup.h"

#define MAX_YIELD_TRIES 1000	/* of 5 ms */

void
enqueuer_begin(Enqueuer *e)
{
	memset(e, 0, sizeof(*e));
	events_begin(&e->events);
	table_open_for_write(&e->queue, jobq_relid("queue"));
	e->home_id = home_id(true);
}

void
enqueuer_end(Enqueuer *e)
{
	events_end(&e->events);
	table_close_after_write(&e->queue);
}

static void
set(Datum *values, bool *nulls, int att, Datum value)
{
	values[att - 1] = value;
	nulls[att - 1] = false;
}

static void
set_pointer(Datum *values, bool *nulls, int att, const void *value)
{
	values[att - 1] = PointerGetDatum(value);
	nulls[att - 1] = value == NULL;
}

/* Returns the current time, but later than the last one, unless the clock was set back. */
static TimestampTz
distinct_now(void)
{
	static TimestampTz last = 0;
	TimestampTz now = GetCurrentTimestamp();

	if (now <= last && last - now < USECS_PER_SEC)
		now = last + 1;
	last = now;
	return now;
}

/*
 * Sets due time and position in the lane.  Jobs of one call that are due at the
 * same later moment are a microsecond apart there, which keeps their order.
 */
static void
set_times(Enqueuer *e, Request *request, Datum *values, bool *nulls)
{
	TimestampTz now = distinct_now();
	TimestampTz due = request->scheduled_for == 0 ? now : request->scheduled_for;
	TimestampTz position = now;

	if (due > now)
	{
		e->nfuture = due == e->future ? e->nfuture + 1 : 0;
		e->future = due;
		position = due + e->nfuture;
	}
	set(values, nulls, Q_position, TimestampTzGetDatum(position));
	set(values, nulls, Q_scheduled_for, TimestampTzGetDatum(due));
	set(values, nulls, Q_created_at, TimestampTzGetDatum(now));
}

static void
set_options(Request *request, Datum *values, bool *nulls)
{
	set_pointer(values, nulls, Q_timeout, request->timeout);
	set_pointer(values, nulls, Q_backoff, request->backoff);
	set_pointer(values, nulls, Q_unique_key, request->unique_key);
	set_pointer(values, nulls, Q_unique_for, request->unique_for);
	set_pointer(values, nulls, Q_concurrency_key, request->concurrency_key);
	if (request->concurrency_key != NULL)
		set(values, nulls, Q_key_hash, UInt64GetDatum(key_hash(request->tenant, request->concurrency_key)));
	set_pointer(values, nulls, Q_keep_completed, request->keep_completed);
	set_pointer(values, nulls, Q_keep_dead, request->keep_dead);
	set_pointer(values, nulls, Q_tenant, request->tenant);
	set_pointer(values, nulls, Q_metadata, request->metadata);
	set_pointer(values, nulls, Q_parent_id, request->has_parent ? &request->parent_id : NULL);
	if (request->enqueued_by != NULL)
		set(values, nulls, Q_enqueued_by, CStringGetTextDatum(request->enqueued_by));
}

static void
build_row(Enqueuer *e, Request *request, bool successor, const pg_uuid_t *id,
		  Datum *values, bool *nulls)
{
	memset(values, 0, sizeof(Datum) * Q_NATTS);
	memset(nulls, true, sizeof(bool) * Q_NATTS);
	set(values, nulls, Q_id, UUIDPGetDatum(id));
	set_times(e, request, values, nulls);
	set(values, nulls, Q_type_id, Int32GetDatum(request->type->id));
	set(values, nulls, Q_rev, Int32GetDatum(0));
	set(values, nulls, Q_home_id, Int32GetDatum(e->home_id));
	set(values, nulls, Q_status, ObjectIdGetDatum(status_oid(JOB_PENDING)));
	set(values, nulls, Q_attempts, Int32GetDatum(0));
	set(values, nulls, Q_max_attempts, Int32GetDatum(request->max_attempts));
	set(values, nulls, Q_runs, Int32GetDatum(0));
	set(values, nulls, Q_crashes, Int32GetDatum(0));
	set(values, nulls, Q_depth, Int32GetDatum(request->depth));
	set(values, nulls, Q_priority, Int16GetDatum((int16) request->priority));
	set(values, nulls, Q_sublane, Int16GetDatum(sublane_of(request->type, request->tenant)));
	set(values, nulls, Q_successor, BoolGetDatum(successor));
	set(values, nulls, Q_payload, JsonbPGetDatum(request->payload));
	set_options(request, values, nulls);
}

/* Makes the dispatcher read this row's position at the end of the transaction. */
static void
publish_row(Datum *values, bool *nulls)
{
	if (!nulls[Q_key_hash - 1])
		publish_concurrency_key(DatumGetUInt64(values[Q_key_hash - 1]),
								DatumGetTimestampTz(values[Q_created_at - 1]), false);
	publish_key(DatumGetInt32(values[Q_type_id - 1]), DatumGetInt16(values[Q_priority - 1]),
				DatumGetInt16(values[Q_sublane - 1]), DatumGetTimestampTz(values[Q_position - 1]));
}

/* Writes the event of a new job, or of one that replaces a waiting job: with the error that it loses. */
static void
tell_enqueued(Enqueuer *e, Request *request, const Datum *values, const bool *nulls, bool replaces,
			  const char *error)
{
	Event		event = {.type = "enqueued", .source = "client", .level = "info"};
	TimestampTz due = DatumGetTimestampTz(values[Q_scheduled_for - 1]);
	JsonBuild	b;

	event.ts = replaces ? 0 : DatumGetTimestampTz(values[Q_created_at - 1]);
	json_begin_object(&b);
	json_add_number(&b, "priority", DatumGetInt16(values[Q_priority - 1]));
	json_add_time(&b, "scheduled_for", due);
	if (request->has_parent)
		json_add_string(&b, "parent_id",
						DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(&request->parent_id))));
	if (replaces)
		json_add_bool(&b, "replaced", true);
	json_add_string(&b, "error", error);
	event.data = json_end_object(&b);
	event_add_at_once(&e->events, values, nulls, request->type->name, &event);
}

/* --- jobs without a key --- */

static void
store_plain(Enqueuer *e, Request *request, pg_uuid_t *id)
{
	Datum		values[Q_NATTS];
	bool		nulls[Q_NATTS];

	if (request->quotas != NIL)
		quota_admit(request->quotas, &e->queue, quota_bytes(request->payload, request->metadata));
	make_job_id(id);
	build_row(e, request, false, id, values, nulls);
	table_insert_row(&e->queue, values, nulls);
	if (request->quotas != NIL)
		quota_done(request->quotas, quota_bytes(request->payload, request->metadata), id);
	if (EVENTS_WANTED(request->type, EVENTS_ALL))
		tell_enqueued(e, request, values, nulls, false, NULL);
	publish_row(values, nulls);
	publish_note_job(id);
}

/* --- jobs with a unique key --- */

static bool
insert_unique(Enqueuer *e, Request *request, const UniqueKey *key, bool successor, pg_uuid_t *id)
{
	Datum		values[Q_NATTS];
	bool		nulls[Q_NATTS];
	bool		inserted;

	if (request->quotas != NIL)
		quota_admit(request->quotas, &e->queue, quota_bytes(request->payload, request->metadata));
	make_job_id(id);
	build_row(e, request, successor, id, values, nulls);
	inserted = table_insert_unless_conflict(&e->queue, values, nulls);
	if (request->quotas != NIL)
		quota_done(request->quotas, quota_bytes(request->payload, request->metadata), inserted ? id : NULL);
	if (!inserted)
	{
		unique_wait(&e->queue, key, successor);
		return false;
	}
	if (EVENTS_WANTED(request->type, EVENTS_ALL))
		tell_enqueued(e, request, values, nulls, false, NULL);
	publish_row(values, nulls);
	publish_note_job(id);
	return true;
}

/* True if the row's enqueuer is another than the request's; a free one is NULL in both. */
static bool
is_anothers(const Job *job, const Request *request)
{
	if (JOB_NULL(job, Q_enqueued_by) || request->enqueued_by == NULL)
		return !JOB_NULL(job, Q_enqueued_by) || request->enqueued_by != NULL;
	return !access_is_enqueuer(request->enqueued_by, DatumGetTextPP(JOB_ATT(job, Q_enqueued_by)));
}

/* A role that is held to its grants replaces only its own jobs. */
static void
check_replace(const Request *request, const Job *job)
{
	if (request->enqueued_by == NULL || !is_anothers(job, request))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied to replace the job of type \"%s\" with unique_key \"%s\"",
					request->type->name, text_to_cstring(request->unique_key)),
			 errdetail("Another role enqueued it."),
			 errhint("A role that is held to its grants replaces only its own jobs.")));
}

/* Returns the metadata of a job that is replaced: its own unless some is given; another role's is dropped. */
static Jsonb *
metadata_after(const Request *request, const Job *job)
{
	if (request->metadata != NULL || is_anothers(job, request) || JOB_NULL(job, Q_metadata))
		return request->metadata;
	return DatumGetJsonbP(JOB_ATT(job, Q_metadata));
}

/* Gives the job to the enqueuer of its payload, without the metadata of another role. */
static void
replace_enqueuer(const Request *request, Job *job)
{
	set_pointer(job->values, job->nulls, Q_metadata, metadata_after(request, job));
	set_pointer(job->values, job->nulls, Q_enqueued_by,
				request->enqueued_by ? cstring_to_text(request->enqueued_by) : NULL);
}

/* Sets a column to the request's value; NULL: the job keeps its own. */
static void
set_if_given(Job *job, int att, const void *value)
{
	if (value != NULL)
		set_pointer(job->values, job->nulls, att, value);
}

/*
 * Sets the times that are given.  A job that waits for its retry is due now: its
 * schedule is past, and the failed attempts are forgotten.  The job stays as
 * old as it is.
 */
static void
replace_times(Enqueuer *e, Request *request, Job *job)
{
	Datum		created = JOB_ATT(job, Q_created_at);

	if (!request->due_given && job->status != JOB_RETRY)
		return;
	set_times(e, request, job->values, job->nulls);
	set(job->values, job->nulls, Q_created_at, created);
}

/* Sets the key that is given: jobs may wait behind this one in the key that it leaves. */
static void
replace_concurrency_key(const Request *request, Job *job)
{
	if (request->concurrency_key == NULL)
		return;
	if (!JOB_NULL(job, Q_key_hash))
		publish_concurrency_key(DatumGetUInt64(JOB_ATT(job, Q_key_hash)),
								DatumGetTimestampTz(JOB_ATT(job, Q_created_at)), true);
	set_pointer(job->values, job->nulls, Q_concurrency_key, request->concurrency_key);
	set(job->values, job->nulls, Q_key_hash, UInt64GetDatum(key_hash(request->tenant, request->concurrency_key)));
}

/* Sets the arguments that are given. */
static void
replace_arguments(Enqueuer *e, Request *request, Job *job)
{
	replace_times(e, request, job);
	if (request->priority_given)
		set(job->values, job->nulls, Q_priority, Int16GetDatum((int16) request->priority));
	if (request->max_attempts_given)
		set(job->values, job->nulls, Q_max_attempts, Int32GetDatum(request->max_attempts));
	set_if_given(job, Q_timeout, request->timeout);
	set_if_given(job, Q_backoff, request->backoff);
	set_if_given(job, Q_unique_for, request->unique_for);
	set_if_given(job, Q_keep_completed, request->keep_completed);
	set_if_given(job, Q_keep_dead, request->keep_dead);
	replace_concurrency_key(request, job);
}

/* Turns a waiting job, which is locked, into the requested one.  Its attempts start again. */
static void
replace_waiting(Enqueuer *e, Request *request, Job *job)
{
	static const int cleared[] = {
		Q_error_msg, Q_error_code, Q_error_details, Q_started_at, Q_worker, Q_node,
		Q_progress, Q_progress_data
	};
	char	   *error = JOB_NULL(job, Q_error_msg) ? NULL : TextDatumGetCString(JOB_ATT(job, Q_error_msg));
	int			i;

	for (i = 0; i < (int) lengthof(cleared); i++)
		job->nulls[cleared[i] - 1] = true;
	replace_arguments(e, request, job);
	set(job->values, job->nulls, Q_payload, JsonbPGetDatum(request->payload));
	set(job->values, job->nulls, Q_depth, Int32GetDatum(Max(JOB_INT(job, Q_depth), request->depth)));
	replace_enqueuer(request, job);
	set(job->values, job->nulls, Q_attempts, Int32GetDatum(0));
	set(job->values, job->nulls, Q_crashes, Int32GetDatum(0));
	set(job->values, job->nulls, Q_rev, Int32GetDatum(JOB_INT(job, Q_rev) + 1));
	if (job->status == JOB_RETRY)
		set(job->values, job->nulls, Q_status, ObjectIdGetDatum(status_oid(JOB_PENDING)));
	table_update_row(&e->queue, &job->tid, job->values, job->nulls);
	if (EVENTS_WANTED(request->type, EVENTS_ALL))
		tell_enqueued(e, request, job->values, job->nulls, true, error);
	publish_row(job->values, job->nulls);
}

static void
raise_conflict(Request *request, const pg_uuid_t *id)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNIQUE_VIOLATION),
			 errmsg("a job of type \"%s\" with unique_key \"%s\" exists already",
					request->type->name, text_to_cstring(request->unique_key)),
			 errdetail("It is job %s.",
					   DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(id))))));
}

/*
 * Waits a moment: both jobs of the key have begun, but they do not run at the
 * same time, so one is about to be put back.  Too many tries are an error.
 */
static void
wait_until_one_yields(Request *request, int tries)
{
	if (tries < MAX_YIELD_TRIES)
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 5,
						 jobq_wait(WAIT_UNIQUE_KEY));
		ResetLatch(MyLatch);
		return;
	}
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_IN_USE),
			 errmsg("two jobs of type \"%s\" with unique_key \"%s\" are running",
					request->type->name, text_to_cstring(request->unique_key)),
			 errhint("Try again when one of them has ended.")));
}

/*
 * Handles a waiting job of the key.  It is locked until this transaction ends,
 * so it will see our writes.  An executor may have found it locked: its position
 * is published at commit and abort alike.
 */
static void
meet_waiting(Enqueuer *e, Request *request, Job *job)
{
	publish_row(job->values, job->nulls);
	if (request->on_conflict == CONFLICT_ERROR)
		raise_conflict(request, JOB_ID(job));
	if (request->on_conflict != CONFLICT_REPLACE)
		return;
	check_replace(request, job);
	if (request->quotas != NIL)
		quota_replace(request->quotas, &e->queue, job, quota_bytes(request->payload, metadata_after(request, job)));
	replace_waiting(e, request, job);
}

/* Stores a job with a key; true: a new one, false: *id is the job that holds the key. */
static bool
store_unique(Enqueuer *e, Request *request, pg_uuid_t *id)
{
	UniqueKey	key = {request->type->id, request->tenant, request->unique_key};
	int			yields = 0;

	for (;;)
	{
		Job			job;
		KeyState	state;

		CHECK_FOR_INTERRUPTS();
		/* replace stores a new job whatever has finished */
		state = unique_look(&e->queue, &key, &job, request->on_conflict == CONFLICT_REPLACE ? NULL : id);
		switch (state)
		{
			case KEY_FREE:
				if (insert_unique(e, request, &key, false, id))
					return true;
				break;
			case KEY_WAITING:
				*id = *JOB_ID(&job);
				meet_waiting(e, request, &job);
				return false;
			case KEY_RUNNING:
			case KEY_FULL:
				*id = *JOB_ID(&job);
				if (request->on_conflict == CONFLICT_ERROR)
					raise_conflict(request, id);
				if (request->on_conflict == CONFLICT_IGNORE)
					return false;
				if (state == KEY_FULL)
					wait_until_one_yields(request, yields++);
				else if (insert_unique(e, request, &key, !DatumGetBool(JOB_ATT(&job, Q_successor)), id))
					return true;
				break;
			case KEY_FINISHED:
				if (request->on_conflict == CONFLICT_ERROR)
					raise_conflict(request, id);
				return false;
			case KEY_CHANGED:
				break;
		}
	}
}

bool
store_job(Enqueuer *e, Request *request, pg_uuid_t *id)
{
	if (request->has_parent)
		children_admit(request->parent_type);
	if (request->unique_key != NULL)
		return store_unique(e, request, id);
	store_plain(e, request, id);
	return true;
}
