/*
 * schedule_turn.h
 *	  Decisions about one schedule: the ticks that are due, the end of a job.
 */
#ifndef JOBQ_SCHEDULE_TURN_H
#define JOBQ_SCHEDULE_TURN_H

#include "schedule/tick.h"

/* A transaction of the conductor. */
typedef struct TickTurn
{
	Enqueuer	e;
	TimestampTz now;
	int			ticks_left;		/* turn_due() decides at most so many ticks,
								 * and subtracts them */
	TimestampTz missed_until;	/* newest missed tick of a schedule with
								 * catch_up = all, whose ticks up to it are
								 * decided by several turns; DT_NOBEGIN: none */
	bool		own_job;		/* the last job that was found alive is the
								 * schedule's own */
	uint64		counts[TICK_OUTCOMES];	/* of ticks */
} TickTurn;

/*
 * Each changes the schedule's columns; the caller writes the row.
 *
 * Decides the ticks up to now, at most ticks_left, and the end of a pause.
 * Raises the errors of tick_enqueue().
 */
extern void turn_due(TickTurn *turn, Schedule *s);
/* Acts on the end of one of its jobs. */
extern void turn_end(TickTurn *turn, Schedule *s, const ScheduledEnd *end);
/* Acts on the end of the last job if that has left the queue unheard. */
extern void turn_look(TickTurn *turn, Schedule *s);

/* Looks at a row that a session has changed. */
extern void turn_read(TickTurn *turn, Schedule *s);

/*
 * Decides the ticks that such a call could not enqueue for this error: drops
 * them, or pauses the schedule.
 */
extern void turn_refused(TickTurn *turn, Schedule *s, const ErrorData *error);

#endif
