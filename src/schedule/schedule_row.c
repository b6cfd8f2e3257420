/*
 * schedule_row.c
 *	  Rows of jobq.schedules: see schedule_row.h.
 *
 * The conductor knows a row by its TID, follows it to later versions and falls
 * back on the index: a row with many dead versions costs no more than another.
 */
#include "jobq.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

#include "base/errors.h"
#include "base/relations.h"
#include "schedule/schedule_row.h"
#include "tables/queue_find.h"
#include "tables/table_shape.h"

static const ShapeColumn schedules_columns[] = {
	{"name", TEXTOID, FILLED},
	{"cron", TEXTOID, FILLED},
	{"job_type", TEXTOID, FILLED},
	{"payload", JSONBOID, FILLED},
	{"timezone", TEXTOID, FILLED},
	{"starts_at", TIMESTAMPTZOID, NULLABLE},
	{"ends_at", TIMESTAMPTZOID, NULLABLE},
	{"max_runs", INT4OID, NULLABLE},
	{"catch_up", TEXTOID, FILLED},
	{"catch_up_limit", INT4OID, FILLED},
	{"overlap", TEXTOID, FILLED},
	{"jitter", INTERVALOID, FILLED},
	{"pause_after_failures", INT4OID, NULLABLE},
	{"options", JSONBOID, FILLED},
	{"tenant", TEXTOID, NULLABLE},
	{"owner", TEXTOID, FILLED},
	{"status", TEXTOID, FILLED},
	{"reason", TEXTOID, NULLABLE},
	{"paused_until", TIMESTAMPTZOID, NULLABLE},
	{"runs", INT8OID, FILLED},
	{"skipped", INT8OID, FILLED},
	{"last_tick", TIMESTAMPTZOID, NULLABLE},
	{"last_job_id", UUIDOID, NULLABLE},
	{"next_tick", TIMESTAMPTZOID, NULLABLE},
	{"created_at", TIMESTAMPTZOID, FILLED},
	{"updated_at", TIMESTAMPTZOID, FILLED},
	{"id", INT4OID, FILLED},
	{"owner_oid", OIDOID, FILLED},
	{"ticks_after", TIMESTAMPTZOID, FILLED},
	{"waiting_tick", TIMESTAMPTZOID, NULLABLE},
	{"failures", INT4OID, FILLED},
	{"ended_job_id", UUIDOID, NULLABLE},
	{"paused_by_jobq", BOOLOID, FILLED},
	{"home_id", INT4OID, FILLED}
};
const Shape schedules_shape = SHAPE("schedules", schedules_columns);

StaticAssertDecl(lengthof(schedules_columns) == S_NATTS, "the columns of schedules");

static const char *const statuses[] = {"active", "paused", "finished"};
static const char *const catch_ups[] = {"skip", "one", "all"};
static const char *const overlaps[] = {"skip", "queue", "allow", "cancel"};

/* ---------- reading, writing ---------- */

/*
 * Returns the position of a word in a list.  An unknown one sets *trouble, and
 * counts as the first.
 */
static int
word_number(Schedule *s, int att, const char *const *words, int n, const char **trouble)
{
	char	   *word = TextDatumGetCString(S_ATT(s, att));

	for (int i = 0; i < n; i++)
	{
		if (strcmp(word, words[i]) == 0)
			return i;
	}
	*trouble = psprintf("schedule %d: \"%s\" is no value of column %s", S_INT(s, S_id), argument_shown(word),
						schedules_columns[att - 1].name);
	return 0;
}

/* Returns a message about a word that is unknown; NULL: none is. */
static const char *
read_words(Schedule *s)
{
	const char *trouble = NULL;

	s->status = word_number(s, S_status, statuses, lengthof(statuses), &trouble);
	s->catch_up = word_number(s, S_catch_up, catch_ups, lengthof(catch_ups), &trouble);
	s->overlap = word_number(s, S_overlap, overlaps, lengthof(overlaps), &trouble);
	s->changed = false;
	s->cron = NULL;
	s->zone = NULL;
	return trouble;
}

