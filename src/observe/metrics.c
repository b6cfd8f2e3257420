/*
 * metrics.c
 *	  jobq.metrics(): counters and gauges as text, for Prometheus and
 *	  OpenMetrics.
 *
 * All values are in shared memory, so that a scrape reads no table.  The two
 * formats differ in the name of a counter's family and in the last line.
 */
#include "jobq.h"

#include "access/xlog.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/errors.h"
#include "security/grants.h"
#include "shared/shmem.h"

PG_FUNCTION_INFO_V1(jobq_metrics);

typedef struct Metrics
{
	StringInfoData text;
	bool		openmetrics;
} Metrics;

static const char *const outcomes[TICK_OUTCOMES] = {"enqueued", "skipped", "refused"};

/* Begins a family; a counter's samples have the name with "_total". */
static void
add_family(Metrics *m, const char *name, bool counter, const char *help)
{
	const char *suffix = counter && !m->openmetrics ? "_total" : "";

	appendStringInfo(&m->text, "# HELP jobq_%s%s %s\n# TYPE jobq_%s%s %s\n", name, suffix, help, name, suffix,
					 counter ? "counter" : "gauge");
}

static void
add_schedules(Metrics *m, JobqDb *db)
{
	TimestampTz due = db == NULL ? 0 : (TimestampTz) pg_atomic_read_u64(&db->schedules.due);

	add_family(m, "schedule_ticks", true, "Ticks of schedules by outcome, since server start.");
	for (int i = 0; i < TICK_OUTCOMES; i++)
		appendStringInfo(&m->text, "jobq_schedule_ticks_total{outcome=\"%s\"} " UINT64_FORMAT "\n", outcomes[i],
						 db == NULL ? 0 : pg_atomic_read_u64(&db->schedules.ticks[i]));
	add_family(m, "schedule_late_seconds", false, "Time since the earliest tick that is due; 0: none is.");
	appendStringInfo(&m->text, "jobq_schedule_late_seconds %.3f\n",
					 due == 0 ? 0 : Max(GetCurrentTimestamp() - due, 0) / 1e6);
}

static bool
is_openmetrics(const char *format)
{
	if (strcmp(format, "openmetrics") == 0)
		return true;
	if (strcmp(format, "prometheus") == 0)
		return false;
	argument_no_choice("format", format, "\"prometheus\", \"openmetrics\"");
}

/* jobq.metrics(format) */
Datum
jobq_metrics(PG_FUNCTION_ARGS)
{
	JobqDb	   *db = RecoveryInProgress() ? NULL : my_db();
	Metrics		m;

	if (PG_ARGISNULL(0))
		argument_is_null("format");
	m.openmetrics = is_openmetrics(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	if (!access_may_everywhere(GetUserId(), ACCESS_READ, NULL))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for jobq.metrics"),
				 errhint("It takes access \"read\" for all tenants and job types: see jobq.grant_access.")));
	initStringInfo(&m.text);
	add_family(&m, "dispatcher_up", false, "1: the dispatcher of this database runs.");
	appendStringInfo(&m.text, "jobq_dispatcher_up %d\n", db != NULL && db->dispatcher.proc != NULL);
	add_schedules(&m, db);
	if (m.openmetrics)
		appendStringInfoString(&m.text, "# EOF\n");
	PG_RETURN_TEXT_P(cstring_to_text_with_len(m.text.data, m.text.len));
}
