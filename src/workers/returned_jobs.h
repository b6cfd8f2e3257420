/*
 * returned_jobs.h
 *	  Jobs that come back from an executor: into their lane, held for a while,
 *	  forgotten, or read again.
 */
#ifndef JOBQ_RETURNED_JOBS_H
#define JOBQ_RETURNED_JOBS_H

#include "lanes/lanes.h"

extern void returned_jobs_init(MemoryContext context, JobqDb *db);
/* Returns the job's lane; makes one if there is none. */
extern Lane *lane_of(const JobRef *ref);
/* Puts a job back into its lane. */
extern void return_job(const JobRef *ref);
/* Forgets a job. */
extern void forget_job(const JobRef *ref);

/*
 * Forgets a job and reads it again under its key: an executor may have
 * rewritten the row.
 */
extern void reread_job(const JobRef *ref);

typedef enum HoldReason
{
	HOLD_COMMIT,				/* the commit of its end has failed twice */
	HOLD_CANCEL					/* its cancel could not be settled */
} HoldReason;

/* Holds a job until then. */
extern void hold_job(const JobRef *ref, MonoTime until, HoldReason reason);

/*
 * Returns the type of a job that is held for that reason; 0: none is.
 */
extern int32 held_type(HoldReason reason);
/* Puts held jobs back into their lanes. */
extern void held_release(MonoTime now);
/* Ends the hold of a job that is handled otherwise now. */
extern void held_drop(const pg_uuid_t *id);
/* Forgets all held jobs: a full scan reads them again. */
extern void held_forget(void);
extern MonoTime returned_jobs_next_timer(MonoTime now);

extern bool rereads_pending(void);

/*
 * Returns the keys and forgets them; the array lasts until the next
 * read_again.
 */
extern const LaneKeys *take_rereads(int *n);

#endif
