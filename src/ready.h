/*
 * ready.h
 *	  Lanes that have a job for somebody: which of them is first.
 *
 * The order: effective priority (the lane's, plus its type's pressure, plus what its head has aged), highest first;
 * then the smaller (position, id) of the head.  Among lanes of one fair type and equal priority turns come before
 * positions.  ready.c has the reasons.
 */
#ifndef JOBQ_READY_H
#define JOBQ_READY_H

#include "lanes.h"

extern void ready_init(MemoryContext context);
/* Only lanes.c calls these two: lane_place and lane_unplace. */
extern void ready_add(Lane *lane, TimestampTz now);
extern void ready_remove(Lane *lane);
/* NULL: no lane is ready.  Its head may be stale. */
extern Lane *ready_first(void);
/* The lane's head has been handed out: it has had its turn.  It must be unplaced next. */
extern void ready_served(Lane *lane);
/* Heads grow older: before a hand-out. */
extern void ready_age(TimestampTz now);

/* Of the lane that ready_first has named. */
extern Rank rank_of_first(Lane *lane);
extern bool outranks(const Rank *a, const Rank *b);

#endif
