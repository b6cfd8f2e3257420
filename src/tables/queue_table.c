/*
 * queue_table.c
 *	  Writes jobq's tables past the executor, and locks a job by the very row
 *	  version it was chosen from.
 *
 * A Table is a relation opened with RowExclusiveLock and its indexes, those of
 * few rows when such a row is written.  The functions write a row as
 * ModifyTable does, without plan, triggers and privilege checks: the caller
 * has checked the rights.  The caller also sets row numbers (rev) and
 * publishes.
 *
 * queue_lock never waits and never follows an update chain: a job is known by
 * (TID, id, rev), and another version of it is "not mine".  The TID may be
 * stale in every way: beyond the file's end, a line pointer that was pruned or
 * reused.  heap_lock_tuple must not see such a TID, so the version is fetched
 * first and its page stays pinned in between, which prevents pruning.
 */
#include "jobq.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "executor/tuptable.h"
#include "nodes/primnodes.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "base/job_status.h"
#include "base/relations.h"
#include "shared/stat_changes.h"
#include "tables/home.h"
#include "tables/queue_table.h"
#include "tables/table_shape.h"
#include "tables/unique_key_lookup.h"

static void
open_index(Table *t, Oid indexid)
{
	ResultRelInfo *rri = t->rri;
	Relation	index = index_open(indexid, RowExclusiveLock);

	rri->ri_IndexRelationDescs[rri->ri_NumIndices] = index;
	rri->ri_IndexRelationInfo[rri->ri_NumIndices++] = BuildIndexInfo(index);
}

/* True if only rows that are rare (is_rare) fulfil the clause of a predicate. */
static bool
is_rare_clause(Node *clause)
{
	if (IsA(clause, NullTest) && IsA(((NullTest *) clause)->arg, Var))
	{
		AttrNumber	column = ((Var *) ((NullTest *) clause)->arg)->varattno;

		return ((NullTest *) clause)->nulltesttype == IS_NOT_NULL &&
			(column == Q_key_hash || column == Q_workflow_id || column == Q_error_msg);
	}
	if (IsA(clause, OpExpr) && ((OpExpr *) clause)->opfuncid == F_TIMESTAMPTZ_EQ)
	{
		Var		   *column = linitial(((OpExpr *) clause)->args);
		Const	   *value = lsecond(((OpExpr *) clause)->args);

		return IsA(column, Var) && column->varattno == Q_position && IsA(value, Const) && !value->constisnull &&
			DatumGetTimestampTz(value->constvalue) == DT_NOEND;
	}
	return false;
}

static bool
holds_rare_rows(Relation index)
{
	ListCell   *lc;

	foreach(lc, RelationGetIndexPredicate(index))
	{
		if (is_rare_clause(lfirst(lc)))
			return true;
	}
	return false;
}

/*
 * Returns the indexes of the queue that hold few rows: those with a concurrency
 * key, tasks, blocked jobs, jobs that have failed (is_rare).  They stay closed
 * until such a row is written: opening them and testing their predicates would
 * cost every other row.
 */
static List *
rare_indexes(List *indexes)
{
	static List *seen = NIL;	/* indexes already classified: an index never changes its columns */
	static List *found = NIL;
	List	   *rare = NIL;
	MemoryContext old;
	ListCell   *lc;

	if (seen != NIL && equal(seen, indexes))
		return found;
	foreach(lc, indexes)
	{
		Relation	index = index_open(lfirst_oid(lc), RowExclusiveLock);

		if (holds_rare_rows(index))
			rare = lappend_oid(rare, lfirst_oid(lc));
		index_close(index, NoLock);
	}
	old = MemoryContextSwitchTo(TopMemoryContext);
	list_free(seen);
	list_free(found);
	found = list_copy(rare);
	seen = list_copy(indexes);
	MemoryContextSwitchTo(old);
	list_free(rare);
	return found;
}

static void
open_queue_indexes(Table *t)
{
	List	   *indexes = RelationGetIndexList(t->rel);
	int			n = list_length(indexes);
	ListCell   *lc;

	/* a copy: a handler may open the table again, after a REINDEX */
	t->closed = list_copy(rare_indexes(indexes));
	t->rri->ri_NumIndices = 0;
	t->rri->ri_IndexRelationDescs = palloc(sizeof(Relation) * n);
	t->rri->ri_IndexRelationInfo = palloc(sizeof(IndexInfo *) * n);
	foreach(lc, indexes)
	{
		if (!list_member_oid(t->closed, lfirst_oid(lc)))
			open_index(t, lfirst_oid(lc));
	}
	list_free(indexes);
}

