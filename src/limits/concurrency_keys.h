/*
 * concurrency_keys.h
 *	  Concurrency keys: how many jobs of one key run, and which jobs were
 *	  passed over because their key was full.
 *
 * Used by the dispatcher only.  concurrency_keys.c has the design,
 * concurrency_key_scan.c reads the queue.  A key is identified by its hash
 * (concurrency_key_hash.h).
 */
#ifndef JOBQ_CONCURRENCY_KEYS_H
#define JOBQ_CONCURRENCY_KEYS_H

#include "lanes/queue_scan.h"
#include "limits/type_state.h"

/* Jobs of one key in one lane. */
typedef struct KeyLane
{
	dlist_node	node;			/* in Key.lanes */
	Lane	   *lane;
	int			waiting;		/* jobs of the key in the lane's memory */
	bool		passed;			/* there may be others, from `from` on */
	Range		from;			/* hi is not used */
} KeyLane;

typedef struct Key
{
	uint64		hash;			/* hash key */
	int			running;		/* handed out */
	int			unsettled;		/* ended with their executor: in a lane, to be settled */
	int			limit;			/* smallest concurrency_per_key of those that run; 0: to be computed */
	dlist_head	lanes;			/* of KeyLane */
	TimestampTz first_from;		/* no live job of the key was created before; DT_NOBEGIN: not known */
	bool		has_busy;		/* an executor found the row of `busy` locked; its holder will publish it */
	pg_uuid_t	busy;
	bool		changed;		/* in the list of changed keys */
	bool		idle;			/* in the list of those kept for first_from */
	bool		in_use;			/* in use by a function: must not be freed */
	dlist_node	node;			/* in either list */
} Key;

/*
 * Creates the table; `smallest_limit` returns the smallest concurrency_per_key
 * of the running jobs of a key.
 */
extern void keys_init(MemoryContext context, int (*smallest_limit) (uint64 hash));

/*
 * Forgets the jobs that were passed over, which are read again: lanes are
 * about to be forgotten.
 */
extern void keys_forget_lanes(void);
/* Retries all jobs that were passed over: limits have changed. */
extern void keys_reload(void);
/* Expects any change of any key: a publication about keys is lost. */
extern void keys_suspect(void);

/*
 * Notes that a commit has written a row of the key, created at that time (0:
 * of any key), or has removed one.
 */
extern void keys_published(uint64 hash, TimestampTz since, bool removed);

/* Counts a job that was handed out, */
extern void key_take(const JobRef *ref, TypeState *t);
/* a job that has left its executor, */
extern void key_give_back(const JobRef *ref, TypeState *t);
/* a job that its executor found locked. */
extern void key_not_had(const JobRef *ref);

/*
 * True if all lanes of types that keep the order must be read again; resets
 * the flag.
 */
extern bool keys_lost_order(void);

typedef enum KeyAnswer
{
	KEY_MAY_START,
	KEY_PASS,					/* others go first, or the key is full: key_pass */
	KEY_UNKNOWN					/* the queue can't be read now */
} KeyAnswer;
/* Checks a lane's head; scan may be NULL. */
extern KeyAnswer key_asks(QueueScan *scan, Lane *lane, const JobRef *ref);
/* Takes the lane's head out of memory. */
extern void key_pass(Lane *lane);
/* Reads the jobs that may start now into their lanes. */
extern void keys_turn(QueueScan *scan);
/* True if keys_turn has something to do. */
extern bool keys_pending(void);

/* ---- concurrency_key_scan.c ---- */
/*
 * True if an executor found this job's row locked, and no commit has published
 * the job since.
 */
extern bool key_is_busy(const Key *key, const pg_uuid_t *id);

/*
 * True if this is the first live job of the key, of any type, in the order of
 * creation.
 */
extern bool key_scan_is_first(QueueScan *scan, Key *key, const JobRef *ref);

/*
 * Reads the first job of the key into its lane when it is due and its type
 * keeps the order.
 */
extern void key_scan_first(QueueScan *scan, Key *key);

/*
 * Reads up to n jobs that were passed over; false: there are no more of them.
 */
extern bool key_scan_passed(QueueScan *scan, Key *key, KeyLane *kl, int n);

#endif
