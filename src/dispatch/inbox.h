/*
 * inbox.h
 *	  What reaches the dispatcher, and what it puts aside.
 */
#ifndef JOBQ_INBOX_H
#define JOBQ_INBOX_H

#include "lanes/queue_scan.h"

/* What a look at the ring has told besides keys; set, never cleared by take_publications. */
typedef struct News
{
	bool		types_changed;
	bool		signals_changed;
	TimestampTz lost_from;		/* publications were lost from this key on; DT_NOEND: none */
	bool		prepared_lost;	/* keys of prepared transactions were */
} News;

extern void intake_init(MemoryContext context, JobqDb *db);
extern void take_publications(News *news);
/* Gives each publication to its lane; needs a transaction. */
extern void apply_publications(TimestampTz now);
extern void read_touched_lanes(QueueScan *scan);
/* Lanes are about to be forgotten. */
extern void forget_touched_lanes(void);
extern void take_commands(void);
/* Scan may be NULL. */
extern void run_commands(QueueScan *scan);
/* The process ends: what is left of commands goes back to shared memory, for the next one. */
extern void intake_leave(void);
extern void hand_out_cancels(MonoTime now);
/* Holds a job that can't go back to its lane at once. */
extern void hold_job(const JobRef *ref, MonoTime until, bool for_partition);
/* Puts a job back into its lane. */
extern void return_job(const JobRef *ref);
/* Reads the keys again, as if they were published. */
extern void probe_again(const LaneKeys *keys);
/* Repeats a cancel that met an attempt which ended otherwise. */
extern void cancel_after_all(const pg_uuid_t *id, const char *reason);
/* Something waits here for a turn with a transaction. */
extern bool intake_pending(void);
extern bool intake_cancels_pending(void);
extern void release_held(MonoTime now, bool partitions_made);
extern MonoTime held_next_timer(void);
/* Before a full scan, which reads them again like everything that waits. */
extern void forget_held(void);
/* Where the rows of waiting cancels are is not known any more: look them up anew. */
extern void reread_cancels(void);

#endif