static void
open_rare_indexes(Table *t)
{
	MemoryContext old = MemoryContextSwitchTo(GetMemoryChunkContext(t->rri));
	ListCell   *lc;

	foreach(lc, t->closed)
		open_index(t, lfirst_oid(lc));
	t->closed = NIL;
	MemoryContextSwitchTo(old);
}

void
table_open_for_write(Table *t, Oid relid)
{
	t->rel = table_open(relid, RowExclusiveLock);
	shape_require(t->rel);
	t->estate = CreateExecutorState();
	t->rri = makeNode(ResultRelInfo);
	InitResultRelInfo(t->rri, t->rel, 0, NULL, 0);
	t->closed = NIL;
	if (relid == jobq_relid("queue"))
		open_queue_indexes(t);
	else
		ExecOpenIndices(t->rri, false);
	t->slot = table_slot_create(t->rel, NULL);
	t->nblocks = 0;
}

void
table_close_after_write(Table *t)
{
	ExecDropSingleTupleTableSlot(t->slot);
	ExecCloseIndices(t->rri);
	FreeExecutorState(t->estate);
	pfree(t->rri);
	table_close(t->rel, NoLock);
}

/* True if an index of rare_indexes holds the row. */
static bool
is_rare(const Datum *values, const bool *nulls)
{
	return !nulls[Q_key_hash - 1] || !nulls[Q_workflow_id - 1] || !nulls[Q_error_msg - 1] ||
		DatumGetTimestampTz(values[Q_position - 1]) == DT_NOEND;
}

/* Puts a row into the slot, which only borrows the datums. */
static void
fill_slot(Table *t, Datum *values, bool *nulls)
{
	TupleTableSlot *slot = t->slot;
	int			natts = slot->tts_tupleDescriptor->natts;

	ExecClearTuple(slot);
	memcpy(slot->tts_values, values, sizeof(Datum) * natts);
	memcpy(slot->tts_isnull, nulls, sizeof(bool) * natts);
	ExecStoreVirtualTuple(slot);
	slot->tts_tableOid = RelationGetRelid(t->rel);
	if (t->closed != NIL && is_rare(values, nulls))
		open_rare_indexes(t);
}

HeapTuple
table_form_row(Table *t, Datum *values, bool *nulls)
{
	return heap_form_tuple(RelationGetDescr(t->rel), values, nulls);
}

static void
insert_index_entries(Table *t, bool update, bool summarizing)
{
	if (t->rri->ri_NumIndices > 0)
		ExecInsertIndexTuples(t->rri, t->estate,
							  (update ? EIIT_IS_UPDATE : 0) | (summarizing ? EIIT_ONLY_SUMMARIZING : 0),
							  t->slot, NIL, NULL);
	ResetPerTupleExprContext(t->estate);
}

/* True if an entry of the same key may be inserted without a search for others. */
static bool
key_is_unchanged(Relation index, const AttrNumber *unchanged, int n)
{
	Form_pg_index form = index->rd_index;
	bool		same = form->indisunique && form->indimmediate && !form->indisexclusion &&
		RelationGetIndexPredicate(index) == NIL;

	for (int i = 0; same && i < form->indnkeyatts; i++)
	{
		same = false;
		for (int k = 0; k < n && !same; k++)
			same = form->indkey.values[i] != 0 && form->indkey.values[i] == unchanged[k];
	}
	return same;
}

/*
 * Inserts entries of a new version.  A unique index whose key has not changed
 * needs no search: the replaced version, which this transaction has locked,
 * has the key.  The search would visit all dead versions.
 */
static void
insert_entries_of_version(Table *t, const AttrNumber *unchanged, int n)
{
	ResultRelInfo *rri = t->rri;
	int			all = rri->ri_NumIndices;
	int			rest = 0;

	for (int i = 0; i < all; i++)
	{
		Relation	index = rri->ri_IndexRelationDescs[i];
		IndexInfo  *info = rri->ri_IndexRelationInfo[i];
		Datum		values[INDEX_MAX_KEYS];
		bool		nulls[INDEX_MAX_KEYS];

		if (info->ii_ReadyForInserts && key_is_unchanged(index, unchanged, n))
		{
			FormIndexDatum(info, t->slot, t->estate, values, nulls);
			index_insert(index, values, nulls, &t->slot->tts_tid, t->rel, UNIQUE_CHECK_NO, true, info);
			continue;
		}
		rri->ri_IndexRelationDescs[i] = rri->ri_IndexRelationDescs[rest];
		rri->ri_IndexRelationInfo[i] = rri->ri_IndexRelationInfo[rest];
		rri->ri_IndexRelationDescs[rest] = index;
		rri->ri_IndexRelationInfo[rest++] = info;
	}
	rri->ri_NumIndices = rest;
	insert_index_entries(t, true, false);
	rri->ri_NumIndices = all;
}

