/*
 * wait_queues.h
 *	  Where groups of lanes wait: at the door of a role that has no worker free, or of a limit without room.
 *
 * A door is shut when somebody is refused, and then keeps out all who rank lower, until it opens: a worker has news, a job
 * that counted has ended, a rate's time has come.
 *
 * Groups of types with the same doors, one role and the same shared limits, wait together, in the order of the ready heap: what
 * keeps the first keeps the others.  They are at one door at a time, the first that keeps their first out.  When it opens,
 * that one is offered, that is, becomes ready; when it has gone from there, wherever to, the next one.  So the end of a job costs
 * the same beside thousands of types.  A type's own limit is a door for its groups alone.
 */
#ifndef JOBQ_WAIT_QUEUES_H
#define JOBQ_WAIT_QUEUES_H

#include "lanes/lanes.h"

typedef struct Door
{
	bool		shut;
	Rank		refused;		/* the best who was, while it is shut */
	dlist_head	waiting;		/* of Waiting, at this door */
} Door;

typedef struct WaitingKey
{
	Door	   *role;
	int64		nlimits;
	Door	   *limits[JOBQ_TYPE_LIMITS];
} WaitingKey;

/* Groups that wait together. */
typedef struct Waiting
{
	WaitingKey	key;			/* hash key */
	pairingheap groups;
	Door	   *door;			/* they are at; NULL: the first is offered, or there is none */
	dlist_node	node;			/* in the door's list */
} Waiting;

/* All groups that wait are forgotten, and must be, when doors are. */
extern void doors_init(MemoryContext context);
extern void door_init(Door *door);

/* Does a door of its type keep out a group that has not been refused yet?  Then it waits now. */
extern bool doors_keep_out(LaneGroup *group, const Rank *rank);
/* Lets the group wait at the door of a limit, its type's own or a shared one, that has no room for its head. */
extern void group_refused_by_limit(LaneGroup *group, Door *limit, const Rank *rank);
/* Nobody of its role is free for it.  What is only to be settled waits for nothing else. */
extern void group_refused_by_role(LaneGroup *group, const Rank *rank, bool settles);
/* The group's head was handed out: who has been waited for opens the doors. */
extern void doors_note_start(LaneGroup *group, const Rank *rank);

extern void door_open(Door *door);
/* Does anybody wait at it? */
extern bool door_is_waited_at(Door *door);
/* All groups that wait are ready: types may have other doors now.  Doors are to be made anew with door_init. */
extern void doors_leave(void);
/* The first is ready, if nothing keeps it out: when it has become another one. */
extern void waiting_offer(Waiting *waiting);

#endif
