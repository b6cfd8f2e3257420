/*
 * worker_pool.h
 *	  Starts executors.
 */
#ifndef JOBQ_WORKER_POOL_H
#define JOBQ_WORKER_POOL_H

#include "limits/role_state.h"

extern void workers_init(MemoryContext context, JobqDb *db);
/* True if one more worker of the role may be started now, or is starting. */
extern bool worker_may_come(RoleState *role);

/*
 * Starts workers that lanes wait for; makes room between roles; ends handlers
 * that are overdue.
 */
extern void executors_balance(MonoTime now);
extern MonoTime executors_next_timer(MonoTime now);

#endif
