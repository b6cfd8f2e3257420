/*
 * compaction.h
 *	  Keeps the queue's files small: when, by whom, and jobq.compact().
 */
#ifndef JOBQ_COMPACTION_H
#define JOBQ_COMPACTION_H

#include "shared/shmem.h"

/* --- the dispatcher's side --- */
/* Before its sizes are looked at for the first time; context lives as long as the process. */
extern void compaction_init(MemoryContext context, JobqDb *db);
/* In a transaction, once a turn; tick: a sweep is due. */
extern void compaction_turn(MonoTime now, bool tick);
extern MonoTime compaction_next_timer(void);

/* --- the maintenance process's side --- */
extern void compaction_run(JobqDb *db);
/* It ends, one way or the other; JobqShmem->lock is held. */
extern void compaction_ended(JobqDb *db);

/* Sleeps; an interrupt ends it. */
extern void compaction_nap(long ms);

/* jobq.compact_threshold in bytes. */
extern int64 compaction_threshold(void);

/* Heap, TOAST and indexes of jobq.queue; -1: it is locked exclusively, or no heap. */
extern int64 queue_bytes(void);

#endif
