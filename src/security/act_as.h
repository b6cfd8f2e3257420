/*
 * act_as.h
 *	  The identity of enqueues that jobq makes for a role.
 */
#ifndef JOBQ_ACT_AS_H
#define JOBQ_ACT_AS_H

/*
 * Becomes the role until the end of the (sub)transaction, or until the
 * caller restores its own identity.
 */
extern void act_as(Oid role);

/*
 * The same for a role that enqueues: 42704 if it does not exist, 42501 if it
 * has no right to call jobq.enqueue.  name: for the first message.
 */
extern void act_as_enqueuer(Oid role, const char *name);

/* True if the role has the right to call jobq.enqueue, for some type. */
extern bool may_call_enqueue(Oid role);

#endif
