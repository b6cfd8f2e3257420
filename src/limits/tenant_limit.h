/*
 * tenant_limit.h
 *	  At most so many jobs of a tenant run at once: max_running of
 *	  jobq.set_tenant_quota, as the dispatcher keeps it.
 *
 * JobRef.tenant_limit is the number of the innermost limit that counts the
 * job, 0: none.  The limits of tenants above that one count it, too.
 */
#ifndef JOBQ_TENANT_LIMIT_H
#define JOBQ_TENANT_LIMIT_H

#include "lanes/queue_scan.h"
#include "limits/job_limit.h"

extern void tenant_limits_init(MemoryContext context, JobqDb *db);

/*
 * Notes that the quotas may have changed: tenant_limits_refresh reads them
 * again.
 */
extern void tenant_limits_suspect(void);

/*
 * Reads jobq.tenant_quotas again after that.  True: limits have changed, and
 * with them the numbers in all refs.  The running jobs must be counted again
 * (tenant_limit_up) and the lanes read again.
 */
extern bool tenant_limits_refresh(void);
/* True if the quotas could not be read without waiting. */
extern bool tenant_limits_are_suspect(void);
/* Forgets the jobs that were passed over: lanes are about to be forgotten. */
extern void tenant_limits_forget_lanes(void);

/*
 * True if one more job may start in that executor; -1 and exec: in one that
 * has none of the tenant.
 */
extern bool tenant_limit_has_room(const JobRef *ref, int executor, bool exec);
extern void tenant_limit_up(const JobRef *ref, int executor, bool exec);
extern void tenant_limit_down(const JobRef *ref, int executor, bool exec);

/*
 * Takes the lane's head, of a full tenant, out of memory.  It is read again
 * when there is room.
 */
extern void tenant_limit_pass(Lane *lane);
/* Calls visit for each limit; `waits`: jobs were passed over for it. */
extern void tenant_limits_visit(void (*visit) (const char *tenant, const JobLimit *limit, bool waits));
/* True if tenant_limits_turn has something to do. */
extern bool tenant_limits_pending(void);
/* Reads jobs that were passed over and may start now into their lanes. */
extern void tenant_limits_turn(QueueScan *scan);

#endif
