/*
 * concurrency_keys.h
 *	  Concurrency keys: how many jobs of one key run, and which jobs were passed over because their key was full.
 *
 * Only the dispatcher's; concurrency_keys.c has the design, concurrency_key_scan.c the reading.  A key is known by its hash (concurrency_key_hash.h).
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
	int			waiting;		/* of those the lane holds in memory */
	bool		passed;			/* there may be others, from `from` on */
	Range		from;			/* hi is not used */
} KeyLane;

typedef struct Key
{
	uint64		hash;			/* hash key */
	int			running;		/* handed out */
	int			unsettled;		/* have ended with their executor: in a lane, to be settled */
	int			limit;			/* the smallest concurrency_per_key of those that run; 0: to be found out */
	dlist_head	lanes;			/* of KeyLane */
	TimestampTz first_from;		/* no live job of the key was created before; DT_NOBEGIN: not known */
	bool		has_busy;		/* an executor could not have `busy`: who holds its row will publish it */
	pg_uuid_t	busy;
	bool		changed;		/* in the list of those to be looked at */
	bool		idle;			/* in the list of those kept for the sake of first_from */
	bool		in_use;			/* is being looked at: must not go */
	dlist_node	node;			/* in either */
} Key;

/* `smallest_limit` returns the smallest concurrency_per_key of the running jobs of a key. */
extern void keys_init(MemoryContext context, int (*smallest_limit) (uint64 hash));
/* Lanes are about to be forgotten: so is what was passed over, which is read again. */
extern void keys_forget_lanes(void);
/* Limits have changed: everybody who was passed over is tried again. */
extern void keys_reload(void);
/* Something that commits have said about keys is lost. */
extern void keys_suspect(void);
/* A commit has written a row of the key that was created then (0: of any key), or has removed one. */
extern void keys_published(uint64 hash, TimestampTz created_at, bool removed);

/* Counts a job that was handed out, */
extern void key_take(const JobRef *ref, TypeState *t);
/* one that has left its executor, */
extern void key_give_back(const JobRef *ref, TypeState *t);
/* one whose executor found its row locked. */
extern void key_not_had(const JobRef *ref);

/* Since last asked: must all lanes whose types keep the order be read again? */
extern bool keys_lost_order(void);

typedef enum KeyAnswer
{
	KEY_MAY_START,
	KEY_PASS,					/* others go first, or their number is full: key_pass */
	KEY_UNKNOWN					/* the queue can't be read now */
} KeyAnswer;
/* Of a lane's head; scan may be NULL. */
extern KeyAnswer key_asks(QueueScan *scan, Lane *lane, const JobRef *ref);
/* The lane's head goes out of memory. */
extern void key_pass(Lane *lane);
/* Reads those that may go now into their lanes. */
extern void keys_turn(QueueScan *scan);
/* Does keys_turn have something to do? */
extern bool keys_pending(void);

/* ---- concurrency_key_scan.c ---- */
/* Is this the job that an executor could not have, and that nobody has published since? */
extern bool key_is_busy(const Key *key, const pg_uuid_t *id);

/* Is this the first live job of the key, of any type, in the order they were created in? */
extern bool key_scan_is_first(QueueScan *scan, Key *key, const JobRef *ref);
/* Reads that one when it is due and its type keeps the order. */
extern void key_scan_first(QueueScan *scan, Key *key);
/* Reads up to n that were passed over; false: there are no more of them. */
extern bool key_scan_passed(QueueScan *scan, Key *key, KeyLane *kl, int n);

#endif
