/*
 * compat.h
 *	  The only file that knows server versions: the newest API is the name, older servers get a shim.
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
jobq_table_tuple_update(Relation rel, ItemPointer otid, TupleTableSlot *slot, CommandId cid,
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
#define ExecInsertIndexTuples(rri, slot, estate, update, no_dup_error, conflict, arbiters, summarizing) \
	ExecInsertIndexTuples(rri, slot, estate, update, no_dup_error, conflict, arbiters)
#endif

/* 17: the local transaction id moved into vxid. */
#if PG_VERSION_NUM >= 170000
#define my_lxid() (MyProc->vxid.lxid)
#else
#define my_lxid() (MyProc->lxid)
#endif

/* 18: an index scan may be instrumented. */
#if PG_VERSION_NUM < 180000
#define index_beginscan(heap, index, snapshot, instrument, nkeys, norderbys) \
	index_beginscan(heap, index, snapshot, nkeys, norderbys)
#endif

#include "storage/lock.h"
#include "utils/acl.h"

/* 16: one function checks rights on any object; a process's locks are a dlist. */
#if PG_VERSION_NUM < 160000
#define object_aclcheck(classid, objectid, roleid, mode) pg_proc_aclcheck(objectid, roleid, mode)
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

#endif
