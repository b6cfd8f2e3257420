/*
 * release_blocked.c
 *	  Releases a job whose parents have ended as its rule wants: the conductor
 *	  does, or the transaction that ends the last of them.
 */
#include "jobq.h"

#include "utils/timestamp.h"

#include "base/concurrency_key_hash.h"
#include "base/job_status.h"
#include "settle/release_blocked.h"
#include "shared/xact_changes.h"
#include "tables/run_level.h"

/* Returns the time; jobs that are released together keep the order of their release. */
static TimestampTz
next_position(void)
{
	static TimestampTz last = 0;
	TimestampTz now = GetCurrentTimestamp();

	if (now <= last && last - now < USECS_PER_SEC)
		now = last + 1;
	last = now;
	return now;
}

static void
set(Job *job, int att, Datum value)
{
	JOB_ATT(job, att) = value;
	job->nulls[att - 1] = false;
}

/* Lets the job join the order of its key at its end. */
static void
set_key(Job *job, JobType *type)
{
	text	   *tenant = JOB_NULL(job, Q_tenant) ? NULL : DatumGetTextPP(JOB_ATT(job, Q_tenant));
	uint64		hash;
	int			level;

	if (JOB_NULL(job, Q_concurrency_key))
		return;
	level = run_level(type != NULL && type->workflow, JOB_NULL(job, Q_workflow_id) ? NULL : DatumGetUUIDP(JOB_ATT(job, Q_workflow_id)));
	hash = key_hash(tenant, DatumGetTextPP(JOB_ATT(job, Q_concurrency_key)), level);
	set(job, Q_key_hash, UInt64GetDatum(hash));
	set(job, Q_key_since, TimestampTzGetDatum(next_position()));
	note_concurrency_key(hash, DatumGetTimestampTz(JOB_ATT(job, Q_key_since)), false);
}

static void
add_event(Ledger *ledger, Job *job, JobType *type)
{
	Event		event = {.type = "released", .source = "dispatcher", .level = "info"};

	if (EVENTS_WANTED(type, EVENTS_ALL))
		event_add(&ledger->events, job->values, job->nulls, type->name, &event);
}

void
release_blocked(Ledger *ledger, Job *job, JobType *type, TimestampTz position)
{
	TimestampTz due = DatumGetTimestampTz(JOB_ATT(job, Q_scheduled_for));

	/* a place in the future: the job has a delay, or the clock was set back */
	if (position == 0 || Max(position, due) > GetCurrentTimestamp())
		position = Max(due, next_position());
	set(job, Q_status, ObjectIdGetDatum(status_oid(JOB_PENDING)));
	set(job, Q_position, TimestampTzGetDatum(position));
	set(job, Q_rev, Int32GetDatum(JOB_INT(job, Q_rev) + 1));
	job->nulls[Q_waiting_for - 1] = job->nulls[Q_after_state - 1] = true;
	set_key(job, type);
	queue_update(&ledger->queue, job);
	note_position(JOB_INT(job, Q_type_id), DatumGetInt16(JOB_ATT(job, Q_priority)),
				  DatumGetInt16(JOB_ATT(job, Q_sublane)), position);
	add_event(ledger, job, type);
}
