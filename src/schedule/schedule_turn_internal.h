/*
 * schedule_turn_internal.h
 *	  Calls between schedule_turn.c, turn_last_job.c and
 *	  turn_events.c.
 */
#ifndef JOBQ_SCHEDULE_TURN_INTERNAL_H
#define JOBQ_SCHEDULE_TURN_INTERNAL_H

#include "schedule/schedule_turn.h"

/* ---------- schedule_turn.c ---------- */

/* Starts the tick that waits. */
extern void turn_start_waiting(TickTurn *turn, Schedule *s);
/* Sets next_tick, and the end of a schedule that has no more ticks. */
extern void turn_set_next(Schedule *s, TimestampTz next);
/* Sets the next tick of "after 90s", an interval after a time. */
extern void turn_set_next_after(Schedule *s, TimestampTz time);

/* ---------- turn_last_job.c ---------- */

/* True if the last job is in the queue; sets turn->own_job. */
extern bool turn_job_lives(TickTurn *turn, Schedule *s);
/*
 * Cancels the last job, without waiting for a transaction that holds it, or
 * for room among the cancels that are under way: 55P03.
 */
extern void turn_cancel_job(Schedule *s);

/* ---------- turn_events.c ---------- */

/* Adds the event of a tick that has a job. */
extern void turn_ticked(TickTurn *turn, Schedule *s, TimestampTz tick, const pg_uuid_t *job);
/* Drops n ticks, the newest of which is given. */
extern void turn_skip(TickTurn *turn, Schedule *s, TimestampTz tick, const char *reason, int64 n);
/* Drops n ticks before the given one, which were missed; at_least: or more. */
extern void turn_skip_missed(TickTurn *turn, Schedule *s, TimestampTz tick, int64 n, bool at_least);
/* Drops a tick that could not be enqueued for this error. */
extern void turn_add_refused(TickTurn *turn, Schedule *s, TimestampTz tick, const ErrorData *error);
/* Pauses the schedule; tick: for the event, DT_NOBEGIN for none. */
extern void turn_pause(TickTurn *turn, Schedule *s, TimestampTz tick, const char *reason);
/*
 * Pauses a schedule whose definition is no longer valid: a time zone that is
 * gone, say.
 */
extern void turn_fail(TickTurn *turn, Schedule *s, const char *message);

#endif
