/*
 * access.c
 *	  Grants of roles: see access.h.
 *
 * The grants that count for a role are collected at its first check, by one
 * scan of jobq.access past the executor, and kept until a grant, a role or a
 * membership changes.  So a check of a row, in enqueue or in a row-level
 * policy, compares texts and reads nothing.
 *
 * The tenant check (jobq.set_tenant_check) is called last, for a tenant that
 * no grant covers, and as the role in question.  It may run anything, so no
 * code reads the cache after it.
 */
#include "jobq.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "base/relations.h"
#include "security/access.h"
#include "shared/shmem.h"
#include "tables/home.h"
#include "tables/queue_table.h"
#include "tables/table_shape.h"

PG_FUNCTION_INFO_V1(jobq_access_trigger);

/* attribute numbers: src/sql/12_grants.sql */
enum
{
	A_role = 1, A_access, A_tenant, A_job_types, A_role_oid
};
#define A_NATTS A_role_oid

static const ShapeColumn access_columns[] = {
	{"role", TEXTOID, FILLED}, {"access", TEXTOID, FILLED}, {"tenant", TEXTOID, NULLABLE},
	{"job_types", TEXTARRAYOID, NULLABLE}, {"role_oid", OIDOID, FILLED}
};
const Shape access_shape = SHAPE("access", access_columns);

StaticAssertDecl(lengthof(access_columns) == A_NATTS, "access' columns");

typedef struct Grant
{
	Access		access;
	char	   *tenant;			/* NULL: every one; "": jobs without one */
	int			ntypes;			/* 0: every type */
	char	  **types;
} Grant;

/* The grants that a role is held to. */
typedef struct Held
{
	Oid			role;			/* hash key */
	bool		free;
	char		enqueuer[ENQUEUER_SIZE];
	int			ngrants;
	Grant	   *grants;
} Held;

static const char *const access_names[ACCESS_COUNT] = {"enqueue", "work", "read", "admin"};

static MemoryContext held_context = NULL;
static HTAB *held_by_role = NULL;
static Held *last_held = NULL;	/* of the last check */
static Oid	access_relid = InvalidOid;
static uint32 kind_hash = 0;	/* of the domain that marks roles, in its catalog cache */
static uint64 generation = 1;
static uint64 filled_at = 0;

static void
relation_changed(Datum arg, Oid relid)
{
	if (relid == InvalidOid || relid == access_relid)
		generation++;
}

static void
role_changed(Datum arg, int cacheid, uint32 hashvalue)
{
	generation++;
}

static void
type_changed(Datum arg, int cacheid, uint32 hashvalue)
{
	if (hashvalue == 0 || hashvalue == kind_hash)
		generation++;
}

static void
cache_begin(void)
{
	static bool registered = false;
	HASHCTL		ctl;

	if (filled_at == generation)
		return;
	if (!registered)
	{
		CacheRegisterRelcacheCallback(relation_changed, (Datum) 0);
		CacheRegisterSyscacheCallback(AUTHOID, role_changed, (Datum) 0);
		CacheRegisterSyscacheCallback(AUTHMEMROLEMEM, role_changed, (Datum) 0);
		CacheRegisterSyscacheCallback(NAMESPACEOID, role_changed, (Datum) 0);
		CacheRegisterSyscacheCallback(TYPEOID, type_changed, (Datum) 0);
		registered = true;
	}
	last_held = NULL;
	filled_at = 0;
	if (held_context != NULL)
		MemoryContextDelete(held_context);
	held_context = NULL;
	held_context = AllocSetContextCreate(CacheMemoryContext, "jobq access", ALLOCSET_SMALL_SIZES);
	ctl.keysize = sizeof(Oid);
	ctl.entrysize = sizeof(Held);
	ctl.hcxt = held_context;
	held_by_role = hash_create("jobq access", 16, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	filled_at = generation;
}

/* --- collecting --- */

/*
 * True if the role has USAGE on the domain that marks roles as held to their
 * grants.
 */
static bool
is_marked(Oid role)
{
	Oid			kind = GetSysCacheOid2(TYPENAMENSP, Anum_pg_type_oid, CStringGetDatum("access_kind"),
									   ObjectIdGetDatum(get_rel_namespace(access_relid)));

	if (!OidIsValid(kind))
		elog(ERROR, "domain jobq.access_kind is missing");
	kind_hash = GetSysCacheHashValue1(TYPEOID, ObjectIdGetDatum(kind));
	return type_aclcheck(kind, role, ACL_USAGE) == ACLCHECK_OK;
}

static void
read_types(Grant *grant, ArrayType *array)
{
	Datum	   *elements;
	int			i;

	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &elements, NULL, &grant->ntypes);
	grant->types = palloc(sizeof(char *) * Max(grant->ntypes, 1));
	for (i = 0; i < grant->ntypes; i++)
		grant->types[i] = TextDatumGetCString(elements[i]);
}

