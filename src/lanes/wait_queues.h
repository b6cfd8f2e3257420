/*
 * wait_queues.h
 *	  Wait queues of groups of lanes: of a role that has no free worker, or of
 *	  a limit without room.
 *
 * A wait queue is shut when a group is refused.  It then blocks all groups
 * that rank lower, until it opens: a worker has news, a job that counted has
 * ended, a rate's time has come.
 *
 * Groups of types with the same wait queues (one role and the same shared
 * limits) wait together, in the order of the ready heap: a limit that blocks
 * the first blocks the others.  They are in one wait queue at a time, the
 * first that blocks their first group.  When that opens, their first group is
 * offered, that is, becomes ready.  When it has left that state, for any
 * place, the next group is offered.  So the end of a job costs the same beside
 * thousands of types.  A type's own limit has a wait queue for the groups of
 * that type alone.
 */
#ifndef JOBQ_WAIT_QUEUES_H
#define JOBQ_WAIT_QUEUES_H

#include "lanes/lanes.h"

typedef struct WaitQueue
{
	bool		shut;
	bool		of_limit;		/* not of a role; known when a limit refuses */
	Rank		refused;		/* the best of those refused while it is shut */
	dlist_head	waiting;		/* of Waiting, in this wait queue */
} WaitQueue;

typedef struct WaitingKey
{
	WaitQueue  *role;
	int64		nlimits;
	WaitQueue  *limits[JOBQ_TYPE_LIMITS];
} WaitingKey;

/* Groups that wait together. */
typedef struct Waiting
{
	WaitingKey	key;			/* hash key */
	pairingheap groups;
	WaitQueue  *queue;		/* their wait queue; NULL: the first is offered, or there is none */
	dlist_node	node;			/* in the wait queue's list */
} Waiting;

/*
 * Forgets all groups that wait; they must be forgotten whenever wait queues
 * are.
 */
extern void wait_queues_init(MemoryContext context);
extern void wait_queue_init(WaitQueue *queue);

/*
 * True if a wait queue of its type blocks a group that has not been refused
 * yet; the group waits then.
 */
extern bool wait_queues_keep_out(LaneGroup *group, const Rank *rank);

/* True if one of them blocks a job of that rank. */
extern bool wait_queues_block(LaneType *type, const Rank *rank);

/*
 * Puts the group into the wait queue of a limit, its type's own or a shared
 * one, that has no room for its head.
 */
extern void group_refused_by_limit(LaneGroup *group, WaitQueue *limit, const Rank *rank);

/*
 * Puts the group into the wait queue of its role, which has no free executor.
 * A job that is only to be settled waits for nothing else.
 */
extern void group_refused_by_role(LaneGroup *group, const Rank *rank, bool settles);
/* Opens the wait queues that waited for the group: its head was handed out. */
extern void wait_queues_note_start(LaneGroup *group, const Rank *rank);

extern void wait_queue_open(WaitQueue *queue);
/* True if a limit blocks groups. */
extern bool wait_queues_limits_shut(void);
/* True if a group waits in it. */
extern bool wait_queue_has_groups(WaitQueue *queue);

/*
 * Makes all waiting groups ready: types may have other wait queues now.  Wait
 * queues must be initialized again with wait_queue_init.
 */
extern void wait_queues_release(void);

/*
 * Makes the first group ready, if nothing blocks it: called when the first has
 * changed.
 */
extern void waiting_offer(Waiting *waiting);

#endif
