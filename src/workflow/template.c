/*
 * template.c
 *	  Fills templates: see template.h.
 *
 * A template is walked once.  The result is bounded while it grows: many
 * placeholders may each name a large part of the context.
 */
#include "jobq.h"

#include "miscadmin.h"
#include "utils/builtins.h"

#include "base/errors.h"
#include "base/json_size.h"
#include "workflow/template.h"

PG_FUNCTION_INFO_V1(jobq_fill);
PG_FUNCTION_INFO_V1(jobq_fill_input);
PG_FUNCTION_INFO_V1(jobq_test);
PG_FUNCTION_INFO_V1(jobq_items);

/* Stored bytes of items for each byte of the result when it is written out. */
#define STORED_PER_WRITTEN	8

/* ---------- placeholders ---------- */

typedef struct Placeholder
{
	bool		all;			/* "$[]" */
	JsonbValue	path;
	bool		has_default;
	JsonbValue	otherwise;
} Placeholder;

static bool
find_key(JsonbContainer *object, const char *name, JsonbValue *value)
{
	return getKeyJsonValueFromContainer(object, name, (int) strlen(name), value) != NULL;
}

pg_noreturn static void
bad_placeholder(const char *name, const char *reason)
{
	ereport(ERROR,
			(errcode(ERRCODE_JOBQ_BAD_INPUT),
			 errmsg("placeholder {\"%s\": ...} %s", name, reason),
			 errhint("Placeholders are {\"$\": path}, {\"$\": path, \"default\": value} and {\"$[]\": path}.")));
}

/* Reads a placeholder; false: the value is none. */
static bool
read_placeholder(const JsonbValue *value, Placeholder *found)
{
	JsonbContainer *object = value->val.binary.data;
	const char *name = "$";
	int			keys = 1;

	if (value->type != jbvBinary || !JsonContainerIsObject(object))
		return false;
	found->all = !find_key(object, "$", &found->path);
	if (found->all && !find_key(object, "$[]", &found->path))
		return false;
	if (found->all)
		name = "$[]";
	found->has_default = !found->all && find_key(object, "default", &found->otherwise);
	if (found->has_default)
		keys++;
	if (found->path.type != jbvString)
		bad_placeholder(name, "has a path that is no text");
	if ((int) JsonContainerSize(object) != keys)
		bad_placeholder(name, "has other keys");
	return true;
}

static void
root_of(Jsonb *json, JsonbValue *root)
{
	if (JB_ROOT_IS_SCALAR(json))
	{
		*root = *getIthJsonbValueFromContainer(&json->root, 0);
		return;
	}
	root->type = jbvBinary;
	root->val.binary.data = &json->root;
	root->val.binary.len = VARSIZE(json) - VARHDRSZ;
}

/* ---------- filling ---------- */

typedef struct Filler
{
	PathRun		run;
	bool		only_input;
	int64		room;			/* stored bytes of items */
} Filler;

/* True if the placeholder stays, because it reads more than $.input. */
static bool
stays(Filler *filler, const Placeholder *placeholder)
{
	PathRefs	refs = {0};

	if (!filler->only_input)
		return false;
	path_refs(&filler->run, &placeholder->path, &refs);
	return !refs.input || refs.tasks != NIL || refs.all_tasks || refs.run || refs.item || refs.whole;
}

static void
take_room(Filler *filler, const JsonbValue *value)
{
	filler->room -= value->type == jbvBinary ? value->val.binary.len :
		value->type == jbvString ? value->val.string.len : 16;
	if (filler->room < 0)
		ereport(ERROR,
				(errcode(ERRCODE_JOBQ_BAD_INPUT),
				 errmsg("filled template is larger than jobq.max_payload, %d bytes", jobq_max_payload)));
}

/* Returns the one item of {"$": path}; false: there is none, take default. */
static bool
fill_one(Filler *filler, const Placeholder *placeholder, JsonbValue *value)
{
	int			n = path_items(&filler->run, &placeholder->path, value);

	if (n == 0 && placeholder->has_default)
		return false;
	if (n != 1)
		ereport(ERROR,
				(errcode(ERRCODE_JOBQ_BAD_INPUT),
				 errmsg("path \"%s\" finds %s", path_shown(&placeholder->path), n == 0 ? "no item" : "several items"),
				 n == 0 ? errhint("{\"$\": path, \"default\": value} has a value for this case.") :
				 errhint("{\"$[]\": path} is the array of all items.")));
	return true;
}

static bool
may_hold_placeholders(const JsonbValue *value)
{
	return value->type == jbvBinary && memchr(value->val.binary.data, '$', value->val.binary.len) != NULL;
}

/*
 * Replaces a placeholder by its value.  Returns true if the value is a
 * container, in which placeholders may stand.
 */
