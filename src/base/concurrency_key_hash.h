/*
 * concurrency_key_hash.h
 *	  A job's concurrency key and tenant as one number.
 */
#ifndef JOBQ_CONCURRENCY_KEY_HASH_H
#define JOBQ_CONCURRENCY_KEY_HASH_H

/*
 * Returns the hash, 0: no key.  Rows store it (jobq.queue.key_hash).  Runs of
 * workflows have keys of their own: a task must not wait for the key that its
 * run holds.
 */
extern uint64 key_hash(const text *tenant, const text *key, bool run);

#endif
