/*
 * running_attempt.c
 *	  The attempt in whose name a function is called: that of the handler which
 *	  calls it, or of the holder of a job's lease.
 *
 * For functions behind the gate (security/owner_call.c), which run as the owner
 * and have the caller's oid.  The row of a claimed job stays locked until the
 * transaction ends, so that the attempt does not end before it.
 */
#include "jobq.h"

#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/uuid.h"

#include "base/errors.h"
#include "pull/pull_job.h"
#include "sql_worker/handler.h"

PG_FUNCTION_INFO_V1(jobq_running_attempt);

static void
lock_claimed(Oid caller, pg_uuid_t *id, pg_uuid_t *token)
{
	PullCall	call = {.caller.role = caller};
	Job			job;
	bool		held;

	ledger_open(&call.ledger);
	held = pull_lock(&call, id, token, &job);
	ledger_close(&call.ledger);
	if (!held)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("argument \"lease_token\" is not that of a running attempt of job %s",
						DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(id)))),
				 errhint("The lease has run out, or the job has ended.")));
}

/* jobq_internal._running_attempt(caller, id, lease_token) */
Datum
jobq_running_attempt(PG_FUNCTION_ARGS)
{
	Run		   *run = handler_now();

	if (PG_ARGISNULL(1) != PG_ARGISNULL(2))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("argument \"%s\" must not be NULL", PG_ARGISNULL(1) ? "id" : "lease_token"),
				 errhint("id and lease_token are given together.")));
	if (!PG_ARGISNULL(1))
	{
		lock_claimed(PG_GETARG_OID(0), PG_GETARG_UUID_P(1), PG_GETARG_UUID_P(2));
		PG_RETURN_DATUM(PG_GETARG_DATUM(1));
	}
	if (run == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("jobq.add_tasks can only be called inside a SQL handler"),
				 errhint("Elsewhere the arguments id and lease_token name the attempt.")));
	PG_RETURN_UUID_P(JOB_ID(run->job));
}
