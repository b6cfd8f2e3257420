/*
 * compat.h
 *	  The only file that knows server versions: the newest API is the
 *	  name, older servers get a shim.
 */
#ifndef JOBQ_COMPAT_H
#define JOBQ_COMPAT_H

#include "pg_config.h"

#if PG_VERSION_NUM < 150000 || PG_VERSION_NUM >= 200000
#error "jobq supports PostgreSQL 15 to 19"
#endif

#include "access/genam.h"
#include "access/tableam.h"
#include "executor/executor.h"
#include "storage/proc.h"
#include "utils/wait_event.h"

/* 18: the attribute of functions that don't return stands before "extern". */
#if PG_VERSION_NUM < 180000
#define pg_noreturn pg_attribute_noreturn()
#endif

/* 17: waits of an extension have names. */
#if PG_VERSION_NUM < 170000
#define new_wait_event(name) ((void) (name), PG_WAIT_EXTENSION)
#else
#define new_wait_event(name) WaitEventExtensionNew(name)
#endif

/* 16: an update says whether only summarizing indexes need the new version. */
#if PG_VERSION_NUM < 160000
typedef enum TU_UpdateIndexes
{
	TU_None,
	TU_All,
	TU_Summarizing
} TU_UpdateIndexes;

static inline TM_Result
jobq_table_tuple_update(Relation rel, ItemPointer otid, TupleTableSlot *slot, CommandId cid, uint32 options,
						Snapshot snapshot, Snapshot crosscheck, bool wait, TM_FailureData *tmfd,
						LockTupleMode *lockmode, TU_UpdateIndexes *update_indexes)
{
	bool		all;
	TM_Result	result = table_tuple_update(rel, otid, slot, cid, snapshot, crosscheck, wait,
											tmfd, lockmode, &all);

	*update_indexes = all ? TU_All : TU_None;
	return result;
}

#define table_tuple_update jobq_table_tuple_update
#elif PG_VERSION_NUM < 190000
#define table_tuple_update(rel, otid, slot, cid, options, snapshot, crosscheck, wait, tmfd, lockmode, indexes) \
	table_tuple_update(rel, otid, slot, cid, snapshot, crosscheck, wait, tmfd, lockmode, indexes)
#endif

/*
 * 19: flags where there were booleans, and options for deletes, updates and
 * scans.
 */
#if PG_VERSION_NUM < 190000
#define EIIT_IS_UPDATE			(1<<0)
#define EIIT_NO_DUPE_ERROR		(1<<1)
#define EIIT_ONLY_SUMMARIZING	(1<<2)
#define SO_NONE					0

#if PG_VERSION_NUM < 160000
#define ExecInsertIndexTuples(rri, estate, flags, slot, arbiters, conflict) \
	ExecInsertIndexTuples(rri, slot, estate, ((flags) & EIIT_IS_UPDATE) != 0, ((flags) & EIIT_NO_DUPE_ERROR) != 0, \
						  conflict, arbiters)
#else
#define ExecInsertIndexTuples(rri, estate, flags, slot, arbiters, conflict) \
	ExecInsertIndexTuples(rri, slot, estate, ((flags) & EIIT_IS_UPDATE) != 0, ((flags) & EIIT_NO_DUPE_ERROR) != 0, \
						  conflict, arbiters, ((flags) & EIIT_ONLY_SUMMARIZING) != 0)
#endif
#define table_tuple_delete(rel, tid, cid, options, snapshot, crosscheck, wait, tmfd) \
	table_tuple_delete(rel, tid, cid, snapshot, crosscheck, wait, tmfd, false)
#define table_beginscan(rel, snapshot, nkeys, key, flags) \
	table_beginscan(rel, snapshot, nkeys, key)
#endif

/* 17: the local transaction id moved into vxid. */
#if PG_VERSION_NUM >= 170000
#define my_lxid() (MyProc->vxid.lxid)
#else
#define my_lxid() (MyProc->lxid)
#endif

/* 18: an index scan may be instrumented; 19: it has options. */
#if PG_VERSION_NUM < 180000
#define index_beginscan(heap, index, snapshot, instrument, nkeys, norderbys, flags) \
	index_beginscan(heap, index, snapshot, nkeys, norderbys)
#elif PG_VERSION_NUM < 190000
#define index_beginscan(heap, index, snapshot, instrument, nkeys, norderbys, flags) \
	index_beginscan(heap, index, snapshot, instrument, nkeys, norderbys)
#endif

/* 18: whether a query runs once is no argument of its run. */
#if PG_VERSION_NUM < 180000
#define EXECUTOR_RUN_ONCE		, bool execute_once
#define EXECUTOR_RUN_ONCE_GIVEN , execute_once
#else
#define EXECUTOR_RUN_ONCE
#define EXECUTOR_RUN_ONCE_GIVEN
#endif

#include "catalog/namespace.h"
#include "storage/lwlock.h"
#include "utils/jsonb.h"

/*
 * 19: reasons of a failed function lookup; tranches named from the start; JSON
 * built in one struct; siginfo of signals.
 */
