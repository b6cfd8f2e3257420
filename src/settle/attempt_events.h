/*
 * attempt_events.h
 *	  The events that settle() writes of an attempt and its end, by the type's level.
 */
#ifndef JOBQ_ATTEMPT_EVENTS_H
#define JOBQ_ATTEMPT_EVENTS_H

#include "settle/settle.h"

/*
 * Returns the number of the attempt that ends: charged in the row already, or
 * about to be; 0: none has begun.
 */
extern int	attempt_events_number(Job *job, Outcome *o);
/* True if the events of this end, if any, have their partition. */
extern bool attempt_events_ready(Ledger *ledger, JobType *type, Outcome *o);

/*
 * Writes its start and the events during it.  The functions below call it
 * first.
 */
extern void attempt_events_lines(Ledger *ledger, Job *job, JobType *type, Outcome *o, int attempt);
extern void attempt_events_finished(Ledger *ledger, Job *job, JobType *type, Outcome *o, int attempt, JobStatus status);
extern void attempt_events_failed(Ledger *ledger, Job *job, JobType *type, Outcome *o, int attempt, bool last);

/*
 * Writes that the row waits again, with its time: retry_scheduled, snoozed,
 * released.
 */
extern void attempt_events_waits(Ledger *ledger, Job *job, JobType *type, Outcome *o, int attempt, const char *how);

#endif
