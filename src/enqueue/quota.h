/*
 * quota.h
 *	  Bounds on a tenant's jobs in the queue and its enqueues: jobq.set_tenant_quota.
 *
 * A quota counts the jobs of its tenant and of those below it ("acme" counts
 * acme/...).  Tenants without one pay the test whether there are quotas at all.
 */
#ifndef JOBQ_QUOTA_H
#define JOBQ_QUOTA_H

#include "nodes/pg_list.h"
#include "tables/queue_table.h"

/* attribute numbers of jobq.tenant_quotas: src/sql/13_quotas.sql */
enum
{
	TQ_tenant = 1, TQ_max_live, TQ_max_bytes, TQ_enqueues_per_minute, TQ_max_running, TQ_max_schedules
};
#define TQ_NATTS TQ_max_schedules

/* -1: no limit */
typedef struct Quota
{
	char	   *tenant;
	int64		max_live;
	int64		max_bytes;
	int64		per_minute;
} Quota;

/* Returns the quotas that count jobs of a tenant, outermost first; NIL: none. */
extern List *quotas_of(text *tenant);

/*
 * Enclose the insertion of a job.  quota_admit raises 53400 when a quota is
 * exceeded, and else returns with the tenants locked; the caller must insert the
 * job, or not, at once.  id NULL: it was not inserted.  is_new false: the job
 * was there before the lock, so set_tenant_quota may have counted it.
 */
extern void quota_admit(List *quotas, Table *queue, int64 bytes);
extern void quota_done(List *quotas, int64 bytes, const pg_uuid_t *id, bool is_new);
/*
 * Admits another size of a waiting job that this transaction holds: 53400
 * when the growth exceeds a quota.
 */
extern void quota_replace(List *quotas, Table *queue, Job *job, int64 bytes);
/* Returns the bytes of a job that count: payload and metadata (NULL: none), rendered. */
extern int64 quota_bytes(Jsonb *payload, Jsonb *metadata);

/* Between quota.c and quota_rows.c */
/* The tenant's lock is held for an insertion only, not to the end of the transaction. */
extern uint64 quota_key(const char *tenant);
extern void quota_lock(uint64 key);
extern void quota_unlock(uint64 key);
extern bool quota_counts(const Quota *quota, text *tenant);
extern bool quota_forget(const char *tenant, bool removed);
extern int64 quota_count_rows(Table *rows, Table *queue, const char *tenant, int64 *live, int64 *bytes);
extern void quota_insert_row(Table *rows, const char *tenant, const pg_uuid_t *id, int64 bytes, bool is_new);
extern void quota_update_row(Table *rows, const char *tenant, const pg_uuid_t *id, int64 bytes);

/* The checked columns of jobq.tenant_quotas, jobq.quota_jobs: see table_shape.h. */
extern const struct Shape tenant_quotas_shape;
extern const struct Shape quota_jobs_shape;

#endif