/* Fills a schedule; returns a message if the row is unfit. */
static const char *
look_at_tuple(Relation rel, HeapTuple tuple, Schedule *s)
{
	heap_deform_tuple(tuple, RelationGetDescr(rel), s->values, s->nulls);
	s->tid = tuple->t_self;
	s->xmin = HeapTupleHeaderGetRawXmin(tuple->t_data);
	return read_words(s);
}

/*
 * Warns of an unfit row, once per version: a conductor that starts reads it,
 * and then hears of it from the commit.
 */
static void
warn_left_out(const Schedule *s, const char *trouble)
{
	static struct
	{
		ItemPointerData tid;
		TransactionId xmin;
	}			told[8];
	static int	next = 0;

	for (size_t i = 0; i < lengthof(told); i++)
	{
		if (told[i].xmin == s->xmin && ItemPointerEquals(&told[i].tid, (ItemPointer) &s->tid))
			return;
	}
	told[next].tid = s->tid;
	told[next].xmin = s->xmin;
	next = (next + 1) % lengthof(told);
	ereport(WARNING,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("jobq: a row of jobq.schedules is left out: %s", trouble)));
}

static void
raise_trouble(const char *trouble)
{
	if (trouble != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("%s", trouble)));
}

bool
schedule_from_tuple(Relation rel, HeapTuple tuple, Schedule *s)
{
	const char *trouble = look_at_tuple(rel, tuple, s);

	if (trouble != NULL)
		warn_left_out(s, trouble);
	return trouble == NULL;
}

void
schedule_from_record(HeapTupleHeader record, Schedule *s)
{
	Relation	rel = shape_open("schedules", AccessShareLock);
	HeapTupleData tuple;

	if (HeapTupleHeaderGetTypeId(record) != rel->rd_rel->reltype)
		elog(ERROR, "the record is no row of jobq.schedules");
	tuple.t_len = HeapTupleHeaderGetDatumLength(record);
	ItemPointerSetInvalid(&tuple.t_self);
	tuple.t_tableOid = InvalidOid;
	tuple.t_data = record;
	raise_trouble(look_at_tuple(rel, &tuple, s));
	table_close(rel, NoLock);
}

/* Copies the row in the table's slot; returns a message if it is unfit. */
static const char *
schedule_from_slot(Table *table, Schedule *s)
{
	HeapTuple	tuple = ExecCopySlotHeapTuple(table->slot);
	const char *trouble;

	tuple->t_self = table->slot->tts_tid;
	trouble = look_at_tuple(table->rel, tuple, s);
	ExecClearTuple(table->slot);
	return trouble;
}

/* Puts the committed version of that id, or this transaction's, into the slot. */
static bool
find_by_id(Table *table, int32 id)
{
	AttrNumber	column = S_id;
	Relation	index = table_index(table, &column, 1);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	ScanKeyData key;
	bool		found;

	ScanKeyInit(&key, index != NULL ? 1 : column, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(id));
	if (index != NULL)
	{
		IndexScanDesc scan = index_beginscan(table->rel, index, snapshot, NULL, 1, 0, SO_NONE);

		index_rescan(scan, &key, 1, NULL, 0);
		found = index_getnext_slot(scan, ForwardScanDirection, table->slot);
		if (found)
			ExecMaterializeSlot(table->slot);
		index_endscan(scan);
	}
	else
	{
		TableScanDesc scan = table_beginscan(table->rel, snapshot, 1, &key, SO_NONE);

		found = table_scan_getnextslot(scan, ForwardScanDirection, table->slot);
		if (found)
			ExecMaterializeSlot(table->slot);
		table_endscan(scan);
	}
	UnregisterSnapshot(snapshot);
	return found;
}

static bool
slot_has_id(Table *table, int32 id)
{
	bool		isnull;

	return DatumGetInt32(slot_getattr(table->slot, S_id, &isnull)) == id;
}

/*
 * Sets *tid to the current version of the row whose older version it names, by
 * the links between versions.  An index scan visits all dead versions.
 */
