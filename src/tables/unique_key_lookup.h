/*
 * unique_key_lookup.h
 *	  Unique keys: what an enqueue with one meets, and that no two jobs with the same key run at once.
 */
#ifndef JOBQ_UNIQUE_KEY_LOOKUP_H
#define JOBQ_UNIQUE_KEY_LOOKUP_H

#include "tables/queue_table.h"

/* A key: one live job per type, tenant (no tenant counts as one) and key. */
typedef struct UniqueKey
{
	int32		type_id;
	text	   *tenant;			/* NULL: none */
	text	   *key;
} UniqueKey;

typedef enum KeyState
{
	KEY_FREE,
	KEY_WAITING,				/* job waits, and is locked for this transaction */
	KEY_RUNNING,				/* job runs and nothing waits behind it */
	KEY_FULL,					/* two of them run: nothing can be queued behind */
	KEY_FINISHED,				/* only the newest's id: finished, and unique_for is not over */
	KEY_CHANGED					/* look again */
} KeyState;

/*
 * What holds the key.  May wait for other transactions, never for a handler.
 * finished NULL: jobs that have finished do not count.
 */
extern KeyState unique_look(Table *queue, const UniqueKey *key, Job *job, pg_uuid_t *finished);
/* After a failed insert: waits for whoever is inserting or deleting that row of the key. */
extern void unique_wait(Table *queue, const UniqueKey *key, bool successor);

/*
 * A successor waits until its predecessor has ended.  True when the locked job must be put back because
 * the other job of its key runs.
 */
extern bool unique_must_yield(Table *queue, Job *job);
/* At the end of an attempt: publishes the job that waits behind, with our commit. */
extern void unique_publish_sibling(Table *queue, Job *job);

#endif