static void
add_grant(Held *held, Datum *values, bool *nulls)
{
	Grant	   *grant;
	char	   *name = TextDatumGetCString(values[A_access - 1]);
	int			access = 0;

	while (access < ACCESS_COUNT && strcmp(access_names[access], name) != 0)
		access++;
	if (access == ACCESS_COUNT)
		return;					/* of a newer jobq */
	held->grants = held->grants == NULL ? palloc(sizeof(Grant)) :
		repalloc(held->grants, sizeof(Grant) * (held->ngrants + 1));
	grant = &held->grants[held->ngrants];
	memset(grant, 0, sizeof(Grant));
	grant->access = (Access) access;
	if (!nulls[A_tenant - 1])
		grant->tenant = TextDatumGetCString(values[A_tenant - 1]);
	if (!nulls[A_job_types - 1])
		read_types(grant, DatumGetArrayTypeP(values[A_job_types - 1]));
	held->ngrants++;
}

/* Collects the grants to the role and to the roles whose rights it has. */
static void
collect_grants(Held *held)
{
	Relation	rel = shape_open("access", AccessShareLock);
	Snapshot	snapshot = RegisterSnapshot(IsInParallelMode() ? GetActiveSnapshot() : GetLatestSnapshot());
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, snapshot, 0, NULL);
	HeapTuple	tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Datum		values[A_NATTS];
		bool		nulls[A_NATTS];
		Oid			grantee;

		heap_deform_tuple(tuple, RelationGetDescr(rel), values, nulls);
		grantee = DatumGetObjectId(values[A_role_oid - 1]);
		if (OidIsValid(grantee) && has_privs_of_role(held->role, grantee))
			add_grant(held, values, nulls);
	}
	systable_endscan(scan);
	UnregisterSnapshot(snapshot);
	table_close(rel, AccessShareLock);
}

/*
 * Adds a role to the cache.  The entry is made last: an error leaves no
 * half-filled one.
 */
static Held *
collect(Oid role)
{
	Held		draft;
	Held	   *held;
	MemoryContext old = MemoryContextSwitchTo(held_context);
	char	   *name = GetUserNameFromId(role, true);

	memset(&draft, 0, sizeof(draft));
	draft.role = role;
	if (name != NULL)
		snprintf(draft.enqueuer, sizeof(draft.enqueuer), "%u:%s", role, name);
	draft.free = superuser_arg(role) || has_privs_of_role(role, jobq_owner()) || !is_marked(role);
	if (!draft.free)
		collect_grants(&draft);
	held = hash_search(held_by_role, &role, HASH_ENTER, NULL);
	*held = draft;
	MemoryContextSwitchTo(old);
	return held;
}

static Held *
held(Oid role)
{
	Held	   *found;

	if (last_held != NULL && last_held->role == role && filled_at == generation)
		return last_held;
	access_relid = jobq_relid("access");
	if (!OidIsValid(access_relid))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("extension \"jobq\" is not installed in this database")));
	cache_begin();
	found = hash_search(held_by_role, &role, HASH_FIND, NULL);
	if (found == NULL)
		found = collect(role);
	last_held = found;
	return found;
}

/* --- asking --- */

static bool
covers_access(const Grant *grant, Access access)
{
	return grant->access == access || (access == ACCESS_READ && grant->access == ACCESS_ADMIN);
}

static bool
covers_type(const Grant *grant, const char *type)
{
	int			i;

	if (grant->types == NULL)
		return true;
	for (i = 0; type != NULL && i < grant->ntypes; i++)
		if (strcmp(grant->types[i], type) == 0)
			return true;
	return false;
}

/*
 * True if the grant covers the tenant: "acme" covers acme and acme/..., ""
 * covers jobs without one.
 */
static bool
covers_tenant(const Grant *grant, const char *tenant, int len)
{
	int			n;

	if (grant->tenant == NULL)
		return true;
	n = strlen(grant->tenant);
	if (n == 0 || len < n || memcmp(tenant, grant->tenant, n) != 0)
		return n == 0 && len == 0;
	return len == n || tenant[n] == '/';
}

