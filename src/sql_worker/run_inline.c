/*
 * run_inline.c
 *	  jobq.run_inline: a waiting SQL job, run in the caller's transaction as a worker would run it.
 *
 * For tests: pgTAP never commits, so no worker would ever see the job.  The
 * identity is taken for the call only (SECURITY_LOCAL_USERID_CHANGE: the
 * handler cannot change it), the outcome is settled in the same transaction.
 * When history has no partition for it, the maintenance process makes one.
 * Nothing of the handler stays in the caller's session (inline_session.c).
 */
#include "jobq.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/errors.h"
#include "base/relations.h"
#include "limits/kill_switch.h"
#include "registry/job_types.h"
#include "security/grants.h"
#include "settle/settle.h"
#include "sql_worker/handler.h"
#include "sql_worker/inline_session.h"
#include "sql_worker/inline_triggers.h"
#include "tables/queue_find.h"

PG_FUNCTION_INFO_V1(jobq_run_inline);

static JobType *
lock_sql_job(Ledger *ledger, const pg_uuid_t *id, Job *job)
{
	JobType    *type;

	if (queue_lock_by_id(&ledger->queue, id, job) != LOCK_OK)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("job %s is not waiting",
						DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(id))))));
	type = job_type_by_id(JOB_INT(job, Q_type_id));
	if (type == NULL || type->handler == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("job %s is not of a SQL type",
						DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(id)))),
				 errhint("Tools cannot run inside a transaction.")));
	return type;
}

static void
run_as_role(Run *run)
{
	Oid			run_as = job_type_run_as(run->type);
	Oid			saved_user;
	int			saved_context;

	if (!OidIsValid(run_as))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("role \"%s\" of job type \"%s\" does not exist", run->type->run_as, run->type->name)));
	GetUserIdAndSecContext(&saved_user, &saved_context);
	SetUserIdAndSecContext(run_as,
						   saved_context | SECURITY_LOCAL_USERID_CHANGE);
	run->session = inline_session_begin();
	handler_run(run);
	inline_session_end(run->session);
	SetUserIdAndSecContext(saved_user, saved_context);
	if (run->callers_cancel)
		ReThrowError(run->callers_cancel);
}

/* Runs a statement as the owner of jobq's tables, with SPI connected. */
static void
execute_as_owner(const char *sql, Oid argtype, Datum arg)
{
	Oid			saved_user;
	int			saved_context;
	int			nest = NewGUCNestLevel();

	GetUserIdAndSecContext(&saved_user, &saved_context);
	SetUserIdAndSecContext(jobq_owner(), saved_context | SECURITY_LOCAL_USERID_CHANGE);
	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	if (SPI_execute_with_args(sql, 1, &argtype, &arg, NULL, false, 0) != SPI_OK_SELECT)
		elog(ERROR, "jobq: \"%s\" failed", sql);
	AtEOXact_GUC(false, nest);
	SetUserIdAndSecContext(saved_user, saved_context);
}

/*
 * Returns the job as jobq.jobs shows it now; NULL when its type keeps nothing.
 */
static HeapTupleHeader
read_job(pg_uuid_t *id)
{
	HeapTupleHeader row = NULL;

	SPI_connect();
	execute_as_owner("SELECT j.* FROM jobq.jobs j WHERE j.id = $1", UUIDOID, UUIDPGetDatum(id));
	if (SPI_processed > 0)
		row = SPI_returntuple(SPI_tuptable->vals[0], SPI_tuptable->tupdesc);
	SPI_finish();
	return row;
}

/* Locks the job, runs and settles it; closes all that it has opened. */
static void
run_and_settle(pg_uuid_t *id)
{
	Ledger		ledger;
	Job			job;
	Run			run;

	inline_triggers_fire_callers(); /* before the job is locked: they may change it */
	memset(&run, 0, sizeof(run));
	ledger_open(&ledger);
	run.type = lock_sql_job(&ledger, id, &job);
	run.job = &job;
	run.cell = -1;
	run.context = CurrentMemoryContext;
	run_as_role(&run);
	run.outcome.worker = "inline";
	CommandCounterIncrement();
	settle_at_once(&ledger, &job, run.type, &run.outcome);
	ledger_close(&ledger);
	CommandCounterIncrement();
}

/* jobq.run_inline(id) */
Datum
jobq_run_inline(PG_FUNCTION_ARGS)
{
	HeapTupleHeader row;
	char	   *reason;
	int32		home;

	if (PG_ARGISNULL(0))
		argument_is_null("id");
	access_need_free("run_inline");
	if (handler_now() != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("jobq.run_inline cannot be called inside a handler")));
	if (stop_is_on(&reason, AccessShareLock))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("all jobs are stopped: %s", reason ? reason : "no reason given"),
				 errhint("jobq.start_all() lets them run.")));
	if (!home_is_ours(&home))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("this database was restored from a dump, so its jobs don't run"),
				 errhint("SELECT jobq.adopt() makes them its own.")));
	run_and_settle(PG_GETARG_UUID_P(0));
	row = read_job(PG_GETARG_UUID_P(0));
	if (row == NULL)
		PG_RETURN_NULL();
	PG_RETURN_HEAPTUPLEHEADER(row);
}
