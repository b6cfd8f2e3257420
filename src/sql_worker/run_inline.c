/*
 * run_inline.c
 *	  jobq.run_inline: a waiting SQL job, or a run whose tasks are such jobs, in the caller's
 *	  transaction as a worker would run it.
 *
 * For tests: pgTAP never commits, so no worker would ever see the job.  The
 * identity is taken for the call only (SECURITY_LOCAL_USERID_CHANGE: the
 * handler cannot change it), the outcome is settled in the same transaction.
 *
 * Where the role is another than the caller's, what would stay in the session
 * and be executed there later, with the caller's rights, is refused by the
 * server (SECURITY_RESTRICTED_OPERATION): held cursors, deferred triggers,
 * temporary objects, prepared statements, LISTEN.  Settings are undone by
 * handler.c, other cursors are dropped.  Advisory locks stay.
 */
#include "jobq.h"

#include "catalog/pg_authid.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/varlena.h"

#include "base/act_as.h"
#include "base/errors.h"
#include "base/relations.h"
#include "lifecycle/release.h"
#include "limits/kill_switch.h"
#include "registry/job_types.h"
#include "security/access.h"
#include "settle/settle.h"
#include "shared/xact_changes.h"
#include "sql_worker/handler.h"
#include "sql_worker/inline_workflow.h"
#include "sql_worker/run_inline.h"
#include "tables/home.h"
#include "tables/queue_find.h"

PG_FUNCTION_INFO_V1(jobq_run_inline);

/* Locks the job, which is a SQL job or a run; as_task: of a run that runs here. */
static JobType *
lock_waiting_job(Ledger *ledger, const pg_uuid_t *id, Job *job, bool as_task)
{
	JobType    *type;

	if (queue_lock_by_id(&ledger->queue, id, job) != LOCK_OK)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("job %s is not waiting",
						DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(id))))));
	if (job->status == JOB_BLOCKED)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("job %s waits for other jobs", DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(id))))));
	/* an executor may meet the lock, and forget the job: published also by a rollback */
	note_position(JOB_INT(job, Q_type_id), DatumGetInt16(JOB_ATT(job, Q_priority)),
				  DatumGetInt16(JOB_ATT(job, Q_sublane)), DatumGetTimestampTz(JOB_ATT(job, Q_position)));
	type = job_type_by_id(JOB_INT(job, Q_type_id));
	if (type == NULL || (type->handler == NULL && !type->workflow))
		ereport(ERROR,
				(errcode(as_task ? ERRCODE_FEATURE_NOT_SUPPORTED : ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("job %s is not of a SQL type",
						DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(id)))),
				 errhint("Tools cannot run inside a transaction.")));
	return type;
}

/* ---------- the session ---------- */

/*
 * Lists the cursors of the session: only the server's own function can, called
 * as a role that may call it.
 */
static List *
cursor_names(MemoryContext context)
{
	List	   *names = NIL;
	Caller		caller = act_as(BOOTSTRAP_SUPERUSERID, 0);

	SPI_connect();
	if (SPI_execute("SELECT name FROM pg_catalog.pg_cursor()", true, 0) != SPI_OK_SELECT)
		elog(ERROR, "jobq: could not list cursors");
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		MemoryContext old = MemoryContextSwitchTo(context);

		names = lappend(names, SPI_getvalue(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1));
		MemoryContextSwitchTo(old);
	}
	SPI_finish();
	act_as_caller(caller);
	return names;
}

void
inline_drop_cursors(void)
{
	SubTransactionId mine = GetCurrentSubTransactionId();
	ListCell   *lc;

	foreach(lc, cursor_names(CurrentMemoryContext))
	{
		Portal		portal = GetPortalByName(lfirst(lc));

		if (PortalIsValid(portal) && portal->createSubid >= mine && portal->status != PORTAL_ACTIVE)
			PortalDrop(portal, false);
	}
}

/*
 * Returns the server's own value, not the one this session started from by its
 * role or its client.
 */
static const char *
server_path(void)
{
	if (find_setting("search_path")->reset_source < PGC_S_GLOBAL)
		return GetConfigOptionResetString("search_path");
	return "\"$user\", public";
}

/*
 * Returns what ALTER ROLE and ALTER DATABASE have stored for a session of the
 * role here, or the server's value.
 */
static const char *
stored_path(Oid role)
{
	static const char sql[] =
		"SELECT pg_catalog.substr(c, 13) FROM pg_catalog.pg_db_role_setting s, pg_catalog.unnest(s.setconfig) c"
		" WHERE s.setrole OPERATOR(pg_catalog.=) ANY (ARRAY[0, $1]) AND s.setdatabase OPERATOR(pg_catalog.=) ANY (ARRAY[0, $2])"
		"   AND pg_catalog.starts_with(c, 'search_path=')"
		" ORDER BY s.setrole OPERATOR(pg_catalog.=) 0, s.setdatabase OPERATOR(pg_catalog.=) 0 LIMIT 1";
	MemoryContext context = CurrentMemoryContext;
	Oid			types[] = {OIDOID, OIDOID};
	Datum		values[] = {ObjectIdGetDatum(role), ObjectIdGetDatum(MyDatabaseId)};
	const char *path;
	Caller		caller = act_as(BOOTSTRAP_SUPERUSERID, 0);

	SPI_connect();
	if (SPI_execute_with_args(sql, 2, types, values, NULL, true, 1) != SPI_OK_SELECT)
		elog(ERROR, "jobq: \"%s\" failed", sql);
	path = SPI_processed == 0 ? server_path() :
		MemoryContextStrdup(context, SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1));
	SPI_finish();
	act_as_caller(caller);
	return path;
}

