/*
 * metrics.c
 *	  jobq.metrics(): counters and gauges as text, for Prometheus and
 *	  OpenMetrics.
 *
 * All values are in shared memory, so that a scrape reads no table.  Names of
 * types come from the registry as this session knows it.
 */
#include "jobq.h"

#include "access/xlog.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/errors.h"
#include "observe/metrics_text.h"

PG_FUNCTION_INFO_V1(jobq_metrics);

static const char *const outcomes[TICK_OUTCOMES] = {"enqueued", "skipped", "refused"};

static void
add_schedules(Metrics *m, JobqDb *db)
{
	TimestampTz due = db == NULL ? 0 : (TimestampTz) pg_atomic_read_u64(&db->schedules.due);

	metrics_family(m, "schedule_ticks", FAMILY_COUNTER, "Ticks of schedules by outcome, since server start.");
	for (int i = 0; i < TICK_OUTCOMES; i++)
		metrics_sample(m, db == NULL ? 0 : (double) pg_atomic_read_u64(&db->schedules.ticks[i]), "outcome", outcomes[i], NULL);
	metrics_family(m, "schedule_late_seconds", FAMILY_GAUGE, "Time since the earliest tick that is due; 0: none is.");
	metrics_sample(m, due == 0 ? 0 : Max(GetCurrentTimestamp() - due, 0) / 1e6, NULL);
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
	Metrics		m = {0};

	if (PG_ARGISNULL(0))
		argument_is_null("format");
	m.openmetrics = is_openmetrics(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	type_stats_check_reader("jobq.metrics");
	initStringInfo(&m.text);
	metrics_add_types(&m, db);
	metrics_add_database(&m, db);
	add_schedules(&m, db);
	if (m.openmetrics)
		appendStringInfoString(&m.text, "# EOF\n");
	PG_RETURN_TEXT_P(cstring_to_text_with_len(m.text.data, m.text.len));
}
