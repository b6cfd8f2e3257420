/*
 * run_inline.c
 *	  jobq.run_inline: a waiting SQL job, run in the caller's transaction as a worker would run it.
 *
 * For tests: pgTAP never commits, so no worker would ever see the job.  The identity is taken for the
 * call only (SECURITY_LOCAL_USERID_CHANGE: the handler cannot change it), the outcome is settled in the
 * same transaction, and history's partition is made on the spot when there is none.
 */
#include "jobq.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "find.h"
#include "handler.h"
#include "job_types.h"
#include "settle.h"

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
	Oid			saved_user;
	int			saved_context;

	GetUserIdAndSecContext(&saved_user, &saved_context);
	SetUserIdAndSecContext(get_role_oid(run->type->run_as, false),
						   saved_context | SECURITY_LOCAL_USERID_CHANGE);
	handler_run(run);
	SetUserIdAndSecContext(saved_user, saved_context);
}

/* We are the owner of jobq's tables here: the gateway saw to it. */
static void
make_partitions(TimestampTz need)
{
	Oid			argtypes[1] = {TIMESTAMPTZOID};
	Datum		values[1] = {TimestampTzGetDatum(need)};

	SPI_connect();
	SPI_execute_with_args("SELECT jobq._ensure_history_partition($1),"
						  " jobq._ensure_events_partition(pg_catalog.clock_timestamp())",
						  1, argtypes, values, NULL, false, 0);
	SPI_finish();
}

static bool
try_settle(Ledger *ledger, Run *run, TimestampTz *need)
{
	if (!handler_write_log(ledger, run))
	{
		*need = GetCurrentTimestamp();
		return false;
	}
	run->log = NIL;
	(void) settle(ledger, run->job, run->type, &run->outcome, need);
	return *need == 0;
}

/* jobq._run_inline_now(caller, id) */
Datum
jobq_run_inline(PG_FUNCTION_ARGS)
{
	pg_uuid_t  *id = PG_GETARG_UUID_P(1);
	Ledger		ledger;
	Job			job;
	Run			run;
	TimestampTz need = 0;

	memset(&run, 0, sizeof(run));
	ledger_open(&ledger);
	run.type = lock_sql_job(&ledger, id, &job);
	run.job = &job;
	run.cell = -1;
	run.context = CurrentMemoryContext;
	run_as_role(&run);
	run.outcome.worker = "inline";
	CommandCounterIncrement();
	if (!try_settle(&ledger, &run, &need))
	{
		make_partitions(need);
		CommandCounterIncrement();
		if (!try_settle(&ledger, &run, &need))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("jobq has no partition for %s", timestamptz_to_str(need))));
	}
	ledger_close(&ledger);
	PG_RETURN_VOID();
}
