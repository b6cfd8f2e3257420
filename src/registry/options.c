/*
 * options.c
 *	  Reading the options of a job type.  Nothing here raises an error.
 */
#include "jobq.h"

#include <math.h>

#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/float.h"
#include "utils/guc.h"
#include "utils/numeric.h"
#include "utils/timestamp.h"

#include "base/interval.h"
#include "registry/options.h"

bool
value_number(const JsonbValue *value, double *result)
{
	if (value->type != jbvNumeric)
		return false;
	*result = DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow,
												 NumericGetDatum(value->val.numeric)));
	return isfinite(*result) && rint(*result) == *result;
}

bool
value_size(const JsonbValue *value, double *result)
{
	char	   *text;
	int			bytes;
	bool		good;

	if (value->type != jbvString)
		return value_number(value, result);
	text = pnstrdup(value->val.string.val, value->val.string.len);
	good = parse_int(text, &bytes, GUC_UNIT_BYTE, NULL);
	pfree(text);
	*result = bytes;
	return good;
}

bool
value_interval(const JsonbValue *value, int64 *result)
{
	char	   *text;
	char		buffer[256];
	char	   *field[MAXDATEFIELDS];
	int			ftype[MAXDATEFIELDS];
	int			nfields;
	int			dtype;
	struct pg_itm_in parts;
	Interval	span;

	if (value->type != jbvString)
		return false;
	text = pnstrdup(value->val.string.val, value->val.string.len);
	if (ParseDateTime(text, buffer, sizeof(buffer), field, ftype, MAXDATEFIELDS, &nfields) != 0 ||
		DecodeInterval(field, ftype, nfields, INTERVAL_FULL_RANGE, &dtype, &parts) != 0 ||
		dtype != DTK_DELTA || itmin2interval(&parts, &span) != 0)
		return false;
	*result = interval_to_us(&span);
	return *result >= 0;
}

static JsonbValue *
look_up(Jsonb *options, const char *key, JsonbValue *value)
{
	if (options == NULL || !JB_ROOT_IS_OBJECT(options))
		return NULL;
	return getKeyJsonValueFromContainer(&options->root, key, strlen(key), value);
}

/* --- reading one --- */

bool
option_bool(Jsonb *options, const char *key, bool otherwise)
{
	JsonbValue	value;

	if (look_up(options, key, &value) == NULL || value.type != jbvBool)
		return otherwise;
	return value.val.boolean;
}

int
option_int(Jsonb *options, const char *key, int otherwise)
{
	JsonbValue	value;
	double		number;

	if (look_up(options, key, &value) == NULL || !value_number(&value, &number) ||
		number < PG_INT32_MIN || number > PG_INT32_MAX)
		return otherwise;
	return (int) number;
}

int
option_size(Jsonb *options, const char *key, int otherwise)
{
	JsonbValue	value;
	double		number;

	if (look_up(options, key, &value) == NULL || !value_size(&value, &number) ||
		number < 0 || number > PG_INT32_MAX)
		return otherwise;
	return (int) number;
}

int64
option_interval(Jsonb *options, const char *key, int64 otherwise)
{
	JsonbValue	value;
	int64		us;

	if (look_up(options, key, &value) == NULL || !value_interval(&value, &us))
		return otherwise;
	return us;
}

void
option_aging(Jsonb *options, int64 *per_us, int *max)
{
	JsonbValue	value;
	Jsonb	   *aging;

	*per_us = *max = 0;
	if (look_up(options, "aging", &value) == NULL || value.type != jbvBinary)
		return;
	aging = JsonbValueToJsonb(&value);
	*per_us = Max(option_interval(aging, "per", AGING_PER_US), 1);
	*max = option_int(aging, "max", AGING_MAX);
}

void
option_breaker(Jsonb *options, int *failures, int64 *pause_us)
{
	JsonbValue	value;
	Jsonb	   *breaker;

	*failures = 0;
	*pause_us = 0;
	if (look_up(options, "breaker", &value) == NULL || value.type != jbvBinary)
		return;
	breaker = JsonbValueToJsonb(&value);
	*failures = Max(option_int(breaker, "failures", BREAKER_FAILURES), 1);
	*pause_us = Min(Max(option_interval(breaker, "pause", BREAKER_PAUSE_US), 1), BREAKER_MAX_PAUSE_US);
}

void
option_min_batch(Jsonb *options, int *jobs, int64 *wait_us)
{
	JsonbValue	value;
	Jsonb	   *batch;

	*jobs = 0;
	*wait_us = 0;
	if (look_up(options, "min_batch", &value) == NULL || value.type != jbvBinary)
		return;
	batch = JsonbValueToJsonb(&value);
	*jobs = Min(Max(option_int(batch, "jobs", MIN_BATCH_JOBS), 1), MIN_BATCH_MAX_JOBS);
	*wait_us = Min(Max(option_interval(batch, "wait", MIN_BATCH_WAIT_US), 1), MIN_BATCH_MAX_WAIT_US);
}

int
option_texts(Jsonb *options, const char *key, char **texts, int max)
{
	JsonbValue	value;
	JsonbIterator *it;
	JsonbIteratorToken token;
	JsonbValue	part;
	int			n = 0;

	if (look_up(options, key, &value) == NULL || value.type != jbvBinary ||
		!JsonContainerIsArray(value.val.binary.data))
		return 0;
	it = JsonbIteratorInit(value.val.binary.data);
	while (n < max && (token = JsonbIteratorNext(&it, &part, true)) != WJB_DONE)
	{
		if (token == WJB_ELEM && part.type == jbvString)
			texts[n++] = pnstrdup(part.val.string.val, part.val.string.len);
	}
	return n;
}

bool
option_is(Jsonb *options, const char *key, const char *word)
{
	JsonbValue	value;

	return look_up(options, key, &value) != NULL && value.type == jbvString &&
		value.val.string.len == (int) strlen(word) && memcmp(value.val.string.val, word, strlen(word)) == 0;
}

char *
option_text(Jsonb *options, const char *key)
{
	JsonbValue	value;

	if (look_up(options, key, &value) == NULL || value.type != jbvString)
		return NULL;
	return pnstrdup(value.val.string.val, value.val.string.len);
}

OutputKind
option_output(Jsonb *options)
{
	if (option_is(options, "output", "text"))
		return OUTPUT_TEXT;
	if (option_is(options, "output", "none"))
		return OUTPUT_NONE;
	return OUTPUT_JSON;
}

EventsLevel
option_events(Jsonb *options)
{
	if (option_is(options, "events", "all"))
		return EVENTS_ALL;
	if (option_is(options, "events", "none"))
		return EVENTS_NONE;
	return EVENTS_FAILURES;
}
