/*
 * leases.h
 *	  Jobs of pull types that clients have: handed to a claim, or claimed with
 *	  a lease in the row.
 */
#ifndef JOBQ_LEASES_H
#define JOBQ_LEASES_H

#include "lanes/queue_scan.h"
#include "limits/type_state.h"

extern void leases_init(MemoryContext context, JobqDb *db);
/* Returns the number of jobs that clients have, and that limits count. */
extern int	leases_running(void);
/* True if ends of some may let jobs start that limits do not block. */
extern bool leases_have_more_limits(void);
/* Returns the number with those that the exec worker settles. */
extern uint32 leases_held(void);
/* Returns the smallest concurrency_per_key of those of the key. */
extern int	leases_per_key(uint64 key);
/* Finds one of the key; false: none. */
extern bool leases_key_holder(uint64 key, pg_uuid_t *id);

/* Counts a job that is handed to a claim; the claim asked for that lease. */
extern void lease_hand(TypeState *t, const JobRef *ref, int place, int64 lease_us);
/* Counts a run that is handed to the conductor; it is read again after that time. */
extern void lease_hand_run(TypeState *t, const JobRef *ref, uint64 number, int64 us);
/* Takes back runs that have not begun: all, or those whose types may not start any more. */
extern void leases_take_back_runs(bool all, TimestampTz now);
/* Takes back a job whose claim has not been answered. */
extern void lease_take_back(const pg_uuid_t *id);

/* True if a client has the job. */
extern bool lease_has(const pg_uuid_t *id);

/* Takes an entry of the ring about a lease: LEASE_NEWS. */
extern void lease_publication(const LaneKeys *entry);
/* Reads all rows of leases again: entries were lost. */
extern void leases_suspect(void);
/* True if leases_turn has something to do. */
extern bool leases_pending(MonoTime now);
/* Reads the rows of jobs with news, and of leases that are over. */
extern void leases_turn(QueueScan *scan);
/* Hands leases that are over to the exec worker, which settles them. */
extern void leases_settle(MonoTime now);
/* Notes that the exec worker has settled the job. */
extern void lease_settled(const pg_uuid_t *id);
/*
 * Keeps a lease that the exec worker could not settle: tries again in a second,
 * unless the lease was renewed.
 */
extern void lease_keep(const JobRef *ref);
extern MonoTime leases_next_timer(void);

/* Count the jobs of each limit again, and of each limit of a tenant. */
extern void leases_recount(void);
extern void leases_recount_tenants(QueueScan *scan);

#endif
