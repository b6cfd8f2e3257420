/*
 * quota_entries.h
 *	  The entries of tenants' quotas in shared memory (JobqShared.quotas).
 */
#ifndef JOBQ_QUOTA_ENTRIES_H
#define JOBQ_QUOTA_ENTRIES_H

#include "base/clock.h"

#define JOBQ_MAX_QUOTAS		1024	/* tenants with a quota that are remembered, in all databases */
#define QUOTA_SECONDS		61		/* the last minute, and the second that began it */

/* The counts of a quota, under the tenant's lock (quota.c). */
typedef struct QuotaEntry
{
	Oid			dboid;			/* InvalidOid: free */
	uint64		key;			/* hash of the tenant */
	bool		known;			/* live and bytes have been counted once */
	int64		live;			/* at most so many */
	int64		bytes;
	MonoTime	count_again;	/* not before */
	int64		second;			/* the newest one in enqueued */
	int32		enqueued[QUOTA_SECONDS];	/* by second, modulo their number */
} QuotaEntry;

#endif
