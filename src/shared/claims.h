/*
 * claims.h
 *	  A session's claim in shared memory: its request, and the jobs that the
 *	  dispatcher hands to it.
 *
 * Each process of the server has one place, by the number of its PGPROC.  The
 * word of a place counts the session's claims and has the state of the last
 * one; every change is a compare-and-swap:
 *
 *	 IDLE -> ASKING		the session; it puts itself into JobqDb.claims
 *	 ASKING -> ANSWERED	the dispatcher, when refs[] is filled
 *	 ASKING -> IDLE		the session: it no longer waits
 *	 ANSWERED -> IDLE	the session, when it has copied refs[]
 *
 * The dispatcher counts a job as running from its hand-out on.  The session
 * publishes the job's id (note_lease) when its transaction ends; then the
 * dispatcher reads the row: it is running and has a lease, or waits as before.
 * A dispatcher that replaces another one finds the jobs of the last answer in
 * refs[]; `taken` says whether the open transaction has more.
 */
#ifndef JOBQ_CLAIMS_H
#define JOBQ_CLAIMS_H

#include "shared/slots.h"

#define JOBQ_CLAIM_REFS		128		/* jobs of one answer */
#define JOBQ_CLAIM_TYPES	256		/* numbers of types fit into a byte of ClaimScope.tenants */
#define JOBQ_CLAIM_SCOPE	2048	/* bytes of its tenants */
#define JOBQ_HELD_WORDS		16

typedef enum ClaimState
{
	CLAIM_IDLE,
	CLAIM_ASKING,
	CLAIM_ANSWERED
} ClaimState;

#define CLAIM_STATE(word)	((ClaimState) ((word) & 3))
#define CLAIM_NUMBER(word)	((word) >> 2)

/* A bit for each type of a request, by its number. */
typedef struct ClaimTypes
{
	uint64		words[JOBQ_CLAIM_TYPES / 64];
} ClaimTypes;

static inline void
claim_types_add(ClaimTypes *set, int i)
{
	set->words[i / 64] |= UINT64CONST(1) << (i % 64);
}

static inline bool
claim_types_have(const ClaimTypes *set, int i)
{
	return (set->words[i / 64] & (UINT64CONST(1) << (i % 64))) != 0;
}

/*
 * The tenants that the role may work, of those types to which it has access
 * for some tenants only.  "" stands for jobs without one, "acme" for acme and
 * acme/...
 */
typedef struct ClaimScope
{
	ClaimTypes	limited;		/* those types */
	int			len;
	char		tenants[JOBQ_CLAIM_SCOPE];	/* i as a byte, a tenant, '\0'; ... */
} ClaimScope;

typedef struct ClaimPlace
{
	pg_atomic_uint64 word;
	pg_atomic_uint32 session;	/* claim_session.h; 0: none */

	/* the session writes before it asks */
	Oid			dboid;
	Oid			roleid;
	PGPROC	   *proc;
	pid_t		pid;
	int			ntypes;
	int32		types[JOBQ_CLAIM_TYPES];
	ClaimScope	scope;
	ClaimTypes	begun;			/* those of which the call has jobs: it has a batch */
	int			wanted;
	bool		waits;			/* an answer without jobs is of no use */
	int64		lease_us;
	bool		writing;		/* it writes the claims of the last answer */
	int			taken;			/* jobs of all answers that the open transaction
								 * has taken */
	uint64		taken_types;	/* their types: CLAIM_TYPE_BIT */
	int			next;			/* in JobqDb.claims: index + 1; 0: the last;
								 * under JobqDb.mutex */

	/* under JobqDb.mutex */
	bool		open;			/* a transaction that has asked is open */
	bool		commits;		/* it can't fail any more, and may wait for a
								 * standby */
	uint32		xact;			/* counts these transactions */
	pid_t		holder;			/* has called a function about a claimed job in
								 * its open transaction, which may still roll
								 * back; 0: no */
	pg_atomic_uint64 held[JOBQ_HELD_WORDS]; /* of these jobs: bits of hashes of
											 * their ids; the session's */

	/* the dispatcher writes before it answers */
	int			nrefs;
	JobRef		refs[JOBQ_CLAIM_REFS];
} ClaimPlace;

/* What a session tells the dispatcher about a job that it has claimed. */
typedef enum LeaseNews
{
	LEASE_LOOK,					/* read its row: a transaction with it is over */
	LEASE_ENDED,				/* a committed transaction has removed its row */
	LEASE_BACK,					/* the same; its claim is taken back, and the
								 * transaction goes on */
	LEASE_NOT_MINE,				/* its row was locked or changed */
	LEASE_SESSION_GONE			/* not a job: the session of that number has
								 * ended */
} LeaseNews;

/* A bit for each type; types may share one. */
#define CLAIM_TYPE_BIT(type_id)	(UINT64CONST(1) << ((uint32) (type_id) % 64))

#define claim_place(i)		(&JobqShmem->claims[i])

/* Returns this process's place; NULL: jobq is not preloaded. */
extern ClaimPlace *my_claim_place(void);

/* Asks the dispatcher of db; the request is in the place. */
extern void claim_ask(JobqDb *db, ClaimPlace *place);
/* True if the dispatcher has answered. */
extern bool claim_is_answered(ClaimPlace *place);
/*
 * Takes the answer into refs, and the place is idle; returns their number.
 * When all of them are written or refused, the session calls claim_written.
 */
extern int	claim_take(ClaimPlace *place, JobRef *refs);
extern void claim_written(ClaimPlace *place);

/*
 * Wakes the sessions whose claims in the database have no answer: they look at
 * Lifecycle.changes.  Cannot fail.
 */
extern void claims_wake(Oid dboid);

/*
 * Ends the wait: the request is withdrawn, and jobs of an answer go back.
 * Cannot fail; may be called at any time.
 */
extern void claim_withdraw(void);

/*
 * Ends the session's claims at the end of its transaction, before their jobs
 * are published.  Cannot fail.
 */
extern void claims_end(void);

/*
 * Notes that a call of the open transaction writes a job that was claimed.  If
 * the transaction keeps the row locked for too long after the lease is over,
 * the dispatcher terminates the session (claim_end_holder).
 */
extern void claim_hold(const pg_uuid_t *id);
/* Notes that the transaction commits: the session is terminated no more. */
extern void claim_commits(void);

/* Tells the dispatcher about one job at once.  Cannot fail. */
extern void claim_tell(JobqDb *db, const pg_uuid_t *id, LeaseNews news);

/*
 * Copies the ids of the jobs that clients have, at most JOBQ_CLAIMED; returns
 * their number, -1: the dispatcher does not know all of them, or there is none.
 */
extern int	claimed_ids(JobqDb *db, pg_uuid_t *ids);

/* --- dispatcher's side --- */
/*
 * Takes up to max requests, the oldest first, as indexes of places; returns
 * their number.
 */
extern int	claim_list_take(JobqDb *db, int *places, int max);
/*
 * Terminates the session that has the transaction xid open and has called a
 * function about the job in it; returns its pid, 0: there is none.
 */
extern pid_t claim_end_holder(JobqDb *db, TransactionId xid, const pg_uuid_t *id);
/* Answers the request that `word` was read with; false: it is withdrawn. */
extern bool claim_answer(ClaimPlace *place, uint64 word);

#endif
