/*
 * breaker_health.c
 *	  The open breakers of a database, for jobq.health().
 */
#include "jobq.h"

#include "catalog/pg_type.h"
#include "datatype/timestamp.h"
#include "lib/stringinfo.h"
#include "utils/datetime.h"
#include "utils/json.h"
#include "utils/timestamp.h"

#include "observe/health_facts.h"
#include "registry/job_types.h"
#include "shared/breaker.h"

/* Adds a breaker to the array, and to the sentence that names all. */
static void
add_breaker(const Breaker *b, const JobType *type, StringInfo array, StringInfo message)
{
	MonoTime	left = b->opened_at + type->breaker_pause_us - mono_now();
	char		until[MAXDATELEN + 1];

	(void) JsonEncodeDateTime(until, TimestampTzGetDatum(GetCurrentTimestamp() + Max(left, 0)), TIMESTAMPTZOID, NULL);
	appendStringInfo(array, "%s{\"job_type\": ", array->len > 1 ? ", " : "");
	escape_json(array, type->name);
	appendStringInfo(array, ", \"failures\": %d, \"probing\": %s, \"until\": \"%s\"}", b->failures,
					 b->state == BREAKER_PROBING ? "true" : "false", until);
	appendStringInfo(message, "%sthe breaker of job type \"%s\" is open", message->len > 0 ? "; " : "", type->name);
	if (left > 0 && b->state == BREAKER_OPEN)
		appendStringInfo(message, " until %s", until);
	else
		appendStringInfoString(message, ", one job may start");
}

char *
breakers_health(JobqDb *db, char **message)
{
	Breaker    *open;
	int			n;
	StringInfoData array;
	StringInfoData text;

	if (db == NULL || db->breakers.ntypes == 0)
		return NULL;
	open = palloc(sizeof(Breaker) * JOBQ_BREAKERS);
	n = breakers_open(db, open);
	initStringInfo(&array);
	initStringInfo(&text);
	appendStringInfoChar(&array, '[');
	for (int i = 0; i < n; i++)
	{
		JobType    *type = job_type_by_id(open[i].type_id);

		if (type != NULL && !type->dropped && type->breaker_failures > 0)
			add_breaker(&open[i], type, &array, &text);
	}
	appendStringInfoChar(&array, ']');
	*message = text.data;
	return text.len > 0 ? array.data : NULL;
}