static bool
names_pg_temp(const char *path)
{
	List	   *names;
	ListCell   *lc;

	if (!SplitIdentifierString(pstrdup(path), ',', &names))
		return false;
	foreach(lc, names)
	{
		if (strcmp(lfirst(lc), "pg_temp") == 0)
			return true;
	}
	return false;
}

/*
 * Returns the search_path of a new session of that role in this database.
 * pg_temp is last where the path does not name it: a temporary table of the
 * caller hides none of the role's.
 */
static const char *
path_of_role(Oid role)
{
	const char *path = stored_path(role);

	if (path[0] == '\0')
		return "pg_temp";
	return names_pg_temp(path) ? path : psprintf("%s, pg_temp", path);
}

/* ---------- one job ---------- */

static void
run_as_role(Run *run)
{
	Oid			run_as = job_type_run_as(run->type);
	Caller		caller;

	if (!OidIsValid(run_as))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("role \"%s\" of job type \"%s\" does not exist", run->type->run_as, run->type->name)));
	run->search_path = path_of_role(run_as);
	/* after SET ROLE the session's end is its own user's: that would execute what is deferred */
	run->restricted = run_as != GetUserId() || run_as != GetSessionUserId();
	caller = act_as(run_as, run->restricted ? SECURITY_RESTRICTED_OPERATION : 0);
	handler_run(run);
	act_as_caller(caller);
	if (run->callers_cancel)
		ReThrowError(run->callers_cancel);
}

/*
 * Returns the job as jobq.jobs shows it now; NULL when its type keeps nothing.
 */
static HeapTupleHeader
read_job(pg_uuid_t *id)
{
	static const char sql[] = "SELECT j.* FROM jobq.jobs j WHERE j.id = $1";
	HeapTupleHeader row = NULL;
	Oid			types[] = {UUIDOID};
	Datum		values[] = {UUIDPGetDatum(id)};
	OwnerCall	call;

	SPI_connect();
	call = owner_call_begin();
	if (SPI_execute_with_args(sql, 1, types, values, NULL, false, 0) != SPI_OK_SELECT)
		elog(ERROR, "jobq: \"%s\" failed", sql);
	owner_call_end(call);
	if (SPI_processed > 0)
		row = SPI_returntuple(SPI_tuptable->vals[0], SPI_tuptable->tupdesc);
	SPI_finish();
	return row;
}

/*
 * Locks the job, runs and settles it; a run is only started: true.  Closes all
 * that it has opened.
 */
static bool
run_one(const pg_uuid_t *id, bool as_task)
{
	Ledger		ledger;
	Job			job;
	Run			run;

	memset(&run, 0, sizeof(run));
	ledger_open(&ledger);
	run.type = lock_waiting_job(&ledger, id, &job, as_task);
	if (run.type->workflow)
	{
		inline_workflow_begin(&ledger, &job);
		return true;
	}
	run.job = &job;
	run.cell = -1;
	run.context = CurrentMemoryContext;
	run_as_role(&run);
	run.outcome.worker = "inline";
	CommandCounterIncrement();
	settle(&ledger, &job, run.type, &run.outcome);
	ledger_close(&ledger);
	CommandCounterIncrement();
	return false;
}

static void
run_task(const pg_uuid_t *id)
{
	(void) run_one(id, true);
}

/* jobq.run_inline(id) */
Datum
jobq_run_inline(PG_FUNCTION_ARGS)
{
	HeapTupleHeader row;
	char	   *reason;
	int32		home;

	release_require();
	if (PG_ARGISNULL(0))
		argument_is_null("id");
	access_need_free("run_inline");
	if (handler_now() != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("jobq.run_inline cannot be called inside a handler")));
	if (kill_switch_is_on(&reason, NULL, AccessShareLock))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("all jobs are stopped: %s", reason ? reason : "no reason given"),
				 errhint("jobq.start_all() lets them run.")));
	if (!home_is_ours(&home))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("this database was restored from a dump, so its jobs don't run"),
				 errhint("SELECT jobq.adopt() makes them its own.")));
	if (run_one(PG_GETARG_UUID_P(0), false))
		inline_workflow_run(PG_GETARG_UUID_P(0), run_task);
	row = read_job(PG_GETARG_UUID_P(0));
	if (row == NULL)
		PG_RETURN_NULL();
	PG_RETURN_HEAPTUPLEHEADER(row);
}
