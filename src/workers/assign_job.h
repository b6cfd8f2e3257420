/*
 * assign_job.h
 *	  Assigns a job to an executor.
 */
#ifndef JOBQ_ASSIGN_JOB_H
#define JOBQ_ASSIGN_JOB_H

#include "limits/type_state.h"

typedef enum HandOut
{
	HANDED_OUT,
	NO_CAPACITY,				/* no executor of its role has room now */
	LIMIT_FULL,					/* a limit of the type has no room: t->closed */
	TOO_HEAVY,					/* jobq.max_weight has no room */
	TENANT_FULL,				/* its tenant runs as many as it may */
	NO_BATCH,					/* its claim waits for a batch */
	NO_CLAIM					/* its tenant is none of the waiting claims' */
} HandOut;

/*
 * Puts the job into a cell of an executor that can take it; cancel_reason: of
 * a job to be settled as cancelled.
 */
extern HandOut assign_job(TypeState *t, const JobRef *ref, const char *cancel_reason, MonoTime now);

/*
 * Returns the reasons for which assign_job would not hand out the job now, as
 * in job_bars.h; 0: none.
 */
extern uint32 assign_bars(TypeState *t, const JobRef *ref);

/* Returns the role of the executors that settle the job without running it. */
extern RoleState *settling_role(TypeState *t, const JobRef *ref);

#endif
