/*
 * run_starts.h
 *	  Runs of workflows: handed to the conductor, which starts them.
 */
#ifndef JOBQ_RUN_STARTS_H
#define JOBQ_RUN_STARTS_H

#include "limits/type_state.h"
#include "shared/slots.h"
#include "workers/assign_job.h"

extern void run_starts_init(MemoryContext context, JobqDb *db);
/* Hands a run to the conductor, and starts one if there is none. */
extern HandOut run_starts_assign(TypeState *t, const JobRef *ref, MonoTime now);
/* Returns the reasons for which no run starts now, as in job_bars.h. */
extern uint32 run_starts_bars(TypeState *t);
/* True if the conductor has made room. */
extern bool run_starts_pending(void);
/* Opens the wait queues of workflows when it has. */
extern void run_starts_open(void);

#endif
