/*
 * claim_scopes.c
 *	  Jobs of tenants that no waiting claim may work.
 *
 * The scope of a claim is a job type and the tenants that its role may work,
 * or all of them.  A job is passed over when claims wait for its type and none
 * of them has its tenant: it leaves memory, and its lane goes on.  So jobs of
 * other tenants block no claim.
 *
 * For each scope and lane the position is kept from which on jobs of that
 * scope were passed over.  A claim reads as many as it wants from there, by
 * the lane index, and the position moves on: each index entry is read once per
 * scope.  Jobs that other claims got meanwhile are skipped.  Jobs that the
 * lane's sweep has brought back to memory don't keep a claim from the older
 * ones that were passed over: those are read first.  Where memory is full with
 * still older jobs of others, these are passed over, and then, before a younger
 * one of the scope is handed out, there is room to read (claim_scope_is_next).
 *
 * A scope that is new begins where the scope of all tenants does.  Scopes that
 * were not used for the longest time are forgotten beyond MAX_SCOPES.
 */
#include "jobq.h"

#include "lib/ilist.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "limits/type_state.h"
#include "tables/queue_table.h"
#include "workers/claim_scopes.h"
#include "workers/returned_jobs.h"

#define MAX_SCOPES		256		/* without those of all tenants */
#define ALL_TENANTS		(-1)

typedef struct Scope
{
	dlist_node	node;			/* in `scopes` */
	int32		type_id;
	int			len;			/* of tenants; ALL_TENANTS */
	dlist_head	lanes;			/* of ScopeLane */
	char		tenants[FLEXIBLE_ARRAY_MEMBER]; /* each with its '\0' */
} Scope;

typedef struct ScopeLaneKey
{
	Scope	   *scope;
	Lane	   *lane;
} ScopeLaneKey;

typedef struct ScopeLane
{
	ScopeLaneKey key;			/* hash key */
	dlist_node	node;			/* in Scope.lanes */
	Range		from;			/* hi is not used */
} ScopeLane;

static MemoryContext lasting;
static HTAB *scope_lanes = NULL;
static dlist_head scopes = DLIST_STATIC_INIT(scopes);	/* the last used first */
static int	nscopes = 0;		/* without those of all tenants */
static bool found = false;		/* the last look has found the job */
static text *looked_at = NULL;	/* its tenant, in the scan's slot; NULL: none */