#if PG_VERSION_NUM >= 190000
#include "utils/lsyscache.h"
#define SIGNAL_ARGS_GIVEN postgres_signal_arg, pg_siginfo
#else
#include "commands/dbcommands.h"
#define SIGNAL_ARGS_GIVEN postgres_signal_arg
#define FuncnameGetCandidates(names, nargs, argnames, variadic, defaults, out, missing_ok, found) \
	(*(found) = 0, FuncnameGetCandidates(names, nargs, argnames, variadic, defaults, out, missing_ok))
#define LWLockNewTrancheId(name) ((void) (name), LWLockNewTrancheId())

typedef struct JsonbInState
{
	JsonbValue *result;
	JsonbParseState *parse;
} JsonbInState;

#define pushJsonbValue(state, token, value) \
	((void) ((state)->result = pushJsonbValue(&(state)->parse, token, value)))
#endif

#include "storage/lock.h"
#include "utils/acl.h"

/*
 * 16: one function checks rights on any object; a process's locks are a dlist.
 */
#if PG_VERSION_NUM < 160000
#define object_aclcheck(classid, objectid, roleid, mode) pg_proc_aclcheck(objectid, roleid, mode)
#define member_can_set_role(member, role) is_member_of_role(member, role)
#define database_aclcheck(dboid, roleid, mode) pg_database_aclcheck(dboid, roleid, mode)
#define type_aclcheck(typeoid, roleid, mode) pg_type_aclcheck(typeoid, roleid, mode)
#define my_locks_empty(i) SHMQueueEmpty(&MyProc->myProcLocks[i])
#define my_locks_first(i) \
	((PROCLOCK *) SHMQueueNext(&MyProc->myProcLocks[i], &MyProc->myProcLocks[i], \
							   offsetof(PROCLOCK, procLink)))
#define my_locks_next(i, pl) \
	((PROCLOCK *) SHMQueueNext(&MyProc->myProcLocks[i], &(pl)->procLink, \
							   offsetof(PROCLOCK, procLink)))
#else
#define database_aclcheck(dboid, roleid, mode) object_aclcheck(DatabaseRelationId, dboid, roleid, mode)
#define type_aclcheck(typeoid, roleid, mode) object_aclcheck(TypeRelationId, typeoid, roleid, mode)
#define my_locks_empty(i) dlist_is_empty(&MyProc->myProcLocks[i])
#define my_locks_first(i) \
	(my_locks_empty(i) ? NULL : \
	 dlist_head_element(PROCLOCK, procLink, &MyProc->myProcLocks[i]))
#define my_locks_next(i, pl) \
	(dlist_has_next(&MyProc->myProcLocks[i], &(pl)->procLink) ? \
	 dlist_container(PROCLOCK, procLink, dlist_next_node(&MyProc->myProcLocks[i], &(pl)->procLink)) : \
	 NULL)
#endif

/* 17: intervals may be infinite. */
#include "utils/timestamp.h"
#ifndef INTERVAL_NOT_FINITE
#define INTERVAL_NOT_FINITE(i) ((void) (i), false)
#endif

#include "access/heapam.h"

/* 19: pruning may set the visibility map, whose page it pins. */
#if PG_VERSION_NUM < 190000
#define heap_page_prune_opt(rel, buffer, vmbuffer, rel_read_only) heap_page_prune_opt(rel, buffer)
#endif

/* 18: registered background workers are in a doubly linked list. */
#include "postmaster/bgworker_internals.h"
static inline int
registered_workers(void)
{
	int			n = 0;
#if PG_VERSION_NUM >= 180000
	dlist_iter	it;

	dlist_foreach(it, &BackgroundWorkerList)
		n++;
#else
	slist_iter	it;

	slist_foreach(it, &BackgroundWorkerList)
		n++;
#endif
	return n;
}

/* 16: a setting is found by name; before, in a list. */
#include "utils/guc_tables.h"
static inline struct config_generic *
find_setting(const char *name)
{
#if PG_VERSION_NUM >= 160000
	return find_option(name, false, false, ERROR);
#else
	struct config_generic **settings = get_guc_variables();

	while (strcmp((*settings)->name, name) != 0)
		settings++;
	return *settings;
#endif
}

/* 18: a NOT NULL constraint may be not valid: rows from before it may be NULL. */
#include "access/tupdesc.h"
static inline bool
column_has_no_nulls(TupleDesc desc, int i)
{
#if PG_VERSION_NUM >= 180000
	return TupleDescCompactAttr(desc, i)->attnullability == ATTNULLABLE_VALID;
#else
	return TupleDescAttr(desc, i)->attnotnull;
#endif
}

/* 18: a plan with GROUP BY has an entry for it beside those that it reads. */
#include "nodes/parsenodes.h"
static inline bool
rte_is_group(const RangeTblEntry *rte)
{
#if PG_VERSION_NUM >= 180000
	return rte->rtekind == RTE_GROUP;
#else
	return false;
#endif
}

#endif
