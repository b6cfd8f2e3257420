/*
 * db_inbox.h
 *	  Parts of JobqDb through which clients reach the dispatcher; shmem.h has
 *	  the table.
 */
#ifndef JOBQ_DB_INBOX_H
#define JOBQ_DB_INBOX_H

#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

/*
 * One publication.  For a lane: the positions of the rows that a transaction
 * has written there; lo == hi is one exact position.  With the type id
 * KEY_NEWS, for a concurrency key: lo is its hash (0: any), hi its key_since,
 * and priority 1 means that a row was removed.
 */
typedef struct LaneKeys
{
	int32		type_id;
	int16		priority;
	int16		sublane;
	TimestampTz lo;
	TimestampTz hi;
} LaneKeys;

#define KEY_NEWS	0

/*
 * The type id of an entry about a job that clients work: lo and hi hold its
 * id, priority a LeaseNews (claims.h).
 */
#define LEASE_NEWS	(-1)

/*
 * Publications of transactions that have ended, for the dispatcher
 * (publish_jobs.c, inbox.c).  Under JobqDb.mutex.
 */
typedef struct PublicationRing
{
	uint64		head;			/* next to read; the dispatcher's */
	uint64		tail;			/* next to write; both modulo jobq_max_lanes,
								 * so they must not wrap */
	bool		overflow;		/* publications were lost: every lane from
								 * overflow_lo on is suspect */
	TimestampTz overflow_lo;
	bool		leases_lost;	/* entries about leases were lost: read the
								 * rows of all of them */
	LaneKeys   *keys;			/* jobq_max_lanes entries */
	pg_atomic_uint32 imminent;	/* type of a job that a commit under way will
								 * publish, 0: none; without the mutex */
} PublicationRing;

/*
 * Job types: publications of these alone need not wake the dispatcher.  Nor do
 * ends of clients' attempts, unless ends_count.
 * (wakeup_filter.c writes, publish_jobs.c reads).  Under JobqDb.mutex.
 */
#define JOBQ_QUIET_TYPES	16
typedef struct WakeupFilter
{
	int			ntypes;
	int32		types[JOBQ_QUIET_TYPES];
	bool		ends_count;		/* jobs may wait for the end of a client's
								 * attempt */
} WakeupFilter;

#define JOBQ_MAX_CANCELS	256
#define JOBQ_KEPT_CANCELS	(2 * JOBQ_MAX_CANCELS) /* of a dispatcher that
													 * ends */
#define JOBQ_REASON_LEN		128

/* A committed management call's request to cancel a running attempt. */
typedef struct CancelRequest
{
	pg_uuid_t	id;
	char		reason[JOBQ_REASON_LEN];
	bool		has_reason;
} CancelRequest;

/*
 * Requests of committed transactions to the dispatcher (publish_jobs.c and
 * dispatcher_request.c write, inbox.c reads).  Under JobqDb.mutex.
 */
typedef struct Requests
{
	bool		types_changed;
	bool		signals_changed;	/* signals or rules */
	bool		reload;
	int			ncancels;
	int			nreserved;		/* cancels that open transactions may still
								 * add */
	CancelRequest cancels[JOBQ_MAX_CANCELS + JOBQ_KEPT_CANCELS];
} Requests;

/* A publication that is read when a transaction has ended. */
typedef struct XactKeys
{
	TransactionId xid;
	LaneKeys	pub;
} XactKeys;

/*
 * Successors of unique keys whose predecessors are being ended by open
 * transactions; a sweep finds those that are too many (publish_jobs.c writes,
 * inbox.c reads).  Under JobqDb.mutex.
 */
#define JOBQ_SUCCESSORS 256
typedef struct Successors
{
	int			n;				/* also read plainly */
	XactKeys	keys[JOBQ_SUCCESSORS];
} Successors;

/*
 * Publications of prepared transactions, which wait for COMMIT or ROLLBACK
 * PREPARED (publish_jobs.c and statement_hooks.c write, inbox.c reads).  Under
 * JobqDb.mutex.
 */
#define JOBQ_MAX_PREPARED 32
typedef struct PreparedXacts
{
	int			nxacts;
	bool		types_changed;	/* one has changed the registry: read it again
								 * when any ends */
	bool		overflow;		/* there were more than fit */
	uint32		ended;			/* COMMIT and ROLLBACK PREPARED so far; also
								 * read plainly */
	XactKeys	xacts[JOBQ_MAX_PREPARED];
} PreparedXacts;

/* Requests of jobq.claim (claims.c).  Under JobqDb.mutex. */
typedef struct ClaimList
{
	int			first;			/* index of its place + 1, also read plainly;
								 * 0: none */
	int			last;
} ClaimList;

/* jobq.stop_all() and jobq.drain() (kill_switch.c). */
typedef struct KillSwitch
{
	int			ndrains;		/* transactions in jobq.drain(): nothing is
								 * handed out; under JobqDb.mutex */
	bool		stopped;		/* the dispatcher knows that stop_all() is on;
								 * plain reads */
	bool		draining;		/* the dispatcher has seen ndrains; plain
								 * reads */
	ConditionVariable idle;		/* broadcast after a turn of the dispatcher
								 * while one of the two is set */
} KillSwitch;

#endif
