/*
 * schema.c
 *	  Writes the JSON Schemas of openapi.json.
 *
 * Those of answers and rows are components, named as in answers.c or as the
 * view; a view or function that the database does not have is any object.
 */
#include "schema.h"

#include <string.h>

#include "arguments.h"

#define MAX_FACTS	2000
#define MAX_NAME	64

/* Members of the object that answer_facts gives. */
static JsonMember facts[MAX_FACTS];
static int	nfacts;

/* ---------- arguments ---------- */

/* The JSON Schema of a type of arguments: its type, and further members. */
static const struct
{
	const char *type;			/* NULL: any */
	const char *more;
}			schemas[] = {
	[ARG_TEXT] = {"string", ""},
	[ARG_INT] = {"integer", ",\"format\":\"int32\""},
	[ARG_BIGINT] = {"integer", ",\"format\":\"int64\""},
	[ARG_NUMBER] = {"number", ""},
	[ARG_BOOL] = {"boolean", ""},
	[ARG_UUID] = {"string", ",\"format\":\"uuid\""},
	[ARG_INTERVAL] = {"string", ",\"format\":\"interval\""},
	[ARG_TIME] = {"string", ",\"format\":\"date-time\""},
	[ARG_JSON] = {NULL, "\"$ref\":\"#/components/schemas/any\""},
	[ARG_TEXTS] = {"array", ",\"items\":{\"type\":\"string\"}"},
	[ARG_JSONS] = {"array", ",\"items\":{\"$ref\":\"#/components/schemas/any\"}"},
	[ARG_UUIDS] = {"array", ",\"items\":{\"type\":\"string\",\"format\":\"uuid\"}"},
	[ARG_STATUS] = {"string", ",\"enum\":[\"pending\",\"blocked\",\"retry\",\"running\",\"completed\",\"skipped\",\"cancelled\",\"error\"]"},
	[ARG_ACTION] = {"string", ""},	/* arg_words */
	[ARG_LEVEL] = {"string", ""},
	[ARG_SEVERITY] = {"string", ""},
	[ARG_SCHEDULE_STATUS] = {"string", ""},
	[ARG_KIND] = {"string", ""},
	[ARG_HANDLER] = {"string", ""},
	[ARG_ROLE] = {"string", ""},
	[ARG_LIMIT] = {"integer", ",\"minimum\":1,\"maximum\":200,\"default\":50"},
	[ARG_OFFSET] = {"integer", ",\"minimum\":0,\"maximum\":10000,\"default\":0"},
	[ARG_CURSOR] = {"string", ",\"description\":\"next of the page before\""},
};

static const JsonMember *
fact_named(const char *name)
{
	int			i;

	for (i = 0; i < nfacts; i++)
	{
		if (facts[i].name_len == strlen(name) && memcmp(facts[i].name, name, facts[i].name_len) == 0)
			return &facts[i];
	}
	return NULL;
}

/* The first "jobq.name(" of a statement; "": it calls no function. */
static void
function_of(const Route *route, char *name)
{
	const char *at = route->sql ? strstr(route->sql, "jobq.") : NULL;

	name[0] = '\0';
	for (; at; at = strstr(at + 1, "jobq."))
	{
		size_t		len = strspn(at, "abcdefghijklmnopqrstuvwxyz_.");

		if (at[len] != '(' || len >= MAX_NAME)
			continue;
		memcpy(name, at, len);
		name[len] = '\0';
		return;
	}
}

/* Optional members of a body may be null, as if they were not given. */
void
schema_argument(Buf *out, const Route *route, const Arg *arg)
{
	const char *type = schemas[arg->type].type;
	char		name[MAX_NAME];
	Buf			path = {0};
	const JsonMember *fact;

	function_of(route, name);
	buf_printf(&path, "%s.%s", name, arg->name);
	fact = arg->own ? NULL : fact_named(path.data);
	buf_text(out, "{");
	if (type && arg->place == IN_BODY && !arg->required)
		buf_printf(out, "\"type\":[\"%s\",\"null\"]", type);
	else if (type)
		buf_printf(out, "\"type\":\"%s\"", type);
	buf_text(out, schemas[arg->type].more);
	if (arg_words(arg->type))
		buf_printf(out, ",\"enum\":[%s]", arg_words(arg->type));
	if (fact && fact->value_len > 2)
	{
		buf_text(out, ",");
		buf_add(out, fact->value + 1, fact->value_len - 1);
	}
	else
		buf_text(out, "}");
	buf_free(&path);
}