static void
follow_versions(Table *table, ItemPointer tid)
{
	Snapshot	snapshot;
	TableScanDesc scan;

	if (!ItemPointerIsValid(tid) || ItemPointerGetBlockNumber(tid) >= table->nblocks)
		return;
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	scan = table_beginscan_tid(table->rel, snapshot);
	table_tuple_get_latest_tid(scan, tid);
	table_endscan(scan);
	UnregisterSnapshot(snapshot);
}

/*
 * Removes dead versions from the page of a row, as index scans do, so that
 * its next version fits into the page.
 */
static void
prune_page_of(Table *table, ItemPointer tid)
{
	Buffer		buffer = ReadBuffer(table->rel, ItemPointerGetBlockNumber(tid));
	Buffer		map = InvalidBuffer;

	heap_page_prune_opt(table->rel, buffer, &map, false);
	if (BufferIsValid(map))
		ReleaseBuffer(map);
	ReleaseBuffer(buffer);
}

static bool
fetch_version(Table *table, ItemPointer tid, int32 id)
{
	return queue_fetch_version(table, tid) && slot_has_id(table, id);
}

/* The same; the version at tid may have been replaced. */
static bool
fetch_successor(Table *table, ItemPointer tid, int32 id)
{
	follow_versions(table, tid);
	return fetch_version(table, tid, id);
}

bool
schedule_fetch(Table *table, ItemPointer tid, int32 id, Schedule *s, bool *locked)
{
	ItemPointerData known = *tid;
	const char *trouble;

	if (!fetch_version(table, &known, id) && !fetch_successor(table, &known, id))
	{
		if (!find_by_id(table, id))
		{
			ExecClearTuple(table->slot);
			return false;
		}
		known = table->slot->tts_tid;
		if (!fetch_version(table, &known, id))
			ereport(ERROR,
					(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					 errmsg("schedule %d was changed meanwhile", id)));
	}
	*locked = slot_is_locked(table->slot);
	trouble = schedule_from_slot(table, s);
	if (trouble != NULL)
	{
		warn_left_out(s, trouble);
		return false;
	}
	prune_page_of(table, &s->tid);
	return true;
}

bool
schedule_lock(Table *table, int32 id, Schedule *s)
{
	while (find_by_id(table, id))
	{
		ItemPointerData tid = table->slot->tts_tid;
		TM_FailureData failure;
		TM_Result	result = table_tuple_lock(table->rel, &tid, GetLatestSnapshot(), table->slot,
											  GetCurrentCommandId(false), LockTupleNoKeyExclusive, LockWaitBlock,
											  TUPLE_LOCK_FLAG_FIND_LAST_VERSION, &failure);

		CHECK_FOR_INTERRUPTS();
		if (result != TM_Ok)
			continue;
		raise_trouble(schedule_from_slot(table, s));
		return true;
	}
	ExecClearTuple(table->slot);
	return false;
}

void
schedule_write(Table *table, Schedule *s, TimestampTz now)
{
	static const AttrNumber keys[] = {S_id, S_tenant, S_name};

	if (!s->changed)
		return;
	schedule_set_time(s, S_updated_at, now);
	table_update_columns(table, &s->tid, s->values, s->nulls, keys, lengthof(keys));
	s->changed = false;
}

void
schedule_set(Schedule *s, int att, Datum value)
{
	s->values[att - 1] = value;
	s->nulls[att - 1] = false;
	s->changed = true;
}

void
schedule_set_null(Schedule *s, int att)
{
	s->changed |= !s->nulls[att - 1];
	s->values[att - 1] = (Datum) 0;
	s->nulls[att - 1] = true;
}

void
schedule_set_time(Schedule *s, int att, TimestampTz value)
{
	if (value == DT_NOEND)
		schedule_set_null(s, att);
	else
		schedule_set(s, att, TimestampTzGetDatum(value));
}

void
schedule_set_status(Schedule *s, ScheduleStatus status, const char *reason)
{
	s->status = status;
	schedule_set(s, S_status, CStringGetTextDatum(statuses[status]));
	if (reason == NULL)
		schedule_set_null(s, S_reason);
	else
		schedule_set(s, S_reason, CStringGetTextDatum(reason));
	schedule_set_null(s, S_paused_until);
	schedule_set(s, S_paused_by_jobq, BoolGetDatum(status == SCHEDULE_PAUSED));
}
