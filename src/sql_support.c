/*
 * sql_support.c
 *	  What the functions in PL/pgSQL (src/sql) have from the enqueue side: a payload that reaches a job
 *	  by jobq.rerun_job or jobq.alter_job is checked as enqueue checks it, new ids are of one kind, and events
 *	  are written where enqueue's are.
 */
#include "jobq.h"

#include "utils/builtins.h"

#include "base/job_id.h"
#include "base/json_size.h"
#include "registry/command_template.h"
#include "registry/job_types.h"
#include "tables/event_log.h"
#include "tables/queue_table.h"

PG_FUNCTION_INFO_V1(jobq_check_payload);
PG_FUNCTION_INFO_V1(jobq_new_id);
PG_FUNCTION_INFO_V1(jobq_tell);

/* jobq_internal._check_payload(type_id, payload), STRICT */
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

/* jobq_internal._new_id() */
Datum
jobq_new_id(PG_FUNCTION_ARGS)
{
	pg_uuid_t  *id = palloc(sizeof(pg_uuid_t));

	make_job_id(id);
	PG_RETURN_UUID_P(id);
}

/* jobq_internal._tell(job_id, type_id, tenant, attempt, type, message, data): what a client did to a job */
Datum
jobq_tell(PG_FUNCTION_ARGS)
{
	Datum		values[Q_NATTS] = {0};
	bool		nulls[Q_NATTS] = {0};
	Event		event = {.source = "client", .level = "info"};
	JobType    *type;
	EventLog	log;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1) || PG_ARGISNULL(3) || PG_ARGISNULL(4))
		PG_RETURN_VOID();
	event.type = text_to_cstring(PG_GETARG_TEXT_PP(4));
	type = job_type_by_id(PG_GETARG_INT32(1));
	if (!EVENTS_WANTED(type, strcmp(event.type, "enqueued") == 0 ? EVENTS_ALL : EVENTS_FAILURES))
		PG_RETURN_VOID();
	values[Q_id - 1] = PG_GETARG_DATUM(0);
	values[Q_tenant - 1] = PG_GETARG_DATUM(2);
	nulls[Q_tenant - 1] = PG_ARGISNULL(2);
	event.attempt = PG_GETARG_INT32(3);
	event.message = PG_ARGISNULL(5) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(5));
	event.data = PG_ARGISNULL(6) ? NULL : PG_GETARG_JSONB_P(6);
	events_begin(&log);
	event_add_at_once(&log, values, nulls, type->name, &event);
	events_end(&log);
	PG_RETURN_VOID();
}
