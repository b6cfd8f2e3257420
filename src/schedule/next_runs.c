/*
 * next_runs.c
 *	  jobq.next_runs(): the ticks of a cron expression.
 */
#include "jobq.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "base/errors.h"
#include "schedule/cron_arguments.h"

#define MAX_RUNS		10000

PG_FUNCTION_INFO_V1(jobq_next_runs);

static int64
since_argument(TimestampTz since)
{
	if (TIMESTAMP_NOT_FINITE(since))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"since\": \"%s\" is no point in time",
						TIMESTAMP_IS_NOBEGIN(since) ? "-infinity" : "infinity")));
	return tick_seconds(since);
}

static int
n_argument(int n)
{
	if (n < 1)
		argument_out_of_range("n", n, 1, MAX_RUNS);
	if (n > MAX_RUNS)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("argument \"n\": %d is more than %d", n, MAX_RUNS)));
	return n;
}

/* next_runs(cron, timezone, n, since) */
Datum
jobq_next_runs(PG_FUNCTION_ARGS)
{
	static const char *const names[] = {"cron", "timezone", "n", "since"};
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	const CronZone *zone;
	char	   *expression;
	Cron	   *cron;
	int			n;
	int64		second;

	for (int i = 0; i < (int) lengthof(names); i++)
	{
		if (PG_ARGISNULL(i))
			argument_is_null(names[i]);
	}
	expression = text_to_cstring(PG_GETARG_TEXT_PP(0));
	cron = cron_argument(expression);
	zone = zone_argument(text_to_cstring(PG_GETARG_TEXT_PP(1)));
	n = n_argument(PG_GETARG_INT32(2));
	second = since_argument(PG_GETARG_TIMESTAMPTZ(3));
	if (cron_is_after(cron))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"cron\": \"%s\" has no ticks before its jobs end", argument_shown(expression))));

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	for (int i = 0; i < n; i++)
	{
		TimestampTz tick;
		Datum		value;
		bool		isnull = false;

		CHECK_FOR_INTERRUPTS();
		second = cron_next(cron, zone, second);
		tick = tick_time(second);
		if (TIMESTAMP_NOT_FINITE(tick))
		{
			if (i > 0)
				break;
			cron_without_tick(expression);
		}
		value = TimestampTzGetDatum(tick);
		tuplestore_putvalues(result->setResult, result->setDesc, &value, &isnull);
	}
	return (Datum) 0;
}
