/*
 * next_runs.c
 *	  jobq.next_runs(): the ticks of a cron expression; the errors of expressions
 *	  and time zones.
 */
#include "jobq.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "base/errors.h"
#include "schedule/cron.h"

#define MAX_RUNS		10000
/* seconds from 1970, where cron.c counts from, to 2000 */
#define EPOCH_SECS		((POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * CRON_DAY)

PG_FUNCTION_INFO_V1(jobq_next_runs);

/* Returns the parsed expression. */
static Cron *
cron_argument(const char *text)
{
	Cron	   *cron = palloc(sizeof(Cron));
	CronError	error;

	if (strlen(text) > CRON_MAX_BYTES)
		argument_too_long("cron", strlen(text), CRON_MAX_BYTES);
	if (cron_parse(text, cron, &error))
		return cron;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("argument \"cron\": %s \"%s\" %s", error.field,
					argument_shown(pnstrdup(error.value, error.len)), error.problem),
			 error.hint == NULL ? 0 : errhint("%s", error.hint)));
}

static const CronZone *
zone_argument(const char *name)
{
	const CronZone *zone = cron_zone_find(name);

	if (zone == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"timezone\": \"%s\" is not the name of a time zone", argument_shown(name)),
				 errhint("pg_timezone_names lists the names, such as \"Europe/Berlin\".")));
	return zone;
}

/* Returns a time in whole seconds from 1970, rounded down. */
static int64
since_argument(TimestampTz since)
{
	int64		second = since / USECS_PER_SEC - (since % USECS_PER_SEC < 0);

	if (TIMESTAMP_NOT_FINITE(since))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"since\": \"%s\" is no point in time",
						TIMESTAMP_IS_NOBEGIN(since) ? "-infinity" : "infinity")));
	return second + EPOCH_SECS;
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
	if (cron->rules[0].kind == CRON_AFTER)
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
		tick = second == CRON_NEVER ? DT_NOEND : (second - EPOCH_SECS) * USECS_PER_SEC;
		if (!IS_VALID_TIMESTAMP(tick))
		{
			if (i > 0)
				break;
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("argument \"cron\": \"%s\" has no tick within 100 years", argument_shown(expression))));
		}
		value = TimestampTzGetDatum(tick);
		tuplestore_putvalues(result->setResult, result->setDesc, &value, &isnull);
	}
	return (Datum) 0;
}
