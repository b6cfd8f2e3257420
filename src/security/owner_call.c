/*
 * owner_call.c
 *	  Calls functions as the owner of jobq's tables, with the caller's oid.
 *
 * In a SECURITY DEFINER function current_user is the owner, and session_user
 * is not the caller either after SET ROLE.  So the functions that check rights
 * are SECURITY INVOKER and all have this body: jobq.NAME(arguments) calls
 * jobq_internal._NAME(caller oid, arguments) as the owner of jobq's tables.
 * The functions behind the gate are PL/pgSQL with a pinned search_path, and no
 * role may call them directly.  The gate checks how far the caller's rights
 * reach (grant_checks.c), and records the call (audit.c).
 *
 * jobq_gateway_as_caller is the same for functions that read with the caller's
 * own rights.
 *
 * SECURITY_LOCAL_USERID_CHANGE keeps what runs behind the gate from changing
 * its role.  An error needs no cleanup here: the end of the (sub)transaction
 * restores user and context.  It loses the lines of CONTEXT that name
 * functions behind the gate, which mean nothing to the caller.
 */
#include "jobq.h"

#include "access/htup_details.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "base/act_as.h"
#include "base/caller.h"
#include "base/errors.h"
#include "base/relations.h"
#include "lifecycle/release.h"
#include "security/audit.h"
#include "security/access.h"
#include "shared/shmem.h"

PG_FUNCTION_INFO_V1(jobq_gateway);
PG_FUNCTION_INFO_V1(jobq_gateway_as_caller);

static HeapTuple
get_function(Oid funcid)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(funcid));

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", funcid);
	return tuple;
}

/*
 * Finds the function behind the gate: internal schema, name after an
 * underscore, an oid before the arguments.
 */
static Oid
function_behind(Oid gate)
{
	HeapTuple	outer = get_function(gate);
	HeapTuple	inner;
	Form_pg_proc from = (Form_pg_proc) GETSTRUCT(outer);
	Form_pg_proc to;
	Oid			types[FUNC_MAX_ARGS];
	char		name[NAMEDATALEN];
	Oid			result;

	snprintf(name, sizeof(name), "_%s", NameStr(from->proname));
	if (from->pronargs >= FUNC_MAX_ARGS)
		elog(ERROR, "function %s has too many arguments", NameStr(from->proname));
	types[0] = OIDOID;
	memcpy(&types[1], from->proargtypes.values, from->pronargs * sizeof(Oid));

	inner = SearchSysCache3(PROCNAMEARGSNSP, CStringGetDatum(name),
							PointerGetDatum(buildoidvector(types, from->pronargs + 1)),
							ObjectIdGetDatum(jobq_internal_schema()));
	if (!HeapTupleIsValid(inner))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("nothing is behind function \"%s\"", NameStr(from->proname))));
	to = (Form_pg_proc) GETSTRUCT(inner);
	if (to->prorettype != from->prorettype || to->proretset != from->proretset)
		elog(ERROR, "function %s returns something else than %s", name, NameStr(from->proname));
	result = to->oid;
	ReleaseSysCache(inner);
	ReleaseSysCache(outer);
	return result;
}

typedef struct Gate
{
	FmgrInfo	target;
	char	   *name;			/* of the function in front */
} Gate;

/* Returns the gate, looked up once per calling expression. */
static Gate *
gate_of(FmgrInfo *flinfo)
{
	if (flinfo->fn_extra == NULL)
	{
		Gate	   *gate = MemoryContextAllocZero(flinfo->fn_mcxt, sizeof(Gate));
		MemoryContext old = MemoryContextSwitchTo(flinfo->fn_mcxt);

		gate->name = get_func_name(flinfo->fn_oid);
		MemoryContextSwitchTo(old);
		fmgr_info_cxt(function_behind(flinfo->fn_oid), &gate->target, flinfo->fn_mcxt);
		flinfo->fn_extra = gate;
	}
	return flinfo->fn_extra;
}

/* Calls the function; manages: its call is recorded (audit.c). */
static Datum
call_behind(FunctionCallInfo fcinfo, Gate *gate, Oid caller, bool manages)
{
	LOCAL_FCINFO(inner, FUNC_MAX_ARGS);
	MemoryContext context = CurrentMemoryContext;
	Oid			function = fcinfo->flinfo->fn_oid;
	Oid			former = caller_set(manages ? caller : InvalidOid);
	AuditCall	audit;
	Datum		result;

	want_dispatcher(my_db());	/* the database may have been closed when the launcher looked */
	InitFunctionCallInfoData(*inner, &gate->target, PG_NARGS() + 1, PG_GET_COLLATION(),
							 NULL, fcinfo->resultinfo);
	inner->args[0].value = ObjectIdGetDatum(caller);
	inner->args[0].isnull = false;
	memcpy(&inner->args[1], &fcinfo->args[0], PG_NARGS() * sizeof(NullableDatum));
	PG_TRY();
	{
		bool		recorded = manages && audit_begin(&audit, caller, gate->name, function, fcinfo);

		result = FunctionCallInvoke(inner);
		if (recorded)
			audit_end(&audit, function, result, inner->isnull);
	}
	PG_CATCH();
	{
		(void) caller_set(former);
		raise_for_caller(context);
	}
	PG_END_TRY();
	(void) caller_set(former);
	fcinfo->isnull = inner->isnull;
	return result;
}

Datum
jobq_gateway(PG_FUNCTION_ARGS)
{
	Gate	   *gate;
	Caller		caller;
	Datum		result;

	release_require();
	gate = gate_of(fcinfo->flinfo);
	access_check_call(GetUserId(), gate->name, fcinfo->args);
	caller = act_as_owner();
	result = call_behind(fcinfo, gate, caller.role, true);
	act_as_caller(caller);
	return result;
}

Datum
jobq_gateway_as_caller(PG_FUNCTION_ARGS)
{
	release_require();
	return call_behind(fcinfo, gate_of(fcinfo->flinfo), GetUserId(), false);
}
