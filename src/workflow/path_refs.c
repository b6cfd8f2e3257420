/*
 * path_refs.c
 *	  Finds the parts of a context that a path reads: see path.h.
 */
#include "jobq.h"

#include "miscadmin.h"
#include "utils/jsonpath.h"

#include "workflow/path_internal.h"

static char *
string_of(JsonPathItem *item)
{
	int			len;
	char	   *string = jspGetString(item, &len);

	return pnstrdup(string, len);
}

/*
 * Adds the reference of $.key.second.third; NULL: the path has no such key
 * there.
 */
static void
add_keys(PathRefs *refs, char *key, char *second, const char *third)
{
	if (key == NULL || strcmp(key, "tasks") == 0)
		refs->artifacts |= third == NULL || strcmp(third, "artifacts") == 0;
	if (key == NULL)
		refs->whole = true;
	else if (strcmp(key, "input") == 0)
		refs->input = true;
	else if (strcmp(key, "run") == 0)
		refs->run = true;
	else if (strcmp(key, "item") == 0 || strcmp(key, "index") == 0)
		refs->item = true;
	else if (strcmp(key, "tasks") != 0)
		refs->unknown = key;
	else if (second != NULL)
		refs->tasks = lappend(refs->tasks, second);
	else
		refs->all_tasks = true;
}

/* Adds the reference of a chain of keys; false: the path is none. */
static bool
add_chain(const JsonbValue *path, PathRefs *refs)
{
	const char *at = path->val.string.val;
	const char *end = at + path->val.string.len;
	char	   *keys[3] = {NULL, NULL, NULL};

	if (at == end || *at++ != '$')
		return false;
	for (int n = 0; at < end; n++)
	{
		const char *key;
		int			len;

		if (!path_next_key(&at, end, &key, &len))
			return false;
		if (n < (int) lengthof(keys))
			keys[n] = pnstrdup(key, len);
	}
	add_keys(refs, keys[0], keys[1], keys[2]);
	return true;
}

/* Adds the reference of "$" and the keys behind it. */
static void
add_root(JsonPathItem *root, PathRefs *refs)
{
	char	   *keys[3] = {NULL, NULL, NULL};
	JsonPathItem at = *root;
	JsonPathItem next;

	for (int n = 0; n < (int) lengthof(keys) && jspGetNext(&at, &next) && next.type == jpiKey; n++)
	{
		keys[n] = string_of(&next);
		at = next;
	}
	add_keys(refs, keys[0], keys[1], keys[2]);
}

static void add_refs(JsonPathItem *item, PathRefs *refs);

static void
add_subscripts(JsonPathItem *array, PathRefs *refs)
{
	for (int i = 0; i < array->content.array.nelems; i++)
	{
		JsonPathItem from;
		JsonPathItem to;

		if (jspGetArraySubscript(array, &from, &to, i))
			add_refs(&to, refs);
		add_refs(&from, refs);
	}
}

static void
add_argument(JsonPathItem *item, int32 position, PathRefs *refs)
{
	JsonPathItem argument;

	jspInitByBuffer(&argument, item->base, position);
	add_refs(&argument, refs);
}

/* Adds the references of an item; the arguments of methods are literals. */
static void
add_of_item(JsonPathItem *item, PathRefs *refs)
{
	switch (item->type)
	{
		case jpiRoot:
			add_root(item, refs);
			break;
		case jpiVariable:
			refs->variable = string_of(item);
			break;
		case jpiAnd:
		case jpiOr:
		case jpiEqual:
		case jpiNotEqual:
		case jpiLess:
		case jpiGreater:
		case jpiLessOrEqual:
		case jpiGreaterOrEqual:
		case jpiAdd:
		case jpiSub:
		case jpiMul:
		case jpiDiv:
		case jpiMod:
		case jpiStartsWith:
			add_argument(item, item->content.args.left, refs);
			add_argument(item, item->content.args.right, refs);
			break;
		case jpiNot:
		case jpiIsUnknown:
		case jpiPlus:
		case jpiMinus:
		case jpiFilter:
		case jpiExists:
			add_argument(item, item->content.arg, refs);
			break;
		case jpiLikeRegex:
			add_argument(item, item->content.like_regex.expr, refs);
			break;
		case jpiIndexArray:
			add_subscripts(item, refs);
			break;
		default:
			break;
	}
}

static void
add_refs(JsonPathItem *item, PathRefs *refs)
{
	JsonPathItem at = *item;
	JsonPathItem next;

	check_stack_depth();
	for (;;)
	{
		add_of_item(&at, refs);
		if (!jspGetNext(&at, &next))
			return;
		at = next;
	}
}

void
path_refs(PathRun *run, const JsonbValue *path, PathRefs *refs)
{
	JsonPathItem root;

	if (add_chain(path, refs))
		return;
	jspInit(&root, DatumGetJsonPathP(path_parse(run, path)));
	add_refs(&root, refs);
}
