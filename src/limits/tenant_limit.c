/*
 * tenant_limit.c
 *	  At most max_running jobs of a tenant, and of the tenants below it, at
 *	  once.
 *
 * A limit counts as limits of types do (job_limit.h): a SQL worker once,
 * however many jobs it was handed, each tool by itself.  The dispatcher counts
 * again from the executors' cells when the quotas change, and so does a new
 * dispatcher; so counts can't drift.  A job carries the number of its
 * innermost limit; for jobs in flight the number is looked up again in their
 * rows.
 *
 * Lanes hold jobs of many tenants.  So a job of a full tenant leaves memory
 * when it is the head of its lane, and the lane goes on.  The full limit keeps
 * the position from which on that lane has such jobs (TenantLane.from).  When
 * a job of that limit ends, as many as could start are read from there by the
 * lane index.  Those that can't start after all are passed over again.
 *
 * The kept position only moves forward while jobs are read, so each index
 * entry between two jobs of a tenant is read once per limit.  A tenant with
 * few jobs among millions of others costs one walk through them, at most
 * READ_ENTRIES a turn.
 */
#include "jobq.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "base/conditional_lock.h"
#include "base/relations.h"
#include "enqueue/quota.h"
#include "lanes/lane_callbacks.h"
#include "limits/tenant_limit.h"
#include "limits/type_state.h"
#include "tables/table_shape.h"

#define READ_ENTRIES	2000	/* index entries a turn */
#define READ_SHORT		64		/* jobs that a worker's batch may take beyond the one that starts */
#define MAX_TENANT		256		/* a tenant's name and its terminating zero */

/* Jobs of one limit that were passed over in one lane. */
typedef struct TenantLane
{
	dlist_node	node;			/* in TenantLimit.lanes */
	Lane	   *lane;
	Range		from;			/* hi is not used */
} TenantLane;

typedef struct TenantLimit
{
	char		tenant[MAX_TENANT];
	int32		outer;			/* number of the limit above; 0: none */
	JobLimit	limit;			/* only the counts are used */
	bool		changed;		/* a job of it has ended: jobs passed over are retried */
	dlist_head	lanes;
} TenantLimit;

typedef struct TenantNumber
{
	char		tenant[MAX_TENANT]; /* hash key */
	int32		number;
} TenantNumber;

static MemoryContext lasting = NULL;
static MemoryContext limits_context = NULL;	/* limits, numbers and lanes; replaced with them */
static TenantLimit *limits = NULL;	/* number 1 is the first; outer ones come first */
static int	nlimits = 0;
static HTAB *numbers = NULL;
static bool suspect = true;
static bool pending = false;	/* some limit has changed */

void
tenant_limits_suspect(void)
{
	suspect = true;
}

bool
tenant_limits_are_suspect(void)
{
	return suspect;
}

static TenantLimit *
limit_number(int32 number)
{
	return &limits[number - 1];
}

/* ---------- reading the quotas ---------- */

typedef struct Draft
{
	char	   *tenant;
	int			max_running;
} Draft;

static int
outer_first(const ListCell *a, const ListCell *b)
{
	const Draft *x = lfirst(a);
	const Draft *y = lfirst(b);
	int			order = (int) strlen(x->tenant) - (int) strlen(y->tenant);

	return order != 0 ? order : strcmp(x->tenant, y->tenant);
}

/* Reads a quota; false: it has no max_running. */
static bool
read_draft(Relation rel, HeapTuple tuple, Draft *draft)
{
	Datum		values[TQ_NATTS];
	bool		nulls[TQ_NATTS];

	heap_deform_tuple(tuple, RelationGetDescr(rel), values, nulls);
	if (nulls[TQ_max_running - 1])
		return false;
	draft->tenant = TextDatumGetCString(values[TQ_tenant - 1]);
	draft->max_running = DatumGetInt32(values[TQ_max_running - 1]);
	return strlen(draft->tenant) < MAX_TENANT;
}

static List *
read_quotas(Oid relid)
{
	Relation	rel = table_open(relid, NoLock);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TableScanDesc scan = table_beginscan(rel, snapshot, 0, NULL, SO_NONE);
	List	   *drafts = NIL;
	HeapTuple	tuple;
	Draft		draft;

	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		if (!read_draft(rel, tuple, &draft))
			continue;
		drafts = lappend(drafts, palloc(sizeof(Draft)));
		*(Draft *) llast(drafts) = draft;
	}
	table_endscan(scan);
	UnregisterSnapshot(snapshot);
	table_close(rel, NoLock);
	list_sort(drafts, outer_first);
	return drafts;
}

static bool
are_the_same(List *drafts)
{
	ListCell   *lc;
	int			i = 0;

	if (list_length(drafts) != nlimits)
		return false;
	foreach(lc, drafts)
	{
		Draft	   *draft = lfirst(lc);

		if (strcmp(draft->tenant, limits[i].tenant) != 0 || draft->max_running != limits[i].limit.max_concurrent)
			return false;
		i++;
	}
	return true;
}

