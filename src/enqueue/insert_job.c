/*
 * insert_job.c
 *	  Insertion of new jobs, with and without a unique key.
 */
#include "jobq.h"

#include "miscadmin.h"

#include "base/job_id.h"
#include "base/relations.h"
#include "enqueue/after.h"
#include "enqueue/insert_job.h"
#include "enqueue/quota.h"
#include "enqueue/unique_conflict.h"
#include "shared/stat_changes.h"
#include "shared/xact_changes.h"
#include "tables/finished_keys.h"
#include "tables/home.h"

void
enqueuer_begin(Enqueuer *e)
{
	memset(e, 0, sizeof(*e));
	events_begin(&e->events);
	table_open_for_write(&e->queue, jobq_relid("queue"));
	e->home_id = home_id(true);
	e->context = CurrentMemoryContext;
}

void
enqueuer_end(Enqueuer *e)
{
	events_end(&e->events);
	table_close_after_write(&e->queue);
	if (e->edges != NULL)
		table_close_after_write(e->edges);
}

/* Writes, publishes and counts all that belongs to the row of a new job. */
static void
stored(Enqueuer *e, Request *request, Datum *values, bool *nulls, const pg_uuid_t *id)
{
	if (EVENTS_WANTED(request->type, EVENTS_ALL))
		row_add_event(e, request, values, nulls, false, NULL);
	if (request->blocked)
		after_store(e, request, id);
	row_publish(values, nulls);
	stat_enqueued(request->type->id, request->blocked ? JOB_BLOCKED : JOB_PENDING);
	note_written_job(id);
}

/* Stores a job without a key. */
static void
store_plain(Enqueuer *e, Request *request, pg_uuid_t *id)
{
	Datum		values[Q_NATTS];
	bool		nulls[Q_NATTS];

	if (request->quotas != NIL)
		quota_admit(request->quotas, &e->queue, quota_bytes(request->payload, request->metadata));
	make_job_id(id);
	row_build(e, request, false, id, values, nulls);
	table_insert_row(&e->queue, values, nulls);
	if (request->quotas != NIL)
		quota_done(request->quotas, quota_bytes(request->payload, request->metadata), id, true);
	stored(e, request, values, nulls, id);
}

/*
 * Inserts a job with a key, behind its predecessor; false: another row has it,
 * and the transaction that writes that row has ended.
 */
static bool
insert_unique(Enqueuer *e, Request *request, const UniqueKey *key, Job *predecessor, pg_uuid_t *id)
{
	Datum		values[Q_NATTS];
	bool		nulls[Q_NATTS];
	bool		successor = predecessor != NULL && !DatumGetBool(JOB_ATT(predecessor, Q_successor));
	bool		inserted;

	if (request->quotas != NIL)
		quota_admit(request->quotas, &e->queue, quota_bytes(request->payload, request->metadata));
	make_job_id(id);
	row_build(e, request, successor, id, values, nulls);
	inserted = table_insert_unless_conflict(&e->queue, values, nulls) &&
		(predecessor == NULL || unique_keep_successor(&e->queue, key, JOB_ID(predecessor), id));
	if (request->quotas != NIL)
		quota_done(request->quotas, quota_bytes(request->payload, request->metadata), inserted ? id : NULL, true);
	if (!inserted)
	{
		(void) unique_wait(&e->queue, key, successor);
		return false;
	}
	stored(e, request, values, nulls, id);
	if (predecessor != NULL)
		unique_publish_successor(&e->queue, key, id, values);
	return true;
}

/*
 * Returns the state of the key, and *id of a finished job that has it: replace
 * stores a new job after such a one.
 */
static KeyState
look_at_key(Enqueuer *e, Request *request, const UniqueKey *key, Job *job, pg_uuid_t *id)
{
	KeyState	state = unique_look(&e->queue, key, job);

	if (state == KEY_FREE && request->on_conflict != CONFLICT_REPLACE && finished_key_look(key, id))
		return KEY_FINISHED;
	return state;
}

/* Stores a job with a key; true: a new one, false: *id is the job that has the key. */
static bool
store_unique(Enqueuer *e, Request *request, pg_uuid_t *id)
{
	UniqueKey	key = {request->type->id, request->tenant, request->unique_key};
	int			yields = 0;

	if (request->unique_for != NULL)
		finished_key_note_type(request->type->id);
	for (;;)
	{
		Job		   *predecessor = NULL;
		Job			job;
		KeyState	state;

		CHECK_FOR_INTERRUPTS();
		state = look_at_key(e, request, &key, &job, id);
		if (state == KEY_CHANGED)
			continue;
		if (state != KEY_FREE)
		{
			ConflictStep step = unique_conflict(e, request, state, &job, id, &yields);

			if (step == CONFLICT_ANSWERED)
				return false;
			if (step == CONFLICT_LOOK_AGAIN)
				continue;
			predecessor = &job;
		}
		else if (unique_wait(&e->queue, &key, true))
			continue;			/* a job was being queued behind one that has ended */
		if (insert_unique(e, request, &key, predecessor, id))
			return true;
	}
}

bool
store_job(Enqueuer *e, Request *request, pg_uuid_t *id)
{
	if (request->after != NULL)
		after_resolve(e, request);
	if (request->unique_key != NULL)
		return store_unique(e, request, id);
	store_plain(e, request, id);
	return true;
}
