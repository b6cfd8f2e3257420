/*
 * unpublished.h
 *	  The unpublished changes of the open transaction: xact_changes.c collects
 *	  them, publish_jobs.c publishes them at its end.
 */
#ifndef JOBQ_UNPUBLISHED_H
#define JOBQ_UNPUBLISHED_H

#include "shared/breaker.h"
#include "shared/shmem.h"

#define JOBQ_EXACT_KEYS 8		/* per transaction and lane; beyond: one
								 * interval */

typedef struct UnpublishedLane
{
	int32		type_id;
	int16		priority;
	int16		sublane;
	int			nkeys;			/* > JOBQ_EXACT_KEYS: only lo and hi count */
	TimestampTz keys[JOBQ_EXACT_KEYS];
	TimestampTz lo;
	TimestampTz hi;
} UnpublishedLane;

/* A concurrency key with changed rows. */
typedef struct UnpublishedKey
{
	uint64		hash;			/* 0: of any */
	TimestampTz since;		/* the earliest */
	bool		removed;
} UnpublishedKey;

typedef struct UnpublishedCancel
{
	CancelRequest request;
	SubTransactionId subid;		/* that requested it */
} UnpublishedCancel;

/* A job that was claimed, or a lease that has ended. */
typedef struct UnpublishedLease
{
	pg_uuid_t	id;
	SubTransactionId subid;
	MonoTime	until;			/* of a claim: its lease ends; else 0 */
	bool		ended;			/* by the client: the rest is set */
	bool		failed;
	int			status;			/* JobStatus */
	BreakerNote breaker;
} UnpublishedLease;

/*
 * The arrays live as long as the backend; shrink_lease_notes keeps the one
 * without a limit small.
 */
typedef struct Unpublished
{
	JobqDb	   *db;				/* NULL: nothing has been done */
	UnpublishedLane *lanes;
	int			nlanes;
	int			lanes_size;
	bool		overflow;		/* there are more: read everything from
								 * overflow_lo on */
	TimestampTz overflow_lo;
	XactKeys   *successors;
	int			nsuccessors;
	int			successors_size;
	UnpublishedKey *keys;
	int			nkeys;
	int			keys_size;
	UnpublishedCancel *cancels;
	int			ncancels;
	int			cancels_size;
	UnpublishedLease *leases;
	int			nleases;
	int			leases_size;
	pg_uuid_t  *noted;			/* jobs it has written */
	int			nnoted;
	int			noted_size;
	bool		types_changed;
	bool		signals_changed;
	SubTransactionId drained_by;	/* is counted in KillSwitch.ndrains */
} Unpublished;

extern Unpublished unpublished;

#endif
