/*
 * tenant_check.c
 *	  The function that jobq.set_tenant_check has set: it admits roles to
 *	  tenants that no grant covers.
 *
 * It is stored by name, in the one row of jobq.tenant_check, and looked up at
 * each call.  It runs as the role in question: behind the gate, where the
 * current user is the owner of jobq's tables, the identity changes to that
 * role for the call.  Its search_path is pinned, so that objects of that role
 * do not hide those that the function names.  An answer holds for the rest of
 * the command, so that a policy calls it once per tenant and not once per row.
 */
#include "jobq.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "base/act_as.h"
#include "base/relations.h"
#include "security/access.h"
#include "tables/table_shape.h"

static const ShapeColumn tenant_check_columns[] = {{"signature", TEXTOID, FILLED}};
const Shape tenant_check_shape = SHAPE("tenant_check", tenant_check_columns);

bool		tenant_check_ignored = false;

#define ANSWERS			16
#define MAX_TENANT		256

/* The check's answers in this command. */
typedef struct Answer
{
	Oid			role;
	char		tenant[MAX_TENANT];
	bool		admitted;
} Answer;

/* The command that they belong to. */
typedef struct Moment
{
	LocalTransactionId lxid;
	CommandId	cid;
	TimestampTz started_at;
} Moment;

static char *signature = NULL;	/* NULL: no check is set */
static uint64 read_at = 0;		/* generation of the grants that signature was read with */
static Answer answers[ANSWERS];
static Moment answered_at;

static void
read_signature(void)
{
	Relation	rel = shape_open("tenant_check", AccessShareLock);
	Snapshot	snapshot = RegisterSnapshot(IsInParallelMode() ? GetActiveSnapshot() : GetLatestSnapshot());
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, snapshot, 0, NULL);
	HeapTuple	tuple = systable_getnext(scan);
	char	   *found = NULL;

	if (HeapTupleIsValid(tuple))
	{
		Datum		values[lengthof(tenant_check_columns)];
		bool		nulls[lengthof(tenant_check_columns)];

		heap_deform_tuple(tuple, RelationGetDescr(rel), values, nulls);
		found = MemoryContextStrdup(TopMemoryContext, TextDatumGetCString(values[0]));
	}
	systable_endscan(scan);
	UnregisterSnapshot(snapshot);
	table_close(rel, AccessShareLock);
	if (signature != NULL)
		pfree(signature);
	signature = found;
}

static bool
is_set(void)
{
	uint64		generation = access_generation();

	if (read_at != generation)
	{
		read_signature();
		memset(answers, 0, sizeof(answers));
		read_at = generation;
	}
	return signature != NULL;
}

/* Returns the entry of the answer for this tenant; *known: it is filled. */
static Answer *
answer_of(Oid role, const char *tenant, bool *known)
{
	Moment		now;
	Answer	   *answer = &answers[hash_bytes((const unsigned char *) tenant, strlen(tenant)) % ANSWERS];

	memset(&now, 0, sizeof(now));
	now.lxid = my_lxid();
	now.cid = GetCurrentCommandId(false);
	now.started_at = GetCurrentStatementStartTimestamp();
	if (memcmp(&now, &answered_at, sizeof(now)) != 0)
	{
		memset(answers, 0, sizeof(answers));
		answered_at = now;
	}
	*known = answer->role == role && strcmp(answer->tenant, tenant) == 0;
	return answer;
}

/* Sets search_path until the end of the GUC nest level. */
static void
pin_path(const char *path)
{
	(void) set_config_option("search_path", path, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
}

static Oid
check_function(Oid role)
{
	Oid			oid = DatumGetObjectId(DirectFunctionCall1(regprocedurein, CStringGetDatum(signature)));

	if (get_func_rettype(oid) != BOOLOID || get_func_retset(oid) || get_func_prokind(oid) != PROKIND_FUNCTION)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("tenant check %s does not return boolean", signature)));
	if (object_aclcheck(ProcedureRelationId, oid, role, ACL_EXECUTE) != ACLCHECK_OK)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for tenant check %s", signature)));
	return oid;
}

/*
 * Calls the check.  The role's search_path does not count: names of the
 * function's own schema come next to pg_catalog's, temporary ones last.  A
 * search_path that the function has of its own (ALTER FUNCTION ... SET) wins.
 *
 * An error needs no cleanup: the end of the (sub)transaction restores identity
 * and path.
 */
static bool
ask(Oid role, text *tenant)
{
	LOCAL_FCINFO(fcinfo, 1);
	FmgrInfo	flinfo;
	Caller		caller;
	bool		snapshot = !ActiveSnapshotSet();
	int			nest = NewGUCNestLevel();
	Oid			function;
	Datum		result;

	caller = act_as(role, 0);
	if (snapshot)
		PushActiveSnapshot(GetTransactionSnapshot());
	pin_path("pg_catalog, pg_temp");
	function = check_function(role);
	pin_path(psprintf("pg_catalog, %s, pg_temp", quote_identifier(get_namespace_name(get_func_namespace(function)))));
	fmgr_info(function, &flinfo);
	InitFunctionCallInfoData(*fcinfo, &flinfo, 1, DEFAULT_COLLATION_OID, NULL, NULL);
	fcinfo->args[0].value = PointerGetDatum(tenant);
	fcinfo->args[0].isnull = false;
	result = FunctionCallInvoke(fcinfo);
	AtEOXact_GUC(true, nest);
	if (snapshot)
		PopActiveSnapshot();
	act_as_caller(caller);
	return !fcinfo->isnull && DatumGetBool(result);
}

bool
tenant_check_admits(Oid role, text *tenant)
{
	char		name[MAX_TENANT];
	Answer	   *answer;
	bool		known;
	bool		admitted;

	if (tenant_check_ignored || !is_set() || VARSIZE_ANY_EXHDR(tenant) >= MAX_TENANT)
		return false;
	text_to_cstring_buffer(tenant, name, sizeof(name));
	answer = answer_of(role, name, &known);
	if (known)
		return answer->admitted;
	admitted = ask(role, tenant);
	answer = answer_of(role, name, &known);	/* it may have run commands */
	answer->role = role;
	strlcpy(answer->tenant, name, sizeof(answer->tenant));
	answer->admitted = admitted;
	return admitted;
}