void
claim_scopes_init(MemoryContext context)
{
	HASHCTL		ctl;

	lasting = context;
	memset(&ctl, 0, sizeof(ctl));
	ctl.keysize = sizeof(ScopeLaneKey);
	ctl.entrysize = sizeof(ScopeLane);
	ctl.hcxt = context;
	scope_lanes = hash_create("jobq claim scopes", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	dlist_init(&scopes);
	nscopes = 0;
}

/* ---------- tenants ---------- */

/* True if the name is the tenant, or one above it; "": for jobs without one. */
static bool
names_tenant(const char *name, const text *tenant)
{
	int			n = (int) strlen(name);
	int			len = tenant ? (int) VARSIZE_ANY_EXHDR(tenant) : 0;

	if (n == 0 || len < n)
		return n == len;
	return memcmp(VARDATA_ANY(tenant), name, n) == 0 && (len == n || VARDATA_ANY(tenant)[n] == '/');
}

static bool
scope_has(const Scope *scope, const text *tenant)
{
	if (scope->len == ALL_TENANTS)
		return true;
	for (const char *name = scope->tenants; name < scope->tenants + scope->len; name += strlen(name) + 1)
	{
		if (names_tenant(name, tenant))
			return true;
	}
	return false;
}

static text *
tenant_of(TupleTableSlot *slot)
{
	bool		isnull;
	Datum		tenant = slot_getattr(slot, Q_tenant, &isnull);

	return isnull ? NULL : DatumGetTextPP(tenant);
}

static bool
wants_row(TupleTableSlot *slot, const void *scope)
{
	return scope_has(scope, tenant_of(slot));
}

bool
claim_scope_look(QueueScan *scan, const JobRef *ref)
{
	JobRef		row;
	JobStatus	status;

	found = scan_find(scan, &ref->id, &row, &status);
	looked_at = found ? tenant_of(scan->slot) : NULL;
	return found;
}

/*
 * Copies the tenants of types[i] to `tenants`, of JOBQ_CLAIM_SCOPE bytes;
 * returns their length.  The session may be writing its next request there.
 */
static int
copy_tenants(const ClaimPlace *place, int i, char *tenants)
{
	const char *at = place->scope.tenants;
	const char *end = at + Min(Max(place->scope.len, 0), JOBQ_CLAIM_SCOPE);
	int			len = 0;

	if (!claim_types_have(&place->scope.limited, i))
		return ALL_TENANTS;
	while (at < end)
	{
		int			n = (int) strnlen(at + 1, end - at - 1);

		if (at + 1 + n >= end)
			break;
		if ((unsigned char) *at == i)
		{
			memcpy(tenants + len, at + 1, n);
			tenants[len + n] = '\0';
			len += n + 1;
		}
		at += n + 2;
	}
	return len;
}

bool
claim_scope_admits(const ClaimPlace *place, int i)
{
	union
	{
		Scope		scope;
		char		space[offsetof(Scope, tenants) + JOBQ_CLAIM_SCOPE];
	}			draft;

	draft.scope.len = copy_tenants(place, i, draft.scope.tenants);
	return scope_has(&draft.scope, looked_at);
}

/* ---------- scopes ---------- */

static Scope *
find_scope(int32 type_id, int len, const char *tenants)
{
	dlist_iter	it;

	dlist_foreach(it, &scopes)
	{
		Scope	   *scope = dlist_container(Scope, node, it.cur);

		if (scope->type_id == type_id && scope->len == len && (len <= 0 || memcmp(scope->tenants, tenants, len) == 0))
			return scope;
	}
	return NULL;
}

static void
drop_lane(ScopeLane *sl)
{
	dlist_delete(&sl->node);
	hash_search(scope_lanes, &sl->key, HASH_REMOVE, NULL);
}

static void
forget_lanes(Scope *scope)
{
	dlist_mutable_iter it;

	dlist_foreach_modify(it, &scope->lanes)
		drop_lane(dlist_container(ScopeLane, node, it.cur));
}

/* Forgets the scope with tenants that was not used for the longest time. */
static void
drop_oldest(void)
{
	Scope	   *oldest = NULL;
	dlist_iter	it;

	dlist_foreach(it, &scopes)
	{
		if (dlist_container(Scope, node, it.cur)->len != ALL_TENANTS)
			oldest = dlist_container(Scope, node, it.cur);
	}
	if (oldest == NULL)
		return;
	forget_lanes(oldest);
	dlist_delete(&oldest->node);
	pfree(oldest);
	nscopes--;
}

static Scope *
add_scope(int32 type_id, int len, const char *tenants)
{
	Scope	   *scope;

	if (len != ALL_TENANTS && nscopes >= MAX_SCOPES)
		drop_oldest();
	scope = MemoryContextAlloc(lasting, offsetof(Scope, tenants) + Max(len, 0));
	scope->type_id = type_id;
	scope->len = len;
	dlist_init(&scope->lanes);
	if (len > 0)
		memcpy(scope->tenants, tenants, len);
	dlist_push_head(&scopes, &scope->node);
	nscopes += len != ALL_TENANTS;
	return scope;
}

/* Notes that a job of the scope at that position of the lane was passed over. */
static void
note_passed(Scope *scope, Lane *lane, const Range *from)
{
	ScopeLaneKey key = {scope, lane};
	bool		had;
	ScopeLane  *sl = hash_search(scope_lanes, &key, HASH_ENTER, &had);

	if (!had)
		dlist_push_tail(&scope->lanes, &sl->node);
	if (!had || from->pos < sl->from.pos)
		sl->from = *from;
}

/*
 * Returns the scope of types[i]; NULL: no job of the type was passed over.
 */
static Scope *
scope_of(const ClaimPlace *place, int i)
{
	char		tenants[JOBQ_CLAIM_SCOPE];
	int			len = copy_tenants(place, i, tenants);
	Scope	   *all = find_scope(place->types[i], ALL_TENANTS, NULL);
	Scope	   *scope;
	dlist_iter	it;

	if (all == NULL || len == ALL_TENANTS)
		return all;
	scope = find_scope(place->types[i], len, tenants);
	if (scope == NULL)
	{
		scope = add_scope(place->types[i], len, tenants);
		dlist_foreach(it, &all->lanes)
		{
			ScopeLane  *sl = dlist_container(ScopeLane, node, it.cur);

			note_passed(scope, sl->key.lane, &sl->from);
		}
	}
	dlist_move_head(&scopes, &scope->node);
	return scope;
}

/* ---------- jobs that are passed over ---------- */

bool
claim_scopes_pending(void)
{
	return hash_get_num_entries(scope_lanes) > 0;
}

void
claim_scopes_forget_lanes(void)
{
	dlist_iter	it;

	dlist_foreach(it, &scopes)
		forget_lanes(dlist_container(Scope, node, it.cur));
}

/* Notes the oldest job that claims have passed. */
static void
note_unworked(TypeState *t, const JobRef *ref)
{
	if (t->unworked != 0 && t->unworked <= ref->position)
		return;
	t->unworked = ref->position;
	t->unworked_since = mono_now();
}

void
claim_scopes_pass(Lane *lane)
{
	JobRef		ref;
	Range		from = {0};		/* from the first row of that position on: a HOT row has another TID */
	dlist_iter	it;

	if (find_scope(lane->id.type_id, ALL_TENANTS, NULL) == NULL)
		(void) add_scope(lane->id.type_id, ALL_TENANTS, NULL);
	lane_pop(lane, &ref);
	forget_job(&ref);
	if (!found)
		return;
	note_unworked(type_of(lane->type), &ref);
	from.pos = ref.position;
	dlist_foreach(it, &scopes)
	{
		Scope	   *scope = dlist_container(Scope, node, it.cur);

		if (scope->type_id == ref.type_id && scope_has(scope, looked_at))
			note_passed(scope, lane, &from);
	}
}

bool
claim_scope_is_next(const ClaimPlace *place, int i, const JobRef *ref)
{
	char		tenants[JOBQ_CLAIM_SCOPE];
	ScopeLaneKey key;
	ScopeLane  *sl;

	if (!claim_scopes_pending())
		return true;
	/* of this turn's claims: among the first in `scopes` */
	key.scope = find_scope(place->types[i], copy_tenants(place, i, tenants), tenants);
	if (key.scope == NULL)
		key.scope = scope_of(place, i);
	key.lane = lane_of(ref);
	sl = key.scope != NULL ? hash_search(scope_lanes, &key, HASH_FIND, NULL) : NULL;
	return sl == NULL || sl->from.pos >= ref->position;
}

/* True if jobs of the scope were passed over that go before all in the lane's memory. */
static bool
goes_before(const ScopeLane *sl)
{
	const JobRef *head = lane_head(sl->key.lane);

	return head == NULL || head->position > sl->from.pos;
}

/*
 * True if nothing is to be read: jobs leave memory before more are read, and
 * nothing in memory may be handed out before an older job that was passed over.
 */
static bool
is_full(const ScopeLane *sl, bool idle)
{
	const Lane *lane = sl->key.lane;

	return !goes_before(sl) && (idle || lane->nextra >= (lane->id.sublane == 0 ? MAX_CHUNK : MAX_FAIR_CHUNK));
}

static void
read_lane(QueueScan *scan, Scope *scope, ScopeLane *sl, int wanted, int *budget)
{
	Lane	   *lane = sl->key.lane;
	bool		more;

	if (lane->id.sublane != 0)
		wanted = Min(wanted, MAX_FAIR_CHUNK);
	lane_unplace(lane);
	more = scan_passed(scan, lane, &sl->from, wants_row, scope, wanted, budget);
	lane_place(lane, scan->now);
	if (!more)
		drop_lane(sl);
}

ScopeRead
claim_scopes_read(QueueScan *scan, const ClaimPlace *place, bool idle, int *budget)
{
	int			wanted = Min(Max(place->wanted, 1), JOBQ_CLAIM_REFS);
	bool		more = false;

	for (int i = 0; i < Min(place->ntypes, JOBQ_CLAIM_TYPES); i++)
	{
		Scope	   *scope = scope_of(place, i);
		dlist_mutable_iter it;

		if (scope == NULL)
			continue;
		dlist_foreach_modify(it, &scope->lanes)
		{
			ScopeLane  *sl = dlist_container(ScopeLane, node, it.cur);

			if (*budget <= 0)
				return SCOPE_CUT;
			if (!is_full(sl, idle))
				read_lane(scan, scope, sl, wanted, budget);
		}
		more |= !dlist_is_empty(&scope->lanes);
	}
	return more ? SCOPE_HAS_MORE : SCOPE_READ;
}

bool
claim_scopes_idle(const ClaimPlace *place)
{
	for (int i = 0; i < Min(place->ntypes, JOBQ_CLAIM_TYPES); i++)
	{
		Scope	   *scope = scope_of(place, i);
		dlist_iter	it;

		if (scope == NULL)
			continue;
		dlist_foreach(it, &scope->lanes)
		{
			if (goes_before(dlist_container(ScopeLane, node, it.cur)))
				return true;
		}
	}
	return false;
}
