/*
 * json_size.c
 *	  Measuring JSON without writing it: the walk ends as soon as the limit is
 *	  passed, so that it costs no more than writing a value that is just small
 *	  enough.
 */
#include "jobq.h"

#include "utils/builtins.h"
#include "utils/numeric.h"

#include "base/json_size.h"

/* Length of a string between its quotes, escaped as jsonb_out does. */
static int64
string_size(const char *string, int len)
{
	int64		size = len + 2;
	int			i;

	for (i = 0; i < len; i++)
	{
		unsigned char c = (unsigned char) string[i];

		if (c == '"' || c == '\\' || c == '\b' || c == '\f' || c == '\n' || c == '\r' || c == '\t')
			size += 1;
		else if (c < ' ')
			size += 5;
	}
	return size;
}

static int64
scalar_size(const JsonbValue *value)
{
	char	   *digits;
	int64		size;

	switch (value->type)
	{
		case jbvString:
			return string_size(value->val.string.val, value->val.string.len);
		case jbvNumeric:
			digits = DatumGetCString(DirectFunctionCall1(numeric_out,
														 NumericGetDatum(value->val.numeric)));
			size = strlen(digits);
			pfree(digits);
			return size;
		case jbvBool:
			return value->val.boolean ? 4 : 5;
		default:
			return 4;			/* null */
	}
}

static bool
container_is_empty(JsonbIteratorToken token, const JsonbValue *value)
{
	return token == WJB_BEGIN_ARRAY ? value->val.array.nElems == 0 : value->val.object.nPairs == 0;
}

typedef enum JsonFit
{
	JSON_FITS,
	JSON_TOO_DEEP,
	JSON_TOO_LARGE
} JsonFit;

static JsonFit
measure(Jsonb *value, int64 limit)
{
	JsonbIterator *it = JsonbIteratorInit(&value->root);
	JsonbIteratorToken token;
	JsonbValue	part;
	int64		size = 0;
	int			depth = 0;

	while ((token = JsonbIteratorNext(&it, &part, false)) != WJB_DONE)
	{
		if (token == WJB_BEGIN_ARRAY || token == WJB_BEGIN_OBJECT)
		{
			if (token == WJB_BEGIN_ARRAY && part.val.array.rawScalar)
				continue;		/* a scalar by itself, without brackets */
			depth++;
			/*
			 * what separates it from the next; full of n parts its brackets
			 * take the place of one comma
			 */
			size += container_is_empty(token, &part) ? 4 : 2;
		}
		else if (token == WJB_END_ARRAY || token == WJB_END_OBJECT)
			depth--;
		else
			size += scalar_size(&part) + 2; /* ": " or ", " */

		if (depth > JOBQ_MAX_JSON_DEPTH)
			return JSON_TOO_DEEP;
		if (size - 2 > limit)
			return JSON_TOO_LARGE;
	}
	return JSON_FITS;
}

bool
json_fits(Jsonb *value, int64 limit)
{
	return measure(value, limit) == JSON_FITS;
}

void
check_json_size(const char *argument, Jsonb *value, int64 limit)
{
	check_json_size_hint(argument, value, limit,
						 "Raise jobq.max_payload, or store large data elsewhere and enqueue where it is.");
}

void
check_json_size_hint(const char *argument, Jsonb *value, int64 limit, const char *hint)
{
	switch (measure(value, limit))
	{
		case JSON_FITS:
			break;
		case JSON_TOO_DEEP:
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("argument \"%s\" is nested more than %d levels deep", argument, JOBQ_MAX_JSON_DEPTH)));
			break;
		case JSON_TOO_LARGE:
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("argument \"%s\" is larger than " INT64_FORMAT " bytes when written out",
							argument, limit),
					 errhint("%s", hint)));
	}
}
