/*
 * json_build.c
 *	  Small JSON objects.
 */
#include "jobq.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/json.h"
#include "utils/numeric.h"

#include "base/json_build.h"

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
	memset(&b->state, 0, sizeof(b->state));
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

static void
add_null(JsonBuild *b, const char *key)
{
	JsonbValue	v;

	push_key(b, key);
	v.type = jbvNull;
	pushJsonbValue(&b->state, WJB_VALUE, &v);
}

void
json_add_text(JsonBuild *b, const char *key, const char *value)
{
	if (value)
		json_add_string(b, key, value);
	else
		add_null(b, key);
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

void
json_add_integer(JsonBuild *b, const char *key, int64 value)
{
	JsonbValue	v;

	push_key(b, key);
	v.type = jbvNumeric;
	v.val.numeric = int64_to_numeric(value);
	pushJsonbValue(&b->state, WJB_VALUE, &v);
}

void
json_add_bool(JsonBuild *b, const char *key, bool value)
{
	JsonbValue	v;

	push_key(b, key);
	v.type = jbvBool;
	v.val.boolean = value;
	pushJsonbValue(&b->state, WJB_VALUE, &v);
}

void
json_add_time(JsonBuild *b, const char *key, TimestampTz value)
{
	char		text[MAXDATELEN + 1];

	json_add_text(b, key, value == 0 ? NULL :
				  JsonEncodeDateTime(text, TimestampTzGetDatum(value), TIMESTAMPTZOID, NULL));
}

void
json_add_jsonb(JsonBuild *b, const char *key, Jsonb *value)
{
	JsonbValue	v;

	if (value == NULL)
	{
		add_null(b, key);
		return;
	}
	push_key(b, key);
	if (JB_ROOT_IS_SCALAR(value))
		(void) JsonbExtractScalar(&value->root, &v);
	else
	{
		v.type = jbvBinary;
		v.val.binary.data = &value->root;
		v.val.binary.len = VARSIZE(value) - VARHDRSZ;
	}
	pushJsonbValue(&b->state, WJB_VALUE, &v);
}

Jsonb *
json_end_object(JsonBuild *b)
{
	pushJsonbValue(&b->state, WJB_END_OBJECT, NULL);
	return JsonbValueToJsonb(b->state.result);
}

Jsonb *
progress_json(double progress, const char *data)
{
	JsonBuild	b;

	json_begin_object(&b);
	json_add_number(&b, "progress", progress);
	if (data)
		json_add_jsonb(&b, "data", DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(data))));
	return json_end_object(&b);
}
