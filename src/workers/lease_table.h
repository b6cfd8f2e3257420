/*
 * lease_table.h
 *	  The dispatcher's table of leases: for leases.c, lease_settle.c and
 *	  former_claims.c only.
 */
#ifndef JOBQ_LEASE_TABLE_H
#define JOBQ_LEASE_TABLE_H

#include "lib/ilist.h"
#include "lib/pairingheap.h"
#include "utils/hsearch.h"
#include "utils/uuid.h"

#include "limits/type_state.h"
#include "shared/claims.h"

#define OVERDUE_US		USECS_PER_SEC	/* a lease that is over and could not be
										 * settled is settled after that */
#define HOLDER_US		(10 * USECS_PER_SEC)	/* its row may be locked for that
												 * long or the lease's length */

typedef struct Lease
{
	pg_uuid_t	id;				/* hash key */
	JobRef		ref;
	int			place;			/* of the claim; -1: committed */
	uint32		xact;			/* of the claim: ClaimPlace.xact */
	uint64		request;		/* of the claim: CLAIM_NUMBER of its place */
	uint64		hand_out;		/* of a run that is not known to have begun: its number; 0: else */
	bool		noted;			/* its start is in the rate windows */
	bool		settling;		/* over: lease_settle.c has it */
	bool		counted;		/* else the exec worker that settles it is */
	bool		limited;		/* has a key, a tenant's limit or a breaker */
	bool		run;			/* of a workflow: takes no place of jobq.max_concurrent */
	bool		kept;			/* could not be settled: see lease_keep */
	bool		cancelled;		/* its cancel was seen */
	bool		reported;		/* the log has that its row is locked */
	MonoTime	over_since;		/* it is over since then, and its row is locked;
								 * 0: no */
	uint32		session;		/* the lease ends with it; 0: with no session */
	int			listed;			/* its place in JobqDb.claimed; -1: none */
	dlist_node	unlisted_node;	/* while it has none */
	int64		lease_us;
	TimestampTz expires_at;		/* as last read */
	MonoTime	until;			/* the lease, as far as known */
	MonoTime	deadline;		/* DT_NOEND: none */
	pairingheap_node node;		/* in the heap of timers */
	dlist_node	key_node;		/* in by_key, if it is counted and has a key */
	dlist_node	run_node;		/* in unbegun, if it has a hand_out */
} Lease;

extern void lease_table_init(MemoryContext context, JobqDb *db);
extern Lease *find_lease(const pg_uuid_t *id);
/* Adds and counts a job; place: of its open claim, -1: it is committed. */
extern Lease *add_lease(TypeState *t, const JobRef *ref, int place);
/* Forgets the lease and stops counting it; returns its ref. */
extern JobRef drop_lease(Lease *lease);
/* Notes that the row of the claim was read, or that of a run. */
extern void lease_committed(Lease *lease);
/* True if the conductor is starting the run; else it can't begin any more. */
extern bool lease_run_begins(const Lease *lease);
/* True if there are leases whose claims were not read yet. */
extern bool leases_are_unread(void);
/*
 * Stops counting a lease that stays in the table, and counts it again.  Its
 * job may still probe a breaker: the exec worker settles it.
 */
extern void lease_uncount(Lease *lease);
extern void lease_count(Lease *lease);

/* Sets both times; a lease that is being settled has no timer. */
extern void lease_set_timer(Lease *lease, MonoTime until, MonoTime deadline);
/* Returns the time of the lease's timer. */
extern MonoTime lease_due_at(const Lease *lease);
/* Returns the lease whose timer is next; NULL: there is none. */
extern Lease *first_due(void);

/* True if the transaction that has claimed the job is open. */
extern bool lease_claim_is_open(const Lease *lease);
/* Notes that a client has the job: no scan hands it out. */
extern void lease_note_known(const JobRef *ref);
/* Sets the timers of the session's leases to now. */
extern void leases_end_session(uint32 session);
/* Returns the ids of all leases that are in an open claim, or of all others. */
extern pg_uuid_t *leases_by_claim(bool open, int *n);
/*
 * True if the session has written the row of its open claim, or refused it,
 * and has not begun to write those of a later answer.
 */
extern bool lease_claim_is_written(const Lease *lease);
/* Returns the xid of the open claim's transaction. */
extern TransactionId lease_claim_xid(const Lease *lease);

/*
 * Terminates the session of that claim; false: its transaction has ended.
 */
extern bool lease_end_claim(int number, uint32 xact);

/* Settles a lease that is over: lease_settle.c. */
extern void lease_settle_init(MemoryContext context);
extern void settle_later(Lease *lease, Charge charge);
/* Returns the number of leases that wait for the exec worker. */
extern int	leases_settling(void);
/* Reads the row again at the next turn: leases.c. */
extern void lease_look_again(const pg_uuid_t *id);

#endif
