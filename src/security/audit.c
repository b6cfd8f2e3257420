/*
 * audit.c
 *	  Rows of jobq.audit: one for each management call.
 *
 * The gate (owner_call.c) is the one way to all management calls, so it is the
 * one place that records them.  It hands name, arguments and result to
 * jobq_internal._audit, which knows the object of each call and reads its
 * state before and after (src/sql/28_audit.sql).  A call of a function that
 * _audit does not know is an error: a new one can't be forgotten.
 *
 * The row belongs to the call's transaction: a rollback leaves neither.
 */
#include "jobq.h"

#include "access/htup_details.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "base/json_build.h"
#include "base/relations.h"
#include "security/audit.h"

/*
 * Functions behind the gate that change no configuration and no job, and those
 * that record as what they change it.
 */
static const char *const not_recorded[] = {
	"add_tasks", "check_workflow", "error_groups", "resources", "send_event",
	"_alter_pressure_rule", "_bulk_begin", "_bulk_step"
};

static bool
is_recorded(const char *action)
{
	for (int i = 0; i < (int) lengthof(not_recorded); i++)
	{
		if (strcmp(not_recorded[i], action) == 0)
			return false;
	}
	return true;
}

static void
add_value(JsonBuild *b, const char *key, Oid type, Datum value)
{
	Oid			output;
	bool		is_varlena;

	switch (type)
	{
		case BOOLOID:
			json_add_bool(b, key, DatumGetBool(value));
			return;
		case INT4OID:
			json_add_integer(b, key, DatumGetInt32(value));
			return;
		case INT8OID:
			json_add_integer(b, key, DatumGetInt64(value));
			return;
		case JSONBOID:
			json_add_jsonb(b, key, DatumGetJsonbP(value));
			return;
		default:
			getTypeOutputInfo(type, &output, &is_varlena);
			json_add_string(b, key, OidOutputFunctionCall(output, value));
	}
}

static Jsonb *
arguments(Oid function, FunctionCallInfo fcinfo)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Oid		   *types;
	char	  **names;
	char	   *modes;
	JsonBuild	b;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", function);
	(void) get_func_arg_info(tuple, &types, &names, &modes);
	ReleaseSysCache(tuple);
	json_begin_object(&b);
	for (int i = 0; i < fcinfo->nargs; i++)
	{
		if (!fcinfo->args[i].isnull && names != NULL)
			add_value(&b, names[i], types[i], fcinfo->args[i].value);
	}
	return json_end_object(&b);
}

static void
run(const char *query, int nargs, Oid *types, Datum *args, const char *nulls)
{
	if (SPI_execute_with_args(query, nargs, types, args, nulls, false, 1) != SPI_OK_SELECT || SPI_processed != 1)
		elog(ERROR, "could not record a call");
}

bool
audit_begin(AuditCall *call, Oid caller, const char *action, Oid function, FunctionCallInfo fcinfo)
{
	Oid			types[3] = {OIDOID, TEXTOID, JSONBOID};
	Datum		args[3];

	if (!is_recorded(action))
		return false;
	call->caller = caller;
	call->action = action;
	call->args = arguments(function, fcinfo);
	args[0] = ObjectIdGetDatum(caller);
	args[1] = CStringGetTextDatum(action);
	args[2] = JsonbPGetDatum(call->args);
	SPI_connect();
	run("SELECT jobq_internal._audit_before($1, $2, $3)", 3, types, args, NULL);
	call->old = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &call->old_isnull);
	if (!call->old_isnull)
		call->old = SPI_datumTransfer(call->old, false, -1);
	SPI_finish();
	return true;
}

void
audit_end(AuditCall *call, Oid function, Datum result, bool isnull)
{
	Oid			types[5] = {OIDOID, TEXTOID, JSONBOID, JSONBOID, JSONBOID};
	Datum		args[5];
	char		nulls[6] = "     ";
	Oid			type = get_func_rettype(function);
	JsonBuild	b;

	json_begin_object(&b);
	if (!isnull && type != VOIDOID)
		add_value(&b, "result", type, result);
	args[0] = ObjectIdGetDatum(call->caller);
	args[1] = CStringGetTextDatum(call->action);
	args[2] = JsonbPGetDatum(call->args);
	args[3] = call->old;
	nulls[3] = call->old_isnull ? 'n' : ' ';
	args[4] = JsonbPGetDatum(json_end_object(&b));
	SPI_connect();
	run("SELECT jobq_internal._audit($1, $2, $3, $4, $5)", 5, types, args, nulls);
	SPI_finish();
}
