/*
 * claimers.h
 *	  Sessions that wait in jobq.claim, as the dispatcher keeps them.
 */
#ifndef JOBQ_CLAIMERS_H
#define JOBQ_CLAIMERS_H

#include "lanes/queue_scan.h"
#include "workers/assign_job.h"

extern void claimers_init(MemoryContext context, JobqDb *db);
/* Takes over the requests that a former dispatcher has not answered. */
extern void claimers_recover(void);
/* Takes new requests; true if there are any. */
extern bool claimers_take(void);
/* True if a new request has not been served in a turn yet. */
extern bool claimers_pending(void);
/*
 * Opens the wait queues of the types that new requests name, and reads jobs
 * that were passed over.  scan NULL: the queue can't be read now.
 */
extern void claimers_open(QueueScan *scan);
/* Notes that the registry has changed: requests that name a dropped type end. */
extern void claimers_types_changed(void);
/* Gives the job to the first request for its type and tenant. */
extern HandOut claimers_assign(TypeState *t, const JobRef *ref);
/* Returns the reasons for which no request gets it now, as in job_bars.h. */
extern uint32 claimers_bars(TypeState *t, const JobRef *ref);
/* Answers the requests that have jobs, and those that do not wait for any. */
extern void claimers_answer(void);

#endif