static bool
covers_tenant_text(const Grant *grant, const text *tenant)
{
	return tenant == NULL ? covers_tenant(grant, "", 0) :
		covers_tenant(grant, VARDATA_ANY(tenant), VARSIZE_ANY_EXHDR(tenant));
}

bool
access_is_free(Oid role)
{
	return held(role)->free;
}

static bool
may(Oid role, Access access, text *tenant, const char *type, bool some_type)
{
	Held	   *h = held(role);
	bool		some_tenant = false;
	int			i;

	if (h->free)
		return true;
	for (i = 0; i < h->ngrants; i++)
	{
		const Grant *grant = &h->grants[i];

		if (!covers_access(grant, access) || (!some_type && !covers_type(grant, type)))
			continue;
		some_tenant = true;
		if (covers_tenant_text(grant, tenant))
			return true;
	}
	return some_tenant && tenant != NULL && tenant_check_admits(role, tenant);
}

bool
access_may(Oid role, Access access, text *tenant, const char *type)
{
	return may(role, access, tenant, type, false);
}

bool
access_may_some_type(Oid role, Access access, text *tenant)
{
	return may(role, access, tenant, NULL, true);
}

bool
access_names_type(Oid role, Access access, text *tenant, const char *type)
{
	Held	   *h = held(role);

	for (int i = 0; i < h->ngrants; i++)
	{
		const Grant *grant = &h->grants[i];

		if (covers_access(grant, access) && grant->types != NULL && covers_type(grant, type) &&
			covers_tenant_text(grant, tenant))
			return true;
	}
	return h->free;
}

bool
access_may_everywhere(Oid role, Access access, const char *type)
{
	Held	   *h = held(role);
	int			i;

	for (i = 0; i < h->ngrants; i++)
	{
		const Grant *grant = &h->grants[i];

		if (covers_access(grant, access) && grant->tenant == NULL && covers_type(grant, type))
			return true;
	}
	return h->free;
}

bool
access_may_some_tenant(Oid role, Access access, const char *type, bool by_name)
{
	Held	   *h = held(role);

	for (int i = 0; i < h->ngrants; i++)
	{
		const Grant *grant = &h->grants[i];

		if (covers_access(grant, access) && covers_type(grant, type) && (!by_name || grant->types != NULL))
			return true;
	}
	return h->free;
}

int
access_tenants(Oid role, Access access, const char *type, void (*add) (void *arg, const char *tenant), void *arg)
{
	Held	   *h = held(role);
	int			n = 0;

	for (int i = 0; i < h->ngrants; i++)
	{
		const Grant *grant = &h->grants[i];

		if (grant->tenant == NULL || !covers_access(grant, access) || !covers_type(grant, type))
			continue;
		if (add != NULL)
			add(arg, grant->tenant);
		n++;
	}
	return n;
}

bool
access_may_some(Oid role, Access access)
{
	Held	   *h = held(role);
	int			i;

	for (i = 0; i < h->ngrants; i++)
		if (covers_access(&h->grants[i], access))
			return true;
	return h->free;
}

bool
access_knows_type(Oid role, const char *type)
{
	Held	   *h = held(role);
	int			i;

	for (i = 0; i < h->ngrants && !h->free; i++)
		if (covers_type(&h->grants[i], type))
			return true;
	return h->free;
}

uint64
access_generation(void)
{
	return generation;
}

const char *
access_enqueuer(Oid role)
{
	Held	   *h = held(role);

	return h->free ? NULL : h->enqueuer;
}

/*
 * True if the oids agree; before jobq.adopt() they are another cluster's, so
 * the names must agree, too.
 */
bool
access_is_enqueuer(const char *self, const text *enqueued_by)
{
	const char *stored = VARDATA_ANY(enqueued_by);
	size_t		len = VARSIZE_ANY_EXHDR(enqueued_by);
	size_t		oid_len = strcspn(self, ":") + 1;
	int32		home;

	if (len < oid_len || memcmp(self, stored, oid_len) != 0)
		return false;
	if (strlen(self) == len && memcmp(self, stored, len) == 0)
		return true;
	return home_is_ours(&home);
}

/* --- changes --- */

/*
 * AFTER STATEMENT on jobq.access and jobq.tenant_check: makes every process
 * collect its grants again.
 */
Datum
jobq_access_trigger(PG_FUNCTION_ARGS)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("jobq_internal._access_changed is a trigger function")));
	CacheInvalidateRelcacheByRelid(jobq_relid("access"));
	return PointerGetDatum(NULL);
}
