/*
 * unique_key_lookup.h
 *	  Unique keys: the job that holds a key, and the rule that no two jobs of one
 *	  key run at once.
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
	KEY_FREE,					/* of live jobs: see finished_keys.h */
	KEY_WAITING,				/* job waits, and is locked for this transaction */
	KEY_RUNNING,				/* job runs and nothing waits behind it */
	KEY_FULL,					/* two of them run: nothing can be queued behind */
	KEY_FINISHED,				/* finished_key_look's: there is no live job */
	KEY_CHANGED					/* look again */
} KeyState;

/*
 * Returns the state of the key.  May wait for other transactions, never for a
 * handler.
 */
extern KeyState unique_look(Table *queue, const UniqueKey *key, Job *job);

/*
 * Waits for the transaction that inserts or deletes that row of the key; false:
 * there is none.
 */
extern bool unique_wait(Table *queue, const UniqueKey *key, bool successor);

/*
 * Keeps the row that was inserted behind a predecessor, if that is still live.
 * False: another transaction may have found the key free before the insertion,
 * and the row is deleted.
 */
extern bool unique_keep_successor(Table *queue, const UniqueKey *key, const pg_uuid_t *predecessor, const pg_uuid_t *id);

/*
 * True if the locked job must be put back because the other job of its key
 * runs: a successor waits until its predecessor has ended.
 */
extern bool unique_must_yield(Table *queue, Job *job);

/*
 * True if a claim may have the locked job.  It keeps the other job of the key
 * from other claims until the (sub)transaction ends.
 */
extern bool unique_claim(Table *queue, Job *job);

/*
 * Publishes the job that waits behind, with our commit, when an attempt has
 * ended: also one that another transaction is inserting.
 */
extern void unique_publish_sibling(Table *queue, Job *job);

/*
 * Called for a job that was inserted behind a running one: if an open
 * transaction is ending that one, the job is read again after it.
 */
extern void unique_publish_successor(Table *queue, const UniqueKey *key, const pg_uuid_t *id, Datum *values);

#endif
