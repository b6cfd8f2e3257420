/*
 * alerts.c
 *	  Alerts.
 *
 * The row and the job of jobq.alert_job_type are written in the transaction
 * that causes them; the line in the log and the notification follow its commit
 * (commit_news.c).  The job's payload is the row.  An alert about a job of
 * that very type makes no further job.
 */
#include "jobq.h"

#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

#include "base/json_build.h"
#include "base/texts.h"
#include "settle/alerts.h"
#include "settle/hooks.h"
#include "shared/commit_news.h"
#include "shared/stat_changes.h"
#include "tables/table_shape.h"

/* attribute numbers of jobq.alerts: src/sql/00_schema.sql */
enum
{
	L_ts = 1, L_severity, L_title, L_message, L_job_id, L_job_type, L_tenant, L_attempts, L_error_msg
};
#define L_NATTS L_error_msg

static const ShapeColumn alerts_columns[] = {
	{"ts", TIMESTAMPTZOID, FILLED}, {"severity", TEXTOID, FILLED}, {"title", TEXTOID, FILLED},
	{"message", TEXTOID, FILLED}, {"job_id", UUIDOID, NULLABLE}, {"job_type", TEXTOID, NULLABLE},
	{"tenant", TEXTOID, NULLABLE}, {"attempts", INT4OID, NULLABLE}, {"error_msg", TEXTOID, NULLABLE}
};
const Shape alerts_shape = SHAPE("alerts", alerts_columns);

StaticAssertDecl(lengthof(alerts_columns) == L_NATTS, "alerts' columns");

static const char *
severity(const Alert *alert)
{
	return alert->high ? "high" : "warning";
}

static void
write_row(Ledger *ledger, const Datum *job, const bool *job_nulls, JobType *type, const Alert *alert,
		  TimestampTz now)
{
	Datum		values[L_NATTS] = {0};
	bool		nulls[L_NATTS] = {0};

	values[L_ts - 1] = TimestampTzGetDatum(now);
	values[L_severity - 1] = CStringGetTextDatum(severity(alert));
	values[L_title - 1] = CStringGetTextDatum(alert->title);
	values[L_message - 1] = CStringGetTextDatum(alert->message);
	values[L_job_id - 1] = job[Q_id - 1];
	values[L_job_type - 1] = CStringGetTextDatum(type->name);
	values[L_tenant - 1] = job[Q_tenant - 1];
	nulls[L_tenant - 1] = job_nulls[Q_tenant - 1];
	values[L_attempts - 1] = Int32GetDatum(alert->attempts);
	nulls[L_error_msg - 1] = alert->error == NULL;
	if (alert->error)
		values[L_error_msg - 1] = CStringGetTextDatum(alert->error);
	table_insert_row(&ledger->alerts.table, values, nulls);
}

/* Enqueues a job that has the row as its payload. */
static void
enqueue_job(Ledger *ledger, const Datum *values, const bool *nulls, JobType *type, const Alert *alert,
			TimestampTz now)
{
	Hook		hook = {.name = "alert", .job_type = jobq_alert_job_type, .source = alert->source};
	JsonBuild	b;

	json_begin_object(&b);
	json_add_time(&b, "ts", now);
	json_add_string(&b, "severity", severity(alert));
	json_add_string(&b, "title", alert->title);
	json_add_string(&b, "message", alert->message);
	json_add_string(&b, "job_id", DatumGetCString(DirectFunctionCall1(uuid_out, values[Q_id - 1])));
	json_add_string(&b, "job_type", type->name);
	json_add_text(&b, "tenant", nulls[Q_tenant - 1] ? NULL : TextDatumGetCString(values[Q_tenant - 1]));
	json_add_number(&b, "attempts", alert->attempts);
	json_add_text(&b, "error_msg", alert->error);
	hook.payload = json_end_object(&b);
	hook_enqueue(ledger, values, nulls, type, alert->attempts, &hook);
}

void
alert_raise(Ledger *ledger, const Datum *values, const bool *nulls, JobType *type, const Alert *alert)
{
	TimestampTz now = GetCurrentTimestamp();
	Jsonb	   *fields = log_fields(type, alert->payload);

	ledger_open_partition(ledger, &ledger->alerts, "alerts", now);
	write_row(ledger, values, nulls, type, alert, now);
	stat_alert(type->id, alert->high);
	if (alert->in_log != NULL)
		news_alert(alert->high ? WARNING : LOG, log_text(jobq_log_error_text ? alert->message : alert->in_log),
				   fields ? log_text(JsonbToCString(NULL, &fields->root, VARSIZE(fields))) : NULL);
	else
		news_alert(0, NULL, NULL);
	if (jobq_alert_job_type[0] != '\0' && strcmp(jobq_alert_job_type, type->name) != 0)
		enqueue_job(ledger, values, nulls, type, alert, now);
}

void
alert_dead_letter(Ledger *ledger, Job *job, JobType *type, Outcome *o, int attempt)
{
	Alert		alert = {.high = type->critical, .attempts = attempt, .error = o->message, .source = o->source};

	alert.title = psprintf("job of type \"%s\" failed for good", type->name);
	alert.in_log = psprintf("job %s of type \"%s\" failed for good after %d attempt(s)",
							DatumGetCString(DirectFunctionCall1(uuid_out, JOB_ATT(job, Q_id))), type->name, attempt);
	alert.message = psprintf("%s: %s", alert.in_log, o->message ? o->message : "");
	alert.payload = DatumGetJsonbP(JOB_ATT(job, Q_payload));
	alert_raise(ledger, job->values, job->nulls, type, &alert);
}

Jsonb *
log_fields(JobType *type, Jsonb *payload)
{
	JsonbValue	names;
	JsonbValue	value;
	JsonbValue *name;
	JsonBuild	b;
	bool		any = false;

	if (payload == NULL || !JB_ROOT_IS_OBJECT(payload) ||
		getKeyJsonValueFromContainer(&type->options->root, "log_fields", 10, &names) == NULL ||
		names.type != jbvBinary || !JsonContainerIsArray(names.val.binary.data))
		return NULL;
	json_begin_object(&b);
	for (uint32 i = 0; (name = getIthJsonbValueFromContainer(names.val.binary.data, i)) != NULL; i++)
	{
		if (name->type != jbvString ||
			getKeyJsonValueFromContainer(&payload->root, name->val.string.val, name->val.string.len, &value) == NULL)
			continue;
		json_add_jsonb(&b, pnstrdup(name->val.string.val, name->val.string.len), JsonbValueToJsonb(&value));
		any = true;
	}
	return any ? json_end_object(&b) : NULL;
}
