/*
 * interval.c
 *	  Intervals of SQL as microseconds.
 */
#include "jobq.h"

#include <math.h>

#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

#include "base/interval.h"

int64
interval_to_us(const Interval *span)
{
	double		days = (span->month / MONTHS_PER_YEAR) * DAYS_PER_YEAR +
		(double) (span->month % MONTHS_PER_YEAR) * DAYS_PER_MONTH + span->day;
	double		us = days * USECS_PER_DAY + span->time;

	/*
	 * below 2^53 the double is exact enough for whole microseconds; far beyond
	 * it only has to be far
	 */
	if (us >= (double) PG_INT64_MAX / 2)
		return PG_INT64_MAX / 2;
	if (us <= (double) PG_INT64_MIN / 2)
		return PG_INT64_MIN / 2;
	return (int64) rint(days * USECS_PER_DAY) + span->time;
}

char *
interval_text(const Interval *span)
{
	return DatumGetCString(DirectFunctionCall1(interval_out, IntervalPGetDatum(span)));
}

char *
span_text(int64 us)
{
	Interval	span = {.time = us};

	return interval_text(&span);
}

char *
days_text(int64 us)
{
	Interval	span = {.time = us};

	return interval_text(DatumGetIntervalP(DirectFunctionCall1(interval_justify_hours, IntervalPGetDatum(&span))));
}

Interval *
interval_from_text(const char *text)
{
	return DatumGetIntervalP(DirectFunctionCall3(interval_in, CStringGetDatum(text), ObjectIdGetDatum(InvalidOid),
												 Int32GetDatum(-1)));
}
