/*
 * act_as_enqueuer.c
 *	  The identity of enqueues that jobq makes for a role: for the owner of a
 *	  job type (hooks), for that of a schedule (ticks).
 *
 * The right to enqueue a type for a tenant is checked by the enqueue itself;
 * EXECUTE on the function, which the server checks for a call, is checked
 * here.
 */
#include "jobq.h"

#include "catalog/namespace.h"
#include "catalog/pg_proc.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "utils/acl.h"
#include "utils/syscache.h"

#include "security/act_as_enqueuer.h"

bool
may_call_enqueue(Oid role)
{
	List	   *function_name = list_make2(makeString("jobq"), makeString("enqueue"));
	int			found;
	FuncCandidateList function = FuncnameGetCandidates(function_name, -1, NIL, false, false, false, true, &found);

	return function != NULL && object_aclcheck(ProcedureRelationId, function->oid, role, ACL_EXECUTE) == ACLCHECK_OK;
}

Caller
act_as_enqueuer(Oid role, const char *name)
{
	if (!SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(role)))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("role \"%s\" does not exist", name)));
	if (!may_call_enqueue(role))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied: role \"%s\" may not enqueue jobs", GetUserNameFromId(role, false))));
	return act_as(role, 0);
}
