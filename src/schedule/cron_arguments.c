/*
 * cron_arguments.c
 *	  Arguments "cron" and "timezone" of SQL functions: see cron_arguments.h.
 */
#include "jobq.h"

#include "base/errors.h"
#include "schedule/cron_arguments.h"

/* seconds from 1970, where cron.c counts from, to 2000 */
#define EPOCH_SECS		((POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * CRON_DAY)

Cron *
cron_argument(const char *text)
{
	Cron	   *cron;
	CronError	error;

	if (strlen(text) > CRON_MAX_BYTES)
		argument_too_long("cron", strlen(text), CRON_MAX_BYTES);
	cron = palloc(cron_size(text));
	if (cron_parse(text, cron, &error))
		return cron;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("argument \"cron\": %s \"%s\" %s", error.field,
					argument_shown(pnstrdup(error.value, error.len)), error.problem),
			 error.hint == NULL ? 0 : errhint("%s", error.hint)));
}

const CronZone *
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

void
cron_without_tick(const char *text)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("argument \"cron\": \"%s\" has no tick within 100 years", argument_shown(text))));
}

int64
tick_seconds(TimestampTz time)
{
	return time / USECS_PER_SEC - (time % USECS_PER_SEC < 0) + EPOCH_SECS;
}

TimestampTz
tick_time(int64 second)
{
	int64		since_2000 = second - EPOCH_SECS;

	if (since_2000 < MIN_TIMESTAMP / USECS_PER_SEC || since_2000 >= END_TIMESTAMP / USECS_PER_SEC)
		return DT_NOEND;
	return since_2000 * USECS_PER_SEC;
}
