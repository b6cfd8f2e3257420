/*
 * attempt_events.h
 *	  What settle() tells of an attempt and its end: in jobq.events, as far as the type wants it.
 */
#ifndef JOBQ_ATTEMPT_EVENTS_H
#define JOBQ_ATTEMPT_EVENTS_H

#include "settle/settle.h"

/* The number of the attempt that ends: charged in the row already, or about to be; 0: none has begun. */
extern int	story_attempt(Job *job, Outcome *o);
/* Will the events of this end find their partition, if there are any? */
extern bool story_ready(Ledger *ledger, JobType *type, Outcome *o);

/* Its start and what was said during it.  The others below do that first. */
extern void story_attempt_lines(Ledger *ledger, Job *job, JobType *type, Outcome *o, int attempt);
extern void story_finished(Ledger *ledger, Job *job, JobType *type, Outcome *o, int attempt, JobStatus status);
extern void story_failed(Ledger *ledger, Job *job, JobType *type, Outcome *o, int attempt, bool last);
/* The row waits again, until when it says: retry_scheduled, snoozed, released. */
extern void story_waits(Ledger *ledger, Job *job, JobType *type, Outcome *o, int attempt, const char *how);

#endif