void
table_insert_row(Table *t, Datum *values, bool *nulls)
{
	fill_slot(t, values, nulls);
	table_tuple_insert(t->rel, t->slot, GetCurrentCommandId(true), 0, NULL);
	insert_index_entries(t, false, false);
	ExecClearTuple(t->slot);
}

void
table_insert_tuples(Table *t, HeapTuple *tuples, int n)
{
	TupleTableSlot **slots = palloc(sizeof(TupleTableSlot *) * n);
	TupleTableSlot *row = t->slot;
	TupleDesc	desc = CreateTupleDescCopy(RelationGetDescr(t->rel));	/* without a reference count */

	/* a slot that owns its tuple is not asked for a copy */
	for (int i = 0; i < n; i++)
	{
		slots[i] = MakeSingleTupleTableSlot(desc, &TTSOpsHeapTuple);
		ExecStoreHeapTuple(tuples[i], slots[i], true);
		slots[i]->tts_tableOid = RelationGetRelid(t->rel);
	}
	table_multi_insert(t->rel, slots, n, GetCurrentCommandId(true), 0, NULL);
	for (int i = 0; i < n; i++)
	{
		t->slot = slots[i];
		insert_index_entries(t, false, false);
		ExecDropSingleTupleTableSlot(slots[i]);
	}
	t->slot = row;
	FreeTupleDesc(desc);
	pfree(slots);
}

/*
 * Inserts a row, unless a unique index has the key already: then no row
 * remains and the answer is false.  The insertion is speculative, as that of
 * INSERT ... ON CONFLICT, so another session that meets the row waits only
 * until it is confirmed or removed.
 */
bool
table_insert_unless_conflict(Table *t, Datum *values, bool *nulls)
{
	uint32		token;
	bool		conflict = false;

	fill_slot(t, values, nulls);
	token = SpeculativeInsertionLockAcquire(GetCurrentTransactionId());
	table_tuple_insert_speculative(t->rel, t->slot, GetCurrentCommandId(true), 0, NULL, token);
	ExecInsertIndexTuples(t->rri, t->estate, EIIT_NO_DUPE_ERROR, t->slot, NIL, &conflict);
	table_tuple_complete_speculative(t->rel, t->slot, token, !conflict);
	SpeculativeInsertionLockRelease(GetCurrentTransactionId());
	ResetPerTupleExprContext(t->estate);
	ExecClearTuple(t->slot);
	return !conflict;
}

/*
 * Raises an error if another transaction has changed a row that this one
 * holds.
 */
static void
check_written(Table *t, TM_Result result)
{
	if (result != TM_Ok)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not change a row of \"%s\" that was changed meanwhile",
						RelationGetRelationName(t->rel))));
}

void
table_update_row(Table *t, ItemPointer tid, Datum *values, bool *nulls)
{
	table_update_columns(t, tid, values, nulls, NULL, 0);
}

void
table_update_columns(Table *t, ItemPointer tid, Datum *values, bool *nulls, const AttrNumber *unchanged, int n)
{
	TM_FailureData failure;
	LockTupleMode mode;
	TU_UpdateIndexes indexes;

	fill_slot(t, values, nulls);
	check_written(t, table_tuple_update(t->rel, tid, t->slot, GetCurrentCommandId(true), 0,
										InvalidSnapshot, InvalidSnapshot, true,
										&failure, &mode, &indexes));
	if (indexes == TU_All && n > 0)
		insert_entries_of_version(t, unchanged, n);
	else if (indexes != TU_None)
		insert_index_entries(t, true, indexes == TU_Summarizing);
	*tid = t->slot->tts_tid;
	ExecClearTuple(t->slot);
}

void
table_delete_row(Table *t, ItemPointer tid)
{
	TM_FailureData failure;

	check_written(t, table_tuple_delete(t->rel, tid, GetCurrentCommandId(true), 0,
										InvalidSnapshot, InvalidSnapshot, true, &failure));
}

