/*
 * ready_queue.h
 *	  Lanes that have a job for somebody: which of them is first.
 *
 * The order: effective priority (the lane's, plus its type's pressure, plus what the oldest job of that type and
 * priority has aged), highest first; then the smaller (position, id).  Among tenants' lanes of a fair type and
 * one priority turns come before positions.  ready_queue.c has the reasons.
 */
#ifndef JOBQ_READY_QUEUE_H
#define JOBQ_READY_QUEUE_H

#include "lanes/wait_queues.h"

extern void ready_init(MemoryContext context);
/* The group that lanes of that type and priority belong to. */
extern LaneGroup *ready_group(const LaneId *id, LaneType *type);
/* Only lanes.c calls these two: lane_place and lane_unplace.  A parked group that gets a lane is tried again. */
extern void ready_add(Lane *lane);
extern void ready_remove(Lane *lane);
/* NULL: no lane is ready.  Its head may be stale. */
extern Lane *ready_first(void);
/* The lane's head has been handed out: it has had its turn.  It must be unplaced next. */
extern void ready_served(Lane *lane);
/* A job that it was served with comes back, and the turn with it.  The lane is in no group now. */
extern void ready_refund(Lane *lane);
/* Jobs grow older: before a hand-out. */
extern void ready_age(TimestampTz now);

/* Heaps of groups in the same order (wait_queues.c). */
extern void ready_init_heap(pairingheap *heap);
extern LaneGroup *ready_first_of(pairingheap *heap);
extern void group_wait(LaneGroup *group, Waiting *waiting);
/* It is ready, in the name of those it has waited with. */
extern void group_offer(LaneGroup *group);

/* The head of its first lane can't start now, nor can the others': until the list is unparked. */
extern void group_park(LaneGroup *group, dlist_head *list);
extern void groups_unpark(dlist_head *list);

/* Of the lane whose turn it is. */
extern Rank rank_of(LaneGroup *group);
extern bool outranks(const Rank *a, const Rank *b);

#endif
