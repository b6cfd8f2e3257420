/*
 * unique_conflict.h
 *	  The conflict of a request with the job that has its unique key.
 */
#ifndef JOBQ_UNIQUE_CONFLICT_H
#define JOBQ_UNIQUE_CONFLICT_H

#include "enqueue/job_row.h"
#include "tables/unique_key_lookup.h"

typedef enum ConflictStep
{
	CONFLICT_ANSWERED,			/* *id is the job that has the key; no new job */
	CONFLICT_INSERT_BEHIND,		/* insert a new job behind the running one */
	CONFLICT_LOOK_AGAIN			/* look the key up again */
} ConflictStep;

/*
 * Applies the request's on_conflict to a key in use: replaces a waiting job, or
 * raises 23505.  state: KEY_WAITING, KEY_RUNNING, KEY_FULL or KEY_FINISHED (then
 * *id is the job, else it is set here).  *yields counts the waits for KEY_FULL
 * and begins at 0: too many raise 55006.
 */
extern ConflictStep unique_conflict(Enqueuer *e, Request *request, KeyState state, Job *job, pg_uuid_t *id,
									int *yields);

#endif
