/*
 * role_state.h
 *	  The roles that jobs run as, as the dispatcher has read them.
 */
#ifndef JOBQ_ROLE_STATE_H
#define JOBQ_ROLE_STATE_H

#include "lanes/wait_queues.h"

/*
 * The role of a type's executors: a database role, or EXEC_ROLE for the exec
 * worker.
 */
#define EXEC_ROLE InvalidOid

/* First and longest pause after a process or a tool has failed to start. */
#define START_RETRY_US		INT64CONST(1000000)
#define MAX_RETRY_US		INT64CONST(60000000)

typedef struct RoleState
{
	Oid			roleid;			/* hash key; EXEC_ROLE: exec types */
	int			nworkers;		/* slots of this database, attached or starting */
	dlist_node	all;			/* in all_roles */
	WaitQueue	wait_queue;		/* groups of lanes that wait for a worker of this role */
	int			cancels;		/* jobs to be settled as cancelled that wait for one */
	MonoTime	waiting_since;	/* 0: no job waits */
	MonoTime	next_start;		/* not before then, after a failure to connect */
	int			failures;
	char		name[NAMEDATALEN];	/* set after its first failure */
} RoleState;

extern dlist_head all_roles;
extern void roles_init(MemoryContext context);
extern RoleState *role_state(Oid roleid);

/*
 * True if any role has changed since the last call: the registry must be read
 * again.
 */
extern bool roles_changed(void);

/*
 * Writes for health() why no worker of a role starts; writes nothing when all
 * do.
 */
extern void roles_trouble(char *buf, int size);

#endif
