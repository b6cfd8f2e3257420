/*
 * pull_job.h
 *	  A job that a client holds by its lease token, and the end of its attempt.
 */
#ifndef JOBQ_PULL_JOB_H
#define JOBQ_PULL_JOB_H

#include "base/act_as.h"
#include "settle/settle.h"

/*
 * A call of a client: from pull_begin to pull_end it runs as the owner of
 * jobq's tables.  An error needs no pull_end.
 */
typedef struct PullCall
{
	Caller		caller;
	Ledger		ledger;
} PullCall;

extern void pull_begin(PullCall *call, const char *function);
extern void pull_end(PullCall *call);

/*
 * True if the job runs with that token, which the caller may use for it.
 */
extern bool pull_holds(PullCall *call, Job *job, const pg_uuid_t *token);

/*
 * Locks the job if it runs with that token and the caller may work it; false:
 * it does not, or another role's token was given.  Waits for a transaction
 * that holds the row.
 */
extern bool pull_lock(PullCall *call, const pg_uuid_t *id, const pg_uuid_t *token, Job *job);

/* True if the role may work the job. */
extern bool pull_may_work(Oid role, Job *job);
/* Raises 42501. */
pg_noreturn extern void pull_denied(const JobType *type);

/*
 * Returns a new token, of a claim by that role; session: claim_session.h, 0 for
 * a lease of its own.
 */
extern pg_uuid_t pull_token(Oid role, uint32 session);

/* Prepares the outcome of a locked job's attempt: its times and worker. */
extern void pull_outcome(Job *job, Outcome *o, OutcomeKind kind);

/* Settles the locked job, and publishes the end of its lease. */
extern JobStatus pull_settle(PullCall *call, Job *job, Outcome *o);

/* True if the job's cancel was requested. */
extern bool pull_cancel_requested(Job *job);

/* Raises 55000 unless this database can hand out jobs; else its entry. */
extern JobqDb *pull_db(const char *function);

#endif
