/*
 * concurrency_key_hash.h
 *	  A job's concurrency key and tenant as one number.
 */
#ifndef JOBQ_CONCURRENCY_KEY_HASH_H
#define JOBQ_CONCURRENCY_KEY_HASH_H

/*
 * Returns the hash, 0: no key.  Rows store it (jobq.queue.key_hash).  Runs of
 * workflows have keys of their own, and so have runs that are tasks of runs: no
 * task waits for the key that a run above it holds.  level: 0 for a job, 1 for a
 * run, 2 for one that is a task of a run, and so on.
 */
extern uint64 key_hash(const text *tenant, const text *key, int level);
/* Returns a hash of a tenant; 0: none. */
extern uint32 tenant_hash(const text *tenant);

#endif
