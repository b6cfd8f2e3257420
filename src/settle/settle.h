/*
 * settle.h
 *	  The one place where an attempt ends.
 *
 * The executor holds the row's lock (queue_lock) and calls settle() with the
 * outcome, in the transaction whose commit makes it true.  settle() writes
 * queue, history, dead_letters and events, and publishes the row when it waits
 * again.  Callers are the SQL worker, the exec worker, the calls about claimed
 * jobs (pull/), the conductor (starts of runs, workflow/edges.c), the SQL of
 * runs (workflow/run_calls.c), run_inline and cancel_job.
 */
#ifndef JOBQ_SETTLE_H
#define JOBQ_SETTLE_H

#include "registry/job_types.h"
#include "settle/ledger.h"

typedef enum OutcomeKind
{
	OUTCOME_COMPLETED,			/* result */
	OUTCOME_SKIPPED,			/* message = reason */
	OUTCOME_CANCELLED,			/* message = reason */
	OUTCOME_FAILED,				/* message, code, details; permanent: no further attempt */
	OUTCOME_SNOOZED,			/* delay_us; costs no attempt */
	OUTCOME_RELEASED			/* waits again as if nothing had happened; costs no attempt */
} OutcomeKind;

typedef struct Outcome
{
	OutcomeKind kind;
	bool		permanent;
	bool		retryable;		/* FAILED: overrides permanent_codes and retry_codes */
	bool		crashed;		/* the server died of it: counts in crashes, next attempt alone */
	bool		never_ran;		/* RELEASED: its tool could not be started; message has the reason */
	bool		begun;			/* the attempt is already charged in the row (exec: claimed); else SQL */
	bool		has_result;
	Jsonb	   *result;
	char	   *message;		/* NULL: none */
	char	   *code;			/* SQLSTATE, exit:3, signal:KILL, timeout, ... */
	bool		code_given;		/* by the handler or tool: options.retry_codes judge it */
	Jsonb	   *details;
	int64		delay_us;		/* snooze; FAILED: over 0, it replaces the backoff */
	TimestampTz started_at;		/* 0: never started (cancel of a waiting job) */
	TimestampTz ended_at;
	const char *worker;			/* NULL: none */
	const char *source;			/* of its events: sql, helper, client, dispatcher */
	char	   *stderr_tail;	/* of a tool */
	double		progress;		/* NaN: none */
	const char *progress_data;	/* JSON text or NULL */
	List	   *log;			/* Event: of the attempt, not yet written */
} Outcome;

/* Ends the attempt of a locked job.  Returns the status the job now has. */
extern JobStatus settle(Ledger *ledger, Job *job, JobType *type, Outcome *outcome);

/* Keeps the progress that the job's row has: a checkpoint. */
extern void outcome_keep_progress(Job *job, Outcome *o);

#endif
