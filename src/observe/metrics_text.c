/*
 * metrics_text.c
 *	  Writes families of metrics in the formats of Prometheus and OpenMetrics.
 *
 * The formats differ in the name of a counter's family, which ends in "_total"
 * for Prometheus only, and in bounds of buckets: OpenMetrics writes 1 as 1.0.
 */
#include "jobq.h"

#include <math.h>

#include "observe/metrics_text.h"

void
metrics_family(Metrics *m, const char *name, FamilyKind kind, const char *help)
{
	static const char *const kinds[] = {"counter", "gauge", "histogram"};
	const char *suffix;

	m->family = name;
	m->counter = kind == FAMILY_COUNTER;
	suffix = m->counter && !m->openmetrics ? "_total" : "";
	appendStringInfo(&m->text, "# HELP %s%s%s %s\n# TYPE %s%s%s %s\n", jobq_metrics_prefix, name, suffix, help,
					 jobq_metrics_prefix, name, suffix, kinds[kind]);
}

static void
add_value(Metrics *m, double value)
{
	if (value == rint(value) && fabs(value) < 1e15)
	{
		appendStringInfo(&m->text, " " INT64_FORMAT "\n", (int64) value);
		return;
	}
	appendStringInfo(&m->text, " %.6f\n", value);
}

/* Adds name="value", with the escapes of both formats. */
static void
add_label(Metrics *m, const char *name, const char *value, bool first)
{
	appendStringInfo(&m->text, "%s%s=\"", first ? "{" : ",", name);
	for (; *value; value++)
	{
		if (*value == '\n')
			appendStringInfoString(&m->text, "\\n");
		else
		{
			if (*value == '\\' || *value == '"')
				appendStringInfoChar(&m->text, '\\');
			appendStringInfoChar(&m->text, *value);
		}
	}
	appendStringInfoChar(&m->text, '"');
}

void
metrics_sample(Metrics *m, double value, ...)
{
	const char *name;
	bool		first = true;
	va_list		labels;

	appendStringInfo(&m->text, "%s%s%s", jobq_metrics_prefix, m->family, m->counter ? "_total" : "");
	va_start(labels, value);
	while ((name = va_arg(labels, const char *)) != NULL)
	{
		add_label(m, name, va_arg(labels, const char *), first);
		first = false;
	}
	va_end(labels);
	if (!first)
		appendStringInfoChar(&m->text, '}');
	add_value(m, value);
}

static void
add_part(Metrics *m, const char *part, const char *type, const char *bound, double value)
{
	appendStringInfo(&m->text, "%s%s_%s", jobq_metrics_prefix, m->family, part);
	add_label(m, "type", type, true);
	if (bound != NULL)
		add_label(m, "le", bound, false);
	appendStringInfoChar(&m->text, '}');
	add_value(m, value);
}

void
metrics_histogram(Metrics *m, const char *type, const int64 *n, const double *bounds, int nbounds, double sum)
{
	int64		total = 0;

	for (int i = 0; i <= nbounds; i++)
	{
		char		bound[32] = "+Inf";

		total += n[i];
		if (i < nbounds)
			snprintf(bound, sizeof(bound), m->openmetrics && bounds[i] == rint(bounds[i]) ? "%.1f" : "%g", bounds[i]);
		add_part(m, "bucket", type, bound, (double) total);
	}
	add_part(m, "sum", type, NULL, sum);
	add_part(m, "count", type, NULL, (double) total);
}
