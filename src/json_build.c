/*
 * json_build.c
 *	  Small JSON objects.
 */
#include "jobq.h"

#include "utils/builtins.h"
#include "utils/numeric.h"

#include "json_build.h"

static void
push_key(JsonBuild *b, const char *key)
{
	JsonbValue	v;

	v.type = jbvString;
	v.val.string.val = pstrdup(key);
	v.val.string.len = (int) strlen(key);
	pushJsonbValue(&b->state, WJB_KEY, &v);
}

void
json_begin_object(JsonBuild *b)
{
	b->state = NULL;
	pushJsonbValue(&b->state, WJB_BEGIN_OBJECT, NULL);
}

void
json_add_string(JsonBuild *b, const char *key, const char *value)
{
	JsonbValue	v;

	if (value == NULL)
		return;
	push_key(b, key);
	v.type = jbvString;
	v.val.string.val = pstrdup(value);
	v.val.string.len = (int) strlen(value);
	pushJsonbValue(&b->state, WJB_VALUE, &v);
}

void
json_add_number(JsonBuild *b, const char *key, double value)
{
	JsonbValue	v;

	push_key(b, key);
	v.type = jbvNumeric;
	v.val.numeric = DatumGetNumeric(DirectFunctionCall1(float8_numeric, Float8GetDatum(value)));
	pushJsonbValue(&b->state, WJB_VALUE, &v);
}

Jsonb *
json_end_object(JsonBuild *b)
{
	return JsonbValueToJsonb(pushJsonbValue(&b->state, WJB_END_OBJECT, NULL));
}
