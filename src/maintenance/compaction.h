/*
 * compaction.h
 *	  Compaction: keeps the queue's files small, and implements jobq.compact().
 */
#ifndef JOBQ_COMPACTION_H
#define JOBQ_COMPACTION_H

#include "shared/shmem.h"

/* --- the dispatcher's side --- */
/*
 * Prepares compaction_turn(); call it first.  The context lives as long as the
 * process.
 */
extern void compaction_init(MemoryContext context, JobqDb *db);

/*
 * Starts a run when one is due.  In a transaction, once a turn; tick: a sweep
 * is due.
 */
extern void compaction_turn(MonoTime now, bool tick);
/* Returns the time of the next turn that compaction needs. */
extern MonoTime compaction_next_timer(void);

/* --- the maintenance process's side --- */
/* Runs both steps (compaction.c). */
extern void compaction_run(JobqDb *db);

/*
 * Notes the end of the process, with or without success; JobqShmem->lock is
 * held.
 */
extern void compaction_ended(JobqDb *db);

/* Sleeps; an interrupt ends it. */
extern void compaction_nap(long ms);

/* Returns jobq.compact_threshold in bytes. */
extern int64 compaction_threshold(void);

/*
 * Returns the size of jobq.queue with TOAST and indexes; -1: the table is
 * locked exclusively, or is no heap.
 */
extern int64 queue_bytes(void);

#endif
