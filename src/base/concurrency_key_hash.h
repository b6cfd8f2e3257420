/*
 * concurrency_key_hash.h
 *	  A job's concurrency key and tenant as one number.
 */
#ifndef JOBQ_CONCURRENCY_KEY_HASH_H
#define JOBQ_CONCURRENCY_KEY_HASH_H

/* 0: no key.  Rows have it stored (jobq.queue.key_hash). */
extern uint64 key_hash(const text *tenant, const text *key);

#endif
