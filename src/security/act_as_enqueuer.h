/*
 * act_as_enqueuer.h
 *	  The identity of enqueues that jobq makes for a role.
 */
#ifndef JOBQ_ACT_AS_ENQUEUER_H
#define JOBQ_ACT_AS_ENQUEUER_H

#include "base/act_as.h"

/*
 * act_as() for a role that enqueues: 42704 if it does not exist, 42501 if it
 * has no right to call jobq.enqueue.  name: for the first message.
 */
extern Caller act_as_enqueuer(Oid role, const char *name);

/* True if the role has the right to call jobq.enqueue, for some type. */
extern bool may_call_enqueue(Oid role);

#endif
