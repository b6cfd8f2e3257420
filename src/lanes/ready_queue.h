/*
 * ready_queue.h
 *	  Lanes that have a job to hand out: which of them is first.
 *
 * The order: effective priority (the lane's, plus its type's pressure, plus
 * the aging of the oldest job of that type and priority), highest first; then
 * the smaller (position, id).  Among tenants' lanes of a fair type and one
 * priority turns come before positions.  ready_queue.c has the reasons.
 */
#ifndef JOBQ_READY_QUEUE_H
#define JOBQ_READY_QUEUE_H

#include "lanes/wait_queues.h"

extern void ready_init(MemoryContext context);
/* Returns the group of the lanes of that type and priority. */
extern LaneGroup *ready_group(const LaneId *id, LaneType *type);

/*
 * Called by lanes.c only: lane_place and lane_unplace.  A parked group that
 * gets a lane is retried.
 */
extern void ready_add(Lane *lane);
extern void ready_remove(Lane *lane);
/* Returns the first lane; NULL: no lane is ready.  Its head may be stale. */
extern Lane *ready_first(void);

/*
 * Ends the lane's turn: its head was handed out.  The lane must be unplaced
 * next.
 */
extern void ready_served(Lane *lane);

/*
 * Gives the lane its turn back: a job that it was served with comes back.  The
 * lane is in no group now.
 */
extern void ready_refund(Lane *lane);
/* Applies aging up to now: before a hand-out. */
extern void ready_age(TimestampTz now);

/* Functions for heaps of groups in the same order (wait_queues.c). */
extern void ready_init_heap(pairingheap *heap);
extern LaneGroup *ready_first_of(pairingheap *heap);
extern void group_wait(LaneGroup *group, Waiting *waiting);

/*
 * Makes the group ready, as the first of the groups that it has waited with.
 */
extern void group_offer(LaneGroup *group);

/*
 * Parks the group until the list is unparked: the head of its first lane can't
 * start now, nor can the others'.
 */
extern void group_park(LaneGroup *group, dlist_head *list);
extern void groups_unpark(dlist_head *list);

/* Returns the rank of the head of the lane next in turn. */
extern Rank rank_of(LaneGroup *group);
extern bool outranks(const Rank *a, const Rank *b);

/* Returns the rank that the job would have at the head of its lane. */
extern Rank ready_rank(const Lane *lane, const JobRef *ref);
/* Calls the function with each group that has a job, and its rank. */
extern void ready_each_group(void (*look) (LaneGroup *group, const Rank *rank, void *arg), void *arg);
/* True if the lane is the next in turn of its group. */
extern bool ready_is_next(const Lane *lane);

#endif