/*
 * Returns the number of the limit of the tenant, or of the first tenant above
 * it that has one; 0: none.  Cuts the name.
 */
static int32
number_of(char *tenant)
{
	for (;;)
	{
		TenantNumber *found = hash_search(numbers, tenant, HASH_FIND, NULL);
		char	   *slash;

		if (found != NULL)
			return found->number;
		slash = strrchr(tenant, '/');
		if (slash == NULL)
			return 0;
		*slash = '\0';
	}
}

static int32
number_above(const char *tenant)
{
	char		name[MAX_TENANT];
	char	   *slash;

	strlcpy(name, tenant, sizeof(name));
	slash = strrchr(name, '/');
	if (slash == NULL)
		return 0;
	*slash = '\0';
	return number_of(name);
}

static void
add_limit(const Draft *draft)
{
	TenantLimit *l = &limits[nlimits];
	TenantNumber *entry;

	limit_init(&l->limit);
	strlcpy(l->tenant, draft->tenant, sizeof(l->tenant));
	l->limit.max_concurrent = draft->max_running;
	l->outer = number_above(draft->tenant);
	l->changed = false;
	dlist_init(&l->lanes);
	entry = hash_search(numbers, l->tenant, HASH_ENTER, NULL);
	entry->number = ++nlimits;
}

static void
make_limits(List *drafts)
{
	HASHCTL		ctl;
	ListCell   *lc;

	if (limits_context != NULL)
		MemoryContextDelete(limits_context);
	limits_context = AllocSetContextCreate(lasting, "jobq tenant limits", ALLOCSET_SMALL_SIZES);
	nlimits = 0;
	pending = false;
	limits = MemoryContextAllocZero(limits_context, sizeof(TenantLimit) * Max(list_length(drafts), 1));
	ctl.keysize = MAX_TENANT;
	ctl.entrysize = sizeof(TenantNumber);
	ctl.hcxt = limits_context;
	numbers = hash_create("jobq tenant limits", 64, &ctl, HASH_ELEM | HASH_STRINGS | HASH_CONTEXT);
	foreach(lc, drafts)
		add_limit(lfirst(lc));
}

bool
tenant_limits_refresh(void)
{
	Oid			relid = jobq_relid("tenant_quotas");
	List	   *drafts;

	if (!suspect || !lock_rows_if_free(relid))
		return false;
	suspect = false;
	drafts = read_quotas(relid);
	if (limits_context != NULL && are_the_same(drafts))
		return false;
	make_limits(drafts);
	return true;
}

/* ---------- counting ---------- */

static int32
tenant_limit_of(TupleTableSlot *slot)
{
	HeapTuple	tuple;
	char		tenant[MAX_TENANT];
	bool		isnull;

	if (nlimits == 0)
		return 0;
	tuple = ExecFetchSlotHeapTuple(slot, false, NULL);
	if (heap_attisnull(tuple, Q_tenant, slot->tts_tupleDescriptor) ||
		type_state(DatumGetInt32(slot_getattr(slot, Q_type_id, &isnull)))->workflow)
		return 0;				/* the tasks of a run count */
	text_to_cstring_buffer(DatumGetTextPP(slot_getattr(slot, Q_tenant, &isnull)), tenant, sizeof(tenant));
	return number_of(tenant);
}

/* True if the limit of that number counts the row. */
static bool
counts_row(TupleTableSlot *slot, const void *arg)
{
	int32		outer = *(const int32 *) arg;
	int32		number = tenant_limit_of(slot);

	for (; number > outer; number = limit_number(number)->outer)
		;
	return number == outer;
}

/*
 * True if one more job may run; max_concurrent 0 means none, unlike in a limit
 * of types.
 */
static bool
has_room(const TenantLimit *l, int executor, bool exec)
{
	return l->limit.running < l->limit.max_concurrent || (!exec && l->limit.cells[executor] > 0);
}

/* Returns the innermost limit without room for the job; 0: all have room. */
static int32
full_limit(const JobRef *ref, int executor, bool exec)
{
	for (int32 n = ref->tenant_limit; n != 0; n = limit_number(n)->outer)
	{
		if (!has_room(limit_number(n), executor, exec))
			return n;
	}
	return 0;
}

bool
tenant_limit_has_room(const JobRef *ref, int executor, bool exec)
{
	return full_limit(ref, executor, exec) == 0;
}

void
tenant_limit_up(const JobRef *ref, int executor, bool exec)
{
	for (int32 n = ref->tenant_limit; n != 0; n = limit_number(n)->outer)
		limit_up(&limit_number(n)->limit, executor, exec);
}

/* Notes that there is room for other jobs of the limit. */
static void
note_room(TenantLimit *l)
{
	l->changed = true;
	pending |= !dlist_is_empty(&l->lanes);
}

