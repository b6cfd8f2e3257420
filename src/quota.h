/*
 * quota.h
 *	  How much a tenant may have in the queue, and enqueue: jobq.set_tenant_quota.
 *
 * A quota counts the jobs of its tenant and of those below it ("acme" counts acme/...).  Tenants without one
 * pay the test whether there are quotas at all.
 */
#ifndef JOBQ_QUOTA_H
#define JOBQ_QUOTA_H

#include "nodes/pg_list.h"
#include "queue.h"

#define JOBQ_MAX_QUOTAS		1024	/* tenants with a quota that are remembered, in all databases */
#define QUOTA_SECONDS		61		/* the last minute, and the second that began it */

/* What is remembered of a quota, under the tenant's lock (quota.c). */
typedef struct QuotaEntry
{
	Oid			dboid;			/* InvalidOid: free */
	uint64		key;			/* hash of the tenant */
	bool		known;			/* live and bytes have been counted once */
	int64		live;			/* at most so many */
	int64		bytes;
	TimestampTz count_again;	/* not before */
	int64		second;			/* the newest one in enqueued */
	int32		enqueued[QUOTA_SECONDS];	/* by second, modulo their number */
} QuotaEntry;

/* The quotas that count jobs of a tenant, outermost first; NIL: none. */
extern List *quotas_of(text *tenant);

/*
 * Around the insertion of a job.  quota_admit raises 53400 when it is too much, and returns with the tenants locked
 * otherwise; the job must be inserted, or not, at once.  id NULL: it was not.
 */
extern void quota_admit(List *quotas, Table *queue, Jsonb *payload);
extern void quota_done(List *quotas, Jsonb *payload, const pg_uuid_t *id);
/* Another payload for a job that waits and is ours: 53400 when it is larger and that is too much. */
extern void quota_replace(List *quotas, Table *queue, Job *job, Jsonb *payload);

#endif
