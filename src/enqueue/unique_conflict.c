/*
 * unique_conflict.c
 *	  The conflict of a request with the job that has its unique key:
 *	  on_conflict, and the replacement of a waiting job.
 */
#include "jobq.h"

#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/wait_event.h"

#include "base/concurrency_key_hash.h"
#include "base/job_status.h"
#include "enqueue/after.h"
#include "enqueue/quota.h"
#include "enqueue/unique_conflict.h"
#include "security/access.h"
#include "shared/wait_events.h"
#include "shared/xact_changes.h"

#define MAX_YIELD_TRIES 1000	/* of 5 ms */

/* True if the row's enqueuer is another than the request's; a free one is NULL in both. */
static bool
is_anothers(const Job *job, const Request *request)
{
	if (JOB_NULL(job, Q_enqueued_by) || request->enqueued_by == NULL)
		return !JOB_NULL(job, Q_enqueued_by) || request->enqueued_by != NULL;
	return !access_is_enqueuer(request->enqueued_by, DatumGetTextPP(JOB_ATT(job, Q_enqueued_by)));
}

/* Raises 42501 if the role is held to its grants and the job is another role's. */
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

/*
 * Returns the metadata of a job that is replaced: its own unless some is
 * given; another role's is dropped.
 */
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
	row_set_pointer(job->values, job->nulls, Q_metadata, metadata_after(request, job));
	row_set_pointer(job->values, job->nulls, Q_enqueued_by,
				request->enqueued_by ? cstring_to_text(request->enqueued_by) : NULL);
}

/* Sets a column to the request's value; NULL: the job keeps its own. */
static void
set_if_given(Job *job, int att, const void *value)
{
	if (value != NULL)
		row_set_pointer(job->values, job->nulls, att, value);
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
	row_set_times(e, request, job->values, job->nulls);
	row_set(job->values, job->nulls, Q_created_at, created);
}

/* Gives the job other parents, or none. */
static void
replace_parents(Enqueuer *e, Request *request, Job *job)
{
	if (request->after == NULL)
		return;
	after_check_cycle(request, JOB_ID(job));
	after_forget(e, job);
	row_set(job->values, job->nulls, Q_status, ObjectIdGetDatum(status_oid(JOB_PENDING)));
	row_set_after(request, job->values, job->nulls);
	if (request->blocked)
		after_store(e, request, JOB_ID(job));
}

static bool
is_blocked(const Job *job)
{
	return status_from_oid(DatumGetObjectId(JOB_ATT(job, Q_status))) == JOB_BLOCKED;
}

/* Sets the place in its lane of a job that is blocked, or is no longer. */
static void
replace_position(Job *job)
{
	TimestampTz due = DatumGetTimestampTz(JOB_ATT(job, Q_scheduled_for));

	if (is_blocked(job))
		row_set(job->values, job->nulls, Q_position, TimestampTzGetDatum(DT_NOEND));
	else if (DatumGetTimestampTz(JOB_ATT(job, Q_position)) == DT_NOEND)
		row_set(job->values, job->nulls, Q_position, TimestampTzGetDatum(Max(due, GetCurrentTimestamp())));
}

/*
 * Sets the key that is given: jobs may wait behind this one in the key that it
 * leaves.  A blocked job waits in no key.
 */
static void
replace_concurrency_key(const Request *request, Job *job)
{
	text	   *key = request->concurrency_key;

	if (!JOB_NULL(job, Q_key_hash) && (key != NULL || is_blocked(job)))
		note_concurrency_key(DatumGetUInt64(JOB_ATT(job, Q_key_hash)), DatumGetTimestampTz(JOB_ATT(job, Q_key_since)), true);
	set_if_given(job, Q_concurrency_key, key);
	if (is_blocked(job) || JOB_NULL(job, Q_concurrency_key))
	{
		job->nulls[Q_key_hash - 1] = job->nulls[Q_key_since - 1] = true;
		return;
	}
	if (JOB_NULL(job, Q_key_since))
		row_set(job->values, job->nulls, Q_key_since,
				job->status == JOB_BLOCKED ? TimestampTzGetDatum(GetCurrentTimestamp()) : JOB_ATT(job, Q_created_at));
	row_set(job->values, job->nulls, Q_key_hash,
			UInt64GetDatum(key_hash(request->tenant, DatumGetTextPP(JOB_ATT(job, Q_concurrency_key)),
									request->type->workflow)));
}

/* Sets the arguments that are given. */
static void
replace_arguments(Enqueuer *e, Request *request, Job *job)
{
	replace_parents(e, request, job);
	replace_times(e, request, job);
	replace_position(job);
	if (request->priority_given)
		row_set(job->values, job->nulls, Q_priority, Int16GetDatum((int16) request->priority));
	if (request->max_attempts_given)
		row_set(job->values, job->nulls, Q_max_attempts, Int32GetDatum(request->max_attempts));
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
	row_set(job->values, job->nulls, Q_payload, JsonbPGetDatum(request->payload));
	row_set(job->values, job->nulls, Q_depth, Int32GetDatum(Max(JOB_INT(job, Q_depth), request->depth)));
	replace_enqueuer(request, job);
	row_set(job->values, job->nulls, Q_attempts, Int32GetDatum(0));
	row_set(job->values, job->nulls, Q_crashes, Int32GetDatum(0));
	row_set(job->values, job->nulls, Q_rev, Int32GetDatum(JOB_INT(job, Q_rev) + 1));
	if (job->status == JOB_RETRY && !is_blocked(job))
		row_set(job->values, job->nulls, Q_status, ObjectIdGetDatum(status_oid(JOB_PENDING)));
	queue_update(&e->queue, job);
	if (EVENTS_WANTED(request->type, EVENTS_ALL))
		row_add_event(e, request, job->values, job->nulls, true, error);
	row_publish(job->values, job->nulls);
}

/* Raises 23505 for the job that has the key. */
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

/* Checks the rights and quotas for the replacement of a waiting job, then replaces it. */
static void
replace_if_admitted(Enqueuer *e, Request *request, Job *job)
{
	check_replace(request, job);
	if (request->quotas != NIL)
		quota_replace(request->quotas, &e->queue, job, quota_bytes(request->payload, metadata_after(request, job)));
	replace_waiting(e, request, job);
}

/*
 * A waiting job is locked until this transaction ends, so it will see our
 * writes.  An executor may have found it locked: its position is published at
 * commit and abort alike, also when this function raises an error.
 */
ConflictStep
unique_conflict(Enqueuer *e, Request *request, KeyState state, Job *job, pg_uuid_t *id, int *yields)
{
	if (state != KEY_FINISHED)
		*id = *JOB_ID(job);
	if (state == KEY_WAITING)
		row_publish(job->values, job->nulls);
	if (request->on_conflict == CONFLICT_ERROR)
		raise_conflict(request, id);
	if (request->on_conflict != CONFLICT_REPLACE || state == KEY_FINISHED)
		return CONFLICT_ANSWERED;
	if (state == KEY_WAITING)
	{
		replace_if_admitted(e, request, job);
		return CONFLICT_ANSWERED;
	}
	if (state == KEY_RUNNING)
		return CONFLICT_INSERT_BEHIND;
	wait_until_one_yields(request, (*yields)++);
	return CONFLICT_LOOK_AGAIN;
}