/* --- jobs --- */

void
queue_update(Table *queue, Job *job)
{
	static const AttrNumber id = Q_id;
	JobStatus	status = status_from_oid(DatumGetObjectId(JOB_ATT(job, Q_status)));

	table_update_columns(queue, &job->tid, job->values, job->nulls, &id, 1);
	stat_row_moved(JOB_INT(job, Q_type_id), job->counted, status);
	job->counted = status;
}

/* Copies the row in the queue's slot into job. */
void
job_from_slot(Table *queue, Job *job)
{
	TupleTableSlot *slot = queue->slot;

	job->tuple = ExecCopySlotHeapTuple(slot);
	job->tid = slot->tts_tid;
	heap_deform_tuple(job->tuple, RelationGetDescr(queue->rel), job->values, job->nulls);
	job->status = job->counted = status_from_oid(DatumGetObjectId(JOB_ATT(job, Q_status)));
}

/*
 * Fetches the version at tid into the slot, which keeps its page pinned.
 * False: no such thing.
 */
bool
queue_fetch_version(Table *queue, ItemPointer tid)
{
	if (!ItemPointerIsValid(tid))
		return false;
	if (ItemPointerGetBlockNumber(tid) >= queue->nblocks)
		queue->nblocks = RelationGetNumberOfBlocks(queue->rel);
	if (ItemPointerGetBlockNumber(tid) >= queue->nblocks)
		return false;
	return table_tuple_fetch_row_version(queue->rel, tid, SnapshotSelf, queue->slot);
}

static bool
slot_holds(TupleTableSlot *slot, const JobRef *ref)
{
	bool		isnull;
	int32		ours;

	if (memcmp(DatumGetUUIDP(slot_getattr(slot, Q_id, &isnull)), &ref->id, UUID_LEN) != 0)
		return false;
	if (DatumGetInt32(slot_getattr(slot, Q_rev, &isnull)) != ref->rev)
		return false;
	return home_is_ours(&ours) && DatumGetInt32(slot_getattr(slot, Q_home_id, &isnull)) == ours;
}

/* Locks the version in the slot for this (sub)transaction. */
TM_Result
queue_lock_version(Table *queue)
{
	ItemPointerData tid = queue->slot->tts_tid;
	TM_FailureData failure;

	return table_tuple_lock(queue->rel, &tid, InvalidSnapshot, queue->slot,
							GetCurrentCommandId(false), LockTupleExclusive, LockWaitSkip,
							0, &failure);
}

/*
 * True if the job may run: it waits for the other one of its unique key,
 * unless it is only to be settled.
 */
static bool
may_run(Table *queue, const JobRef *ref, Job *job)
{
	return ref_settles(ref) || !unique_must_yield(queue, job);
}

static bool
fetch_ref(Table *queue, const JobRef *ref)
{
	ItemPointerData tid = ref->tid;

	return queue_fetch_version(queue, &tid) && slot_holds(queue->slot, ref);
}

/*
 * True if the job in the slot must wait for its sibling.  Call it before the
 * row is locked: to a client a locked row is a job that runs.  Uses the slot.
 */
static bool
must_wait_for_sibling(Table *queue, const JobRef *ref)
{
	Job			job;

	job_from_slot(queue, &job);
	return !may_run(queue, ref, &job);
}

static LockResult
lock_fetched(Table *queue, const JobRef *ref, Job *job)
{
	TM_Result	locked = queue_lock_version(queue);

	if (locked == TM_WouldBlock)
		return LOCK_BUSY;
	if (locked != TM_Ok)
		return LOCK_GONE;
	job_from_slot(queue, job);
	return may_run(queue, ref, job) ? LOCK_OK : LOCK_BUSY;	/* the sibling may have begun meanwhile */
}

LockResult
queue_lock(Table *queue, const JobRef *ref, Job *job)
{
	LockResult	result = LOCK_GONE;

	if (fetch_ref(queue, ref))
	{
		if (slot_attisnull(queue->slot, Q_unique_key))
			result = lock_fetched(queue, ref, job);
		else if (must_wait_for_sibling(queue, ref))
			result = LOCK_BUSY;
		else if (fetch_ref(queue, ref))
			result = lock_fetched(queue, ref, job);
	}
	ExecClearTuple(queue->slot);
	return result;
}