static void
tenant_limit_lost(const JobRef *ref)
{
	for (int32 n = ref->tenant_limit; n != 0; n = limit_number(n)->outer)
		note_room(limit_number(n));
}

void
tenant_limit_down(const JobRef *ref, int executor, bool exec)
{
	for (int32 n = ref->tenant_limit; n != 0; n = limit_number(n)->outer)
		limit_down(&limit_number(n)->limit, executor, exec);
	tenant_limit_lost(ref);
}

/* ---------- passing over ---------- */

static TenantLane *
get_lane(TenantLimit *l, Lane *lane)
{
	TenantLane *tl;
	dlist_iter	it;

	dlist_foreach(it, &l->lanes)
	{
		tl = dlist_container(TenantLane, node, it.cur);
		if (tl->lane == lane)
			return tl;
	}
	tl = MemoryContextAllocZero(limits_context, sizeof(TenantLane));
	tl->lane = lane;
	tl->from.pos = DT_NOEND;
	dlist_push_tail(&l->lanes, &tl->node);
	return tl;
}

/*
 * A job that was read for a limit is passed over for one below it: the room
 * that it was read for is left to others.
 */
static void
leave_room(int32 outer)
{
	for (int32 n = outer; n != 0; n = limit_number(n)->outer)
	{
		if (has_room(limit_number(n), 0, true))
			note_room(limit_number(n));
	}
}

void
tenant_limit_pass(Lane *lane)
{
	JobRef		ref;
	TenantLimit *full;
	TenantLane *tl;
	Known	   *known;

	lane_pop(lane, &ref);
	if ((known = known_lookup(known_jobs, ref.id)) != NULL)
		known_delete_item(known_jobs, known);
	full = limit_number(full_limit(&ref, 0, true));
	leave_room(full->outer);
	tl = get_lane(full, lane);
	if (ref.position > tl->from.pos)
		return;
	tl->from.pos = ref.position;
	memset(&tl->from.tid, 0, sizeof(tl->from.tid)); /* from its first row on: a HOT row has another TID */
}

void
tenant_limits_forget_lanes(void)
{
	for (int i = 0; i < nlimits; i++)
	{
		dlist_mutable_iter it;

		dlist_foreach_modify(it, &limits[i].lanes)
			pfree(dlist_container(TenantLane, node, it.cur));
		dlist_init(&limits[i].lanes);
	}
	pending = false;
}

/* ---------- one turn ---------- */

bool
tenant_limits_pending(void)
{
	return pending;
}

/* Returns how many jobs of the lane are worth reading for the limit. */
static int
worth_reading(const TenantLimit *l, const Lane *lane, TimestampTz now)
{
	int			room = Max(l->limit.max_concurrent - l->limit.running, 0);

	if (lane->nextra >= MAX_CHUNK)
		return Min(room, 1);	/* its memory holds enough of other jobs */
	if (type_is_short(type_of(lane->type)) && l->limit.max_concurrent > 0)
		return Min(room + 1, 8) * READ_SHORT;
	return room;
}

/* Reads jobs of the limit in a lane; false: the turn has no entries left. */
static bool
read_lane(QueueScan *scan, int32 number, TenantLane *tl, int *budget)
{
	Lane	   *lane = tl->lane;
	Range		from = tl->from;
	int			n = worth_reading(limit_number(number), lane, scan->now);
	bool		more;

	if (n == 0)
		return true;
	tl->from.pos = DT_NOEND;	/* pass_over sets it for jobs passed over meanwhile */
	lane_unplace(lane);
	more = scan_passed(scan, lane, &from, counts_row, &number, n, budget);
	lane_place(lane, scan->now);
	if (more && from.pos <= tl->from.pos)
		tl->from = from;
	if (tl->from.pos == DT_NOEND)
	{
		dlist_delete(&tl->node);
		pfree(tl);
	}
	return *budget > 0;
}

static bool
look_at(QueueScan *scan, int32 number, int *budget)
{
	dlist_mutable_iter it;

	dlist_foreach_modify(it, &limit_number(number)->lanes)
	{
		if (!read_lane(scan, number, dlist_container(TenantLane, node, it.cur), budget))
			return false;
	}
	return true;
}

void
tenant_limits_turn(QueueScan *scan)
{
	int			budget = READ_ENTRIES;

	if (!pending)
		return;
	pending = false;
	for (int32 n = 1; n <= nlimits; n++)
	{
		if (!limit_number(n)->changed)
			continue;
		if (look_at(scan, n, &budget))
			limit_number(n)->changed = false;
		else
			pending = true;
		if (budget <= 0)
		{
			pending = true;
			return;
		}
	}
}

/* ---------- the start ---------- */

void
tenant_limits_init(MemoryContext context, JobqDb *db)
{
	tenant_callbacks.limit_of = tenant_limit_of;
	tenant_callbacks.lost = tenant_limit_lost;
	lasting = context;
	limits_context = NULL;
	limits = NULL;
	nlimits = 0;
	suspect = true;
	pending = false;
}
