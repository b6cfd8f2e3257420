/*
 * metrics_text.c
 *	  Writes families of metrics in the formats of Prometheus and OpenMetrics.
 *
 * The formats differ in the name of a counter's family, which ends in "_total"
 * for Prometheus only, and in bounds of buckets: OpenMetrics writes 1 as 1.0.
 */
#include "jobq.h"

#include <math.h>

#include "utils/builtins.h"

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
	char		digits[24];

	if (value == rint(value) && fabs(value) < 1e15)
	{
		appendStringInfoChar(&m->text, ' ');
		appendBinaryStringInfo(&m->text, digits, pg_lltoa((int64) value, digits));
		appendStringInfoChar(&m->text, '\n');
		return;
	}
	appendStringInfo(&m->text, " %.6f\n", value);
}

/* Adds name="value", with the escapes of both formats. */
static void
add_label(Metrics *m, const char *name, const char *value, bool first)
{
	appendStringInfoChar(&m->text, first ? '{' : ',');
	appendStringInfoString(&m->text, name);
	appendStringInfoString(&m->text, "=\"");
	for (;;)
	{
		int			plain = (int) strcspn(value, "\n\\\"");

		appendBinaryStringInfo(&m->text, value, plain);
		value += plain;
		if (*value == '\0')
			break;
		appendStringInfoChar(&m->text, '\\');
		appendStringInfoChar(&m->text, *value == '\n' ? 'n' : *value);
		value++;
	}
	appendStringInfoChar(&m->text, '"');
}

static void
add_name(Metrics *m, const char *part)
{
	appendStringInfoString(&m->text, jobq_metrics_prefix);
	appendStringInfoString(&m->text, m->family);
	appendStringInfoString(&m->text, part);
}

void
metrics_sample(Metrics *m, double value, ...)
{
	const char *name;
	bool		first = true;
	va_list		labels;

	add_name(m, m->counter ? "_total" : "");
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
	add_name(m, part);
	add_label(m, "type", type, true);
	if (bound != NULL)
		add_label(m, "le", bound, false);
	appendStringInfoChar(&m->text, '}');
	add_value(m, value);
}

char *
metrics_bound(const Metrics *m, double bound)
{
	return psprintf(m->openmetrics && bound == rint(bound) ? "%.1f" : "%g", bound);
}

void
metrics_histogram(Metrics *m, const char *type, const int64 *n, char *const *bounds, int nbounds, double sum)
{
	int64		total = 0;

	for (int i = 0; i <= nbounds; i++)
	{
		total += n[i];
		add_part(m, "_bucket", type, i < nbounds ? bounds[i] : "+Inf", (double) total);
	}
	add_part(m, "_sum", type, NULL, sum);
	add_part(m, "_count", type, NULL, (double) total);
}
