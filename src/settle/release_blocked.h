/*
 * release_blocked.h
 *	  The end of a blocked job's wait: the other change of a job's state.
 */
#ifndef JOBQ_RELEASE_BLOCKED_H
#define JOBQ_RELEASE_BLOCKED_H

#include "registry/job_types.h"
#include "settle/ledger.h"

/*
 * Lets a locked blocked job wait for its turn, due at its scheduled_for, or
 * now; `position`: in its lane, 0: that time.
 */
extern void release_blocked(Ledger *ledger, Job *job, JobType *type, TimestampTz position);

#endif