/* ---------- answers ---------- */

/* True if the answer is named as a view or function, not in answers.c. */
static bool
is_row(const char *answer)
{
	return strncmp(answer, "jobq.", 5) == 0;
}

void
schema_answer(Buf *out, const Route *route)
{
	const char *name = !route->answer ? "any" : is_row(route->answer) ? route->answer + 5 : route->answer;

	if (route->shape == SHAPE_LIST)
		buf_printf(out, "{\"type\":\"object\",\"required\":[\"items\",\"next\"],\"properties\":{\"items\":{\"type\":\"array\","
				   "\"items\":" REF("schemas") "},\"next\":{\"type\":[\"string\",\"null\"],"
				   "\"description\":\"cursor of the next page; null: the last one\"},\"searched_to\":{\"type\":\"string\","
				   "\"format\":\"date-time\",\"description\":\"where the search has ended for time\"}}}", name);
	else
		buf_printf(out, REF("schemas"), name);
}

/* Writes an object; the properties are as in Answer. */
static void
add_object(Buf *out, const char *name, const char *properties)
{
	Buf			object = {0};
	Buf			required = {0};
	const char *place;
	const char *comma = "";
	JsonMember	m;

	buf_printf(&object, "{%s}", properties);
	place = object.data;
	buf_printf(out, "\"%s\":{\"type\":\"object\",\"properties\":{", name);
	while (json_member(&place, object.data + object.len, &m))
	{
		size_t		optional = m.name[m.name_len - 1] == '?';

		buf_printf(out, "%s\"%.*s\":%.*s", comma, (int) (m.name_len - optional), m.name, (int) m.value_len, m.value);
		if (!optional)
			buf_printf(&required, "%s\"%.*s\"", required.len > 0 ? "," : "", (int) m.name_len, m.name);
		comma = ",";
	}
	buf_printf(out, "},\"required\":[%s]}", required.data);
	buf_free(&object);
	buf_free(&required);
}

static void
add_name(Buf *out, const char *name)
{
	buf_printf(out, "%s\"%s\"", out->len > 1 ? "," : "", name);
}

void
schema_names(Buf *out)
{
	char		name[MAX_NAME];
	int			i;

	buf_text(out, "[");
	for (i = 0; i < route_count; i++)
	{
		if (route_table[i].answer && is_row(route_table[i].answer))
			add_name(out, route_table[i].answer);
		function_of(&route_table[i], name);
		if (name[0])
			add_name(out, name);
	}
	for (i = 0; i < answer_count; i++)
	{
		if (answer_table[i].row)
			add_name(out, answer_table[i].row);
	}
	buf_text(out, "]");
}

void
schema_facts(const Buf *object)
{
	const char *place = object->data;

	for (nfacts = 0; nfacts < MAX_FACTS && json_member(&place, object->data + object->len, &facts[nfacts]); nfacts++)
		;
}

/* Writes the rows of a view; one that the database does not have is any object. */
static void
add_row(Buf *out, const char *name)
{
	const JsonMember *fact = fact_named(name);

	buf_printf(out, ",\n\"%s\":", name + 5);
	if (fact)
		buf_add(out, fact->value, fact->value_len);
	else
		buf_text(out, "{\"type\":\"object\"}");
}

/* True if a route before this place has these rows. */
static bool
is_written(const char *name, int before)
{
	int			i;

	for (i = 0; i < before; i++)
	{
		if (route_table[i].answer && strcmp(route_table[i].answer, name) == 0)
			return true;
	}
	return false;
}

void
schema_components(Buf *out)
{
	int			i;

	buf_text(out, "\"any\":{\"description\":\"any JSON\",\"type\":[\"object\",\"array\",\"string\",\"number\",\"boolean\",\"null\"]},\n"
			 "\"level\":{\"type\":\"string\",\"enum\":[\"healthy\",\"degraded\",\"unhealthy\"]},\n"
			 "\"tick\":{\"type\":\"string\",\"format\":\"date-time\"},\n");
	add_object(out, "problem", answer_problem);
	for (i = 0; i < answer_count; i++)
	{
		buf_text(out, ",\n");
		add_object(out, answer_table[i].name, answer_table[i].properties);
		if (answer_table[i].row && !is_written(answer_table[i].row, route_count))
			add_row(out, answer_table[i].row);
	}
	for (i = 0; i < route_count; i++)
	{
		if (route_table[i].answer && is_row(route_table[i].answer) && !is_written(route_table[i].answer, i))
			add_row(out, route_table[i].answer);
	}
}
