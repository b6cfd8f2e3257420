/*
 * record_artifact.c
 *	  jobq.record_artifact(): a row about an object that a running attempt has
 *	  made.
 *
 * The caller is a SQL handler, or names the attempt by id and lease token.
 * The row and its event belong to the caller's transaction: in a handler they
 * go with the attempt's other writes.
 */
#include "jobq.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/errors.h"
#include "base/relations.h"
#include "pull/pull_job.h"
#include "settle/artifacts.h"
#include "sql_worker/handler.h"
#include "tables/queue_find.h"

#define ARG_ID		7
#define ARG_TOKEN	8

PG_FUNCTION_INFO_V1(jobq_record_artifact);

static char *
text_argument(FunctionCallInfo fcinfo, int i)
{
	return PG_ARGISNULL(i) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(i));
}

static void
read_artifact(FunctionCallInfo fcinfo, Artifact *artifact)
{
	if (PG_ARGISNULL(0))
		argument_is_null("key");
	if (PG_ARGISNULL(1))
		argument_is_null("kind");
	artifact->ts = GetCurrentTimestamp();
	artifact->key = text_argument(fcinfo, 0);
	artifact->kind = text_argument(fcinfo, 1);
	artifact->bucket = text_argument(fcinfo, 2);
	artifact->has_size = !PG_ARGISNULL(3);
	artifact->size_bytes = artifact->has_size ? PG_GETARG_INT64(3) : 0;
	artifact->content_type = text_argument(fcinfo, 4);
	artifact->checksum = text_argument(fcinfo, 5);
	artifact->data = PG_ARGISNULL(6) ? NULL : PG_GETARG_JSONB_P(6);
	artifact_check(artifact);
}

/* Finds the running attempt by its token, or raises 55000. */
static void
find_claimed(PullCall *call, pg_uuid_t *id, pg_uuid_t *token, Job *job)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	bool		held = queue_find_by_id(&call->ledger.queue, id, snapshot, job) && pull_holds(call, job, token);

	UnregisterSnapshot(snapshot);
	if (!held)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("argument \"lease_token\" is not that of a running attempt of job %s",
						DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(id)))),
				 errhint("The lease has run out, or the job has ended.")));
}

static int64
record_for_lease(pg_uuid_t *id, pg_uuid_t *token, const Artifact *artifact)
{
	ArtifactJob of = {0};
	PullCall	call;
	Job			job;
	int64		result;

	pull_begin(&call, "jobq.record_artifact()");
	find_claimed(&call, id, token, &job);
	of.values = job.values;
	of.nulls = job.nulls;
	of.type = job_type_by_id(JOB_INT(&job, Q_type_id));
	of.attempt = JOB_INT(&job, Q_attempts);
	of.source = JOB_NULL(&job, Q_worker) ? "client" :
		psprintf("worker:%s", TextDatumGetCString(JOB_ATT(&job, Q_worker)));
	artifact_job_timeout(&of);
	result = artifact_add(&call.ledger, &of, artifact);
	pull_end(&call);
	return result;
}

/* Writes the row of the handler's job, as the owner of the tables. */
static int64
record_for_handler(Run *run, const Artifact *artifact)
{
	ArtifactJob of = {.values = run->job->values, .nulls = run->job->nulls, .type = run->type,
	.attempt = JOB_INT(run->job, Q_attempts) + 1, .source = "sql"};
	PullCall	call;
	int64		result;

	artifact_job_timeout(&of);
	pull_begin(&call, "jobq.record_artifact()");
	result = artifact_add(&call.ledger, &of, artifact);
	pull_end(&call);
	return result;
}

/*
 * jobq.record_artifact(key, kind, bucket, size_bytes, content_type, checksum,
 * data, id, lease_token)
 */
Datum
jobq_record_artifact(PG_FUNCTION_ARGS)
{
	Artifact	artifact;
	Run		   *run;

	if (PG_ARGISNULL(ARG_ID) != PG_ARGISNULL(ARG_TOKEN))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("argument \"%s\" must not be NULL", PG_ARGISNULL(ARG_ID) ? "id" : "lease_token"),
				 errhint("id and lease_token are given together.")));
	read_artifact(fcinfo, &artifact);
	if (!PG_ARGISNULL(ARG_ID))
		PG_RETURN_INT64(record_for_lease(PG_GETARG_UUID_P(ARG_ID), PG_GETARG_UUID_P(ARG_TOKEN), &artifact));
	run = handler_now();
	if (run == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("jobq.record_artifact can only be called inside a SQL handler"),
				 errhint("Elsewhere the arguments id and lease_token name the attempt.")));
	PG_RETURN_INT64(record_for_handler(run, &artifact));
}
