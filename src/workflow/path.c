/*
 * path.c
 *	  Evaluates SQL/JSON paths over the context of a task: see path.h.
 *
 * Most paths are a chain of keys, $.tasks.ingest.result.file.  Those are
 * looked up here, without a copy.  All others are parsed and evaluated by the
 * server's functions (path_call.c).
 */
#include "jobq.h"

#include "utils/fmgrprotos.h"

#include "base/errors.h"
#include "workflow/path_internal.h"

/* ---------- chains of keys ---------- */

bool
path_next_key(const char **at, const char *end, const char **key, int *len)
{
	const char *p = *at;

	if (p + 1 >= end || *p++ != '.')
		return false;
	if (*p == '"')
	{
		*key = ++p;
		while (p < end && *p != '"' && *p != '\\')
			p++;
		if (p == end || *p == '\\' || p == *key)
			return false;
		*len = (int) (p - *key);
		p++;
	}
	else
	{
		*key = p;
		if (*p >= '0' && *p <= '9')
			return false;
		while (p < end && (*p == '_' || (*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z')))
			p++;
		*len = (int) (p - *key);
	}
	*at = p;
	return *len > 0;
}

static void
root_value(Jsonb *context, JsonbValue *value)
{
	value->type = jbvBinary;
	value->val.binary.data = &context->root;
	value->val.binary.len = VARSIZE(context) - VARHDRSZ;
}

/*
 * Looks up a chain of keys; returns the number of items, or -1 if the path or
 * the data need the server's functions: those unwrap arrays.
 */
static int
chain_items(PathRun *run, const JsonbValue *path, JsonbValue *item)
{
	const char *at = path->val.string.val;
	const char *end = at + path->val.string.len;
	int			found = 1;

	if (at == end || *at++ != '$' || JB_ROOT_IS_SCALAR(run->context))
		return -1;
	root_value(run->context, item);
	while (at < end)
	{
		const char *key;
		int			len;
		JsonbValue	value;

		if (!path_next_key(&at, end, &key, &len))
			return -1;
		if (found == 0)
			continue;
		if (item->type != jbvBinary)
			found = 0;
		else if (!JsonContainerIsObject(item->val.binary.data))
			return -1;
		else if (getKeyJsonValueFromContainer(item->val.binary.data, key, len, &value) == NULL)
			found = 0;
		else
			*item = value;
	}
	return found;
}

/* ---------- evaluation ---------- */

/* Evaluates by the server's function; the items are in an array. */
static Jsonb *
query_array(PathRun *run, const JsonbValue *path)
{
	bool		isnull;
	Datum		parsed = path_parse(run, path);

	return DatumGetJsonbP(path_call(run, path, jsonb_path_query_array_tz, JsonbPGetDatum(run->context), parsed, &isnull));
}

int
path_items(PathRun *run, const JsonbValue *path, JsonbValue *item)
{
	int			n = chain_items(run, path, item);
	Jsonb	   *items;

	if (n >= 0)
		return n;
	items = query_array(run, path);
	n = Min(JB_ROOT_COUNT(items), 2);
	if (n > 0)
		*item = *getIthJsonbValueFromContainer(&items->root, 0);
	return n;
}

Jsonb *
path_array(PathRun *run, const JsonbValue *path)
{
	JsonbValue	item;
	JsonbInState out = {0};
	int			n = chain_items(run, path, &item);

	if (n < 0)
		return query_array(run, path);
	pushJsonbValue(&out, WJB_BEGIN_ARRAY, NULL);
	if (n > 0)
		pushJsonbValue(&out, WJB_ELEM, &item);
	pushJsonbValue(&out, WJB_END_ARRAY, NULL);
	return JsonbValueToJsonb(out.result);
}

bool
path_test(PathRun *run, const JsonbValue *path)
{
	bool		isnull;
	Datum		parsed = path_parse(run, path);
	Datum		result = path_call(run, path, jsonb_path_match_tz, JsonbPGetDatum(run->context), parsed, &isnull);

	return !isnull && DatumGetBool(result);
}

char *
path_shown(const JsonbValue *path)
{
	return argument_shown(pnstrdup(path->val.string.val, path->val.string.len));
}
