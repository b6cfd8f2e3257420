/*
 * db_ends.h
 *	  Part of JobqDb about ended jobs that others wait for; shmem.h has the
 *	  table.
 */
#ifndef JOBQ_DB_ENDS_H
#define JOBQ_DB_ENDS_H

#include "access/transam.h"
#include "port/atomics.h"
#include "storage/itemptr.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

/* A job that has left the queue, or whose state is to be read. */
typedef struct JobEnd
{
	pg_uuid_t	id;
	int			status;			/* JobStatus, END_LOOK or END_READ */
	uint32		tenant;			/* a hash; 0: none, or not known */
} JobEnd;

#define END_LOOK	(-1)		/* it has an edge that it may have missed */
#define END_READ	(-2)		/* a task of that run, or the run, has changed */

#define JOBQ_ENDS	4096

/*
 * Runs of workflows that may start (run_hand_outs.c writes, the conductor
 * takes).  Under JobqDb.mutex.
 */
#define JOBQ_RUN_STARTS	128
#define JOBQ_RUN_HAND_OUTS	4096
typedef struct RunStart
{
	uint64		number;			/* of the hand-out: run_hand_outs.h */
	pg_uuid_t	id;
	ItemPointerData tid;
	int32		rev;
	int32		type_id;
	int16		priority;
	int16		sublane;
	TimestampTz position;
} RunStart;

typedef struct RunStarts
{
	int			n;				/* also read plainly */
	bool		taken;			/* there is room again; plain reads and writes */
	RunStart	runs[JOBQ_RUN_STARTS];
	uint64		last;			/* number */
	int			nopen;			/* hand-outs; also read plainly */
	uint64		open[JOBQ_RUN_HAND_OUTS];	/* their numbers, with marks; 0: none */
} RunStarts;

/*
 * News of committed transactions for the conductor (publish_ends.c writes,
 * conductor_edges.c reads).  Under JobqDb.mutex.
 */
typedef struct EndNews
{
	bool		lost;			/* more than fit: every edge is suspect */
	bool		prepared;		/* a prepared transaction may have news */
	int			n;
	JobEnd		ends[JOBQ_ENDS];
} EndNews;

/*
 * A set of job ids that others wait for, with false positives: a bit for each
 * hash.  An enqueue sets the bit of a parent before it looks at the parent's
 * state; the end of a job tests the bit after it is visible.  So one of the two
 * sees the other.  Two sets, because a set can't forget: awaited_jobs.c.
 */
#define JOBQ_AWAITED_WORDS	32768
#define JOBQ_AWAITED_FULL	(JOBQ_AWAITED_WORDS * 32 / 8)	/* bits after which the set is changed */
typedef struct AwaitedJobs
{
	pg_atomic_uint32 in_use;	/* 0: every id counts as not awaited */
	pg_atomic_uint32 complete;	/* 0: bits of older edges are missing, so
								 * every id counts as awaited */
	pg_atomic_uint32 current;	/* the set that gets new bits */
	pg_atomic_uint32 added;		/* since the last change of sets */
	pg_atomic_uint32 old_has_bits;	/* the other set is not empty */
	pg_atomic_uint32 begun;		/* transactions that have begun to await jobs */
	pg_atomic_uint32 open;		/* those of them that have not ended */
	TransactionId switch_xid;	/* older transactions may have set bits in the
								 * other set; the conductor's */
	TransactionId first_xid;	/* older prepared transactions have set none;
								 * the dispatcher's */
	pg_atomic_uint32 words[2][JOBQ_AWAITED_WORDS];
} AwaitedJobs;

#endif