static bool
resolve(Filler *filler, JsonbValue *value)
{
	Placeholder placeholder;

	CHECK_FOR_INTERRUPTS();
	while (may_hold_placeholders(value))
	{
		if (!read_placeholder(value, &placeholder))
			return true;
		if (stays(filler, &placeholder))
			return false;
		if (placeholder.all)
			root_of(path_array(&filler->run, &placeholder.path), value);
		else if (!fill_one(filler, &placeholder, value))
		{
			*value = placeholder.otherwise;
			continue;
		}
		take_room(filler, value);
		return false;
	}
	return false;
}

static void
fill_container(Filler *filler, JsonbContainer *container, JsonbInState *out)
{
	JsonbIterator *it = JsonbIteratorInit(container);
	JsonbIteratorToken token;
	JsonbValue	value;

	check_stack_depth();
	while ((token = JsonbIteratorNext(&it, &value, true)) != WJB_DONE)
	{
		if ((token == WJB_VALUE || token == WJB_ELEM) && resolve(filler, &value))
			fill_container(filler, value.val.binary.data, out);
		else
			pushJsonbValue(out, token, token < WJB_BEGIN_ARRAY ? &value : NULL);
	}
}

static Jsonb *
fill(Jsonb *template, Jsonb *context, bool only_input)
{
	Filler		filler = {.run = {.context = context}, .only_input = only_input,
	.room = (int64) jobq_max_payload * STORED_PER_WRITTEN};
	JsonbInState out = {0};
	JsonbValue	value;
	Jsonb	   *result;

	root_of(template, &value);
	if (!may_hold_placeholders(&value))
		return template;
	if (resolve(&filler, &value))
	{
		fill_container(&filler, value.val.binary.data, &out);
		result = JsonbValueToJsonb(out.result);
	}
	else
		result = JsonbValueToJsonb(&value);
	if (!json_fits(result, (int64) jobq_max_payload))
		ereport(ERROR,
				(errcode(ERRCODE_JOBQ_BAD_INPUT),
				 errmsg("filled template is larger than jobq.max_payload, %d bytes, or nested more than %d levels deep",
						jobq_max_payload, JOBQ_MAX_JSON_DEPTH)));
	return result;
}

/* ---------- the paths of a template ---------- */

void
template_paths(Jsonb *template, void (*visit) (void *arg, const JsonbValue *path), void *arg)
{
	JsonbIterator *it = JsonbIteratorInit(&template->root);
	JsonbIteratorToken token;
	JsonbValue	value;
	Placeholder placeholder;

	root_of(template, &value);
	if (read_placeholder(&value, &placeholder))
		visit(arg, &placeholder.path);
	while ((token = JsonbIteratorNext(&it, &value, true)) != WJB_DONE)
	{
		check_stack_depth();
		if ((token == WJB_VALUE || token == WJB_ELEM) && may_hold_placeholders(&value))
			template_paths(JsonbValueToJsonb(&value), visit, arg);
	}
}

/* ---------- SQL ---------- */

static JsonbValue
path_argument(FunctionCallInfo fcinfo)
{
	JsonbValue	path = {.type = jbvString};

	path.val.string.val = text_to_cstring(PG_GETARG_TEXT_PP(0));
	path.val.string.len = (int) strlen(path.val.string.val);
	return path;
}

/* jobq_internal._fill(template, context), STRICT */
Datum
jobq_fill(PG_FUNCTION_ARGS)
{
	PG_RETURN_JSONB_P(fill(PG_GETARG_JSONB_P(0), PG_GETARG_JSONB_P(1), false));
}

/*
 * jobq_internal._fill_input(template, context), STRICT: leaves placeholders that
 * read more than $.input as they are.
 */
Datum
jobq_fill_input(PG_FUNCTION_ARGS)
{
	PG_RETURN_JSONB_P(fill(PG_GETARG_JSONB_P(0), PG_GETARG_JSONB_P(1), true));
}

/* jobq_internal._test(path, context), STRICT: what a condition decides; false also for null. */
Datum
jobq_test(PG_FUNCTION_ARGS)
{
	JsonbValue	path = path_argument(fcinfo);
	PathRun		run = {.context = PG_GETARG_JSONB_P(1)};

	PG_RETURN_BOOL(path_test(&run, &path));
}

/* jobq_internal._items(path, context), STRICT: of a map, the array that its path finds. */
Datum
jobq_items(PG_FUNCTION_ARGS)
{
	JsonbValue	path = path_argument(fcinfo);
	PathRun		run = {.context = PG_GETARG_JSONB_P(1)};
	JsonbValue	item;
	int			n = path_items(&run, &path, &item);

	if (n != 1 || item.type != jbvBinary || !JsonContainerIsArray(item.val.binary.data))
		ereport(ERROR,
				(errcode(ERRCODE_JOBQ_BAD_INPUT),
				 errmsg("path \"%s\" finds %s, not an array", path_shown(&path),
						n == 0 ? "no item" : n > 1 ? "several items" : "another item")));
	PG_RETURN_JSONB_P(JsonbValueToJsonb(&item));
}
