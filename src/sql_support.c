/*
 * sql_support.c
 *	  What the functions in PL/pgSQL (src/sql) have from the enqueue side: a payload that reaches a job
 *	  by jobq.rerun_job or jobq.alter_job is checked as enqueue checks it, and new ids are of one kind.
 */
#include "jobq.h"

#include "command.h"
#include "job_types.h"
#include "json_size.h"
#include "queue.h"

PG_FUNCTION_INFO_V1(jobq_check_payload);
PG_FUNCTION_INFO_V1(jobq_new_id);

/* jobq._check_payload(type_id, payload), STRICT */
Datum
jobq_check_payload(PG_FUNCTION_ARGS)
{
	JobType    *type = job_type_by_id(PG_GETARG_INT32(0));
	Jsonb	   *payload = PG_GETARG_JSONB_P(1);

	check_json_size("payload", payload, (int64) jobq_max_payload);
	if (type != NULL && type->command != NULL)
		command_check_payload(type, payload);
	PG_RETURN_VOID();
}

/* jobq._new_id() */
Datum
jobq_new_id(PG_FUNCTION_ARGS)
{
	pg_uuid_t  *id = palloc(sizeof(pg_uuid_t));

	make_job_id(id);
	PG_RETURN_UUID_P(id);
}
