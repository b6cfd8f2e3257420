/*
 * settle_counts.h
 *	  Statistics of settlements.
 */
#ifndef JOBQ_SETTLE_COUNTS_H
#define JOBQ_SETTLE_COUNTS_H

#include "settle/settle.h"

/* Returns since when the job has been due, by its row. */
extern TimestampTz due_since(Job *job);

/*
 * Counts the end of an attempt of a job that was due since then: its outcome,
 * and the row that is gone.  status: what the job has become.
 */
extern void count_settlement(Job *job, const Outcome *o, JobStatus status, TimestampTz due);

#endif
