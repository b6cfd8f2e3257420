/*
 * tick.h
 *	  The job of a tick: its arguments, and its enqueue with the rights of the
 *	  schedule's owner.
 */
#ifndef JOBQ_TICK_H
#define JOBQ_TICK_H

#include "enqueue/job_row.h"
#include "schedule/schedule_row.h"

/*
 * Enqueues the job of a tick as the owner of the schedule, and changes the
 * schedule's columns runs and last_job_id.  Returns false if a job has its
 * unique key already; *id is that job.  Raises the errors of enqueue, and
 * those of act_as_enqueuer().
 */
extern bool tick_enqueue(Enqueuer *e, Schedule *s, TimestampTz tick, pg_uuid_t *id);

/* Raises the errors that tick_enqueue() would raise for any tick. */
extern void tick_check(Schedule *s);

#endif
