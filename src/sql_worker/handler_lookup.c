/*
 * handler_lookup.c
 *	  The function behind a job type's handler, and the right to call it.
 *
 * Handlers are stored as text and looked up when they run.  A resolved one is
 * kept, with everything that its language caches in it.  The whole cache is
 * dropped when a function, schema, type or role changes anywhere, or the
 * registry does.  So rights are checked again whenever they may have changed.
 */
#include "jobq.h"

#include "catalog/pg_proc.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "sql_worker/handler_lookup.h"

static HTAB *targets = NULL;
static MemoryContext targets_context = NULL;
static bool targets_stale = true;
static bool targets_allow;		/* jobq.allow_superuser_handlers, as they were checked */
static uint64 targets_generation = 0;

static void
forget_targets(Datum arg, int cacheid, uint32 hashvalue)
{
	targets_stale = true;
}

static void
reset_targets(void)
{
	HASHCTL		ctl;

	if (targets_context == NULL)
	{
		targets_context = AllocSetContextCreate(TopMemoryContext, "jobq handlers",
												ALLOCSET_DEFAULT_SIZES);
		CacheRegisterSyscacheCallback(PROCOID, forget_targets, (Datum) 0);
		CacheRegisterSyscacheCallback(NAMESPACEOID, forget_targets, (Datum) 0);
		CacheRegisterSyscacheCallback(TYPEOID, forget_targets, (Datum) 0);
		CacheRegisterSyscacheCallback(AUTHOID, forget_targets, (Datum) 0);
		CacheRegisterSyscacheCallback(AUTHMEMROLEMEM, forget_targets, (Datum) 0);
	}
	MemoryContextReset(targets_context);
	memset(&ctl, 0, sizeof(ctl));
	ctl.keysize = sizeof(int32);
	ctl.entrysize = sizeof(Target);
	ctl.hcxt = targets_context;
	targets = hash_create("jobq handlers", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	targets_stale = false;
	targets_allow = jobq_allow_superuser_handlers;
	targets_generation = job_types_generation();
}

/*
 * Looks the handler's signature up under a fixed path; the role's own does not
 * count.
 */
static Oid
resolve_handler(const char *signature)
{
	int			nest = NewGUCNestLevel();
	Oid			oid;

	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	oid = DatumGetObjectId(DirectFunctionCall1(regprocedurein, CStringGetDatum(signature)));
	AtEOXact_GUC(true, nest);
	return oid;
}

static void
check_rights(Oid function, JobType *type)
{
	if (superuser() && !jobq_allow_superuser_handlers)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("job type \"%s\" runs as a superuser, which jobq.allow_superuser_handlers forbids",
						type->name)));
	if (object_aclcheck(ProcedureRelationId, function, GetUserId(), ACL_EXECUTE) != ACLCHECK_OK)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for function %s", type->handler)));
	job_type_check_owner(type, GetUserId());
}

/*
 * Returns the function; looks it and the right to call it up again when either
 * may have changed.
 */
Target *
handler_target(JobType *type)
{
	Target	   *target;
	bool		found;

	if (targets_stale || targets_allow != jobq_allow_superuser_handlers || targets_generation != job_types_generation())
		reset_targets();
	target = hash_search(targets, &type->id, HASH_ENTER, &found);
	if (!found)
		target->ready = false;
	if (!target->ready)
	{
		Oid			oid = resolve_handler(type->handler);
		char		kind;

		check_rights(oid, type);
		kind = get_func_prokind(oid);
		if (kind != PROKIND_FUNCTION || get_func_retset(oid))
			ereport(ERROR,
					(errcode(ERRCODE_WRONG_OBJECT_TYPE),
					 errmsg("handler %s is not a plain function", type->handler)));
		fmgr_info_cxt(oid, &target->flinfo, targets_context);
		target->nargs = target->flinfo.fn_nargs;
		target->rettype = get_func_rettype(oid);
		target->ready = true;
	}
	return target;
}
