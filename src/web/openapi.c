/*
 * openapi.c
 *	  openapi.json (3.1), made from the table of routes and the catalog.
 *
 * Statuses follow from what a route does: take a request, sign in, run a
 * statement, change something, name an object.  What the catalog says of
 * columns and arguments comes with one statement (answers.c); a database
 * without jobq has a document without it.
 */
#include "openapi.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "problem.h"
#include "schema.h"
#include "statement.h"

static void
add_parameters(Buf *out, const Route *route)
{
	const Arg  *arg;
	const char *comma = "";

	buf_text(out, ",\"parameters\":[");
	for (arg = route->args; arg && arg->place != IN_NONE; arg++)
	{
		if (arg->place == IN_BODY)
			continue;
		buf_printf(out, "%s{\"name\":\"%s\",\"in\":\"%s\",\"required\":%s,%s\"schema\":", comma, arg->name,
				   arg->place == IN_PATH ? "path" : "query", arg->required ? "true" : "false",
				   arg->type == ARG_JSON ? "\"content\":{\"" JSON_TYPE "\":{" : "");
		schema_argument(out, route, arg);
		buf_text(out, arg->type == ARG_JSON ? "}}}" : "}");
		comma = ",";
	}
	buf_text(out, "]");
}

static void
add_body(Buf *out, const Route *route)
{
	const Arg  *arg;
	Buf			properties = {0};
	Buf			required = {0};

	for (arg = route->args; arg && arg->place != IN_NONE; arg++)
	{
		if (arg->place != IN_BODY)
			continue;
		buf_printf(&properties, "%s\"%s\":", properties.len ? "," : "", arg->name);
		schema_argument(&properties, route, arg);
		if (arg->required)
			buf_printf(&required, "%s\"%s\"", required.len ? "," : "", arg->name);
	}
	if (properties.len > 0)
		buf_printf(out, ",\"requestBody\":{\"required\":%s,\"content\":{\"" JSON_TYPE "\":{\"schema\":{\"type\":\"object\","
				   "\"properties\":{%s},\"required\":[%s],\"additionalProperties\":false}}}}",
				   required.len ? "true" : "false", properties.data, required.len ? required.data : "");
	buf_free(&properties);
	buf_free(&required);
}

/* ---------- statuses ---------- */

/* What a route does. */
#define TAKES		0x01			/* every one */
#define SIGNS_IN	0x02
#define RUNS		0x04			/* a statement */
#define CHANGES		0x08
#define NAMES		0x10			/* may name an object */
#define SENDS		0x20			/* may have a body */

static const struct
{
	int			status;
	unsigned	when;			/* one of these, and all of also */
	unsigned	also;
	const char *header;			/* of the reply; NULL: none of its own */
	const char *what;
}			statuses[] = {
	{400, TAKES, 0, NULL, "The request or an argument is wrong: argument names it"},
	{401, SIGNS_IN, 0, "WWW-Authenticate", "Not signed in, or a wrong password"},
	{403, SIGNS_IN, 0, NULL, "The role has no right, or the request came from another site"},
	{404, NAMES, 0, NULL, "There is no such object, or the role may not see it"},
	{409, RUNS, CHANGES, NULL, "The state of the object does not allow it, or it exists already"},
	{413, TAKES, 0, NULL, "The body is larger than 2 MB, or a limit of the server is exceeded"},
	{414, TAKES, 0, NULL, "The target is longer than 8 kB"},
	{415, SENDS, 0, NULL, "The body is not application/json"},
	{417, TAKES, 0, NULL, "Expect is not 100-continue"},
	{429, TAKES, 0, "Retry-After", "Too many requests, or wrong passwords; or a quota is used up"},
	{431, TAKES, 0, NULL, "The headers are larger than 16 kB"},
	{500, RUNS, 0, NULL, "PostgreSQL has an error of another class: see sqlstate"},
	{501, RUNS, 0, NULL, "This server or this version of jobq cannot do it"},
	{503, TAKES, 0, "Retry-After", "No connection to PostgreSQL, or too many requests at once"},
	{504, RUNS, 0, NULL, "The statement took longer than 5 s"},
	{505, TAKES, 0, NULL, "The version of HTTP is neither 1.0 nor 1.1"},
	{507, RUNS, 0, NULL, "The disk of the server is full"},
};
#define NSTATUSES ((int) (sizeof(statuses) / sizeof(statuses[0])))

static bool
changes(const Route *route)
{
	return strcmp(route->method, "GET") != 0;
}

static unsigned
deeds_of(const Route *route)
{
	unsigned	deeds = TAKES | (route->local ? 0 : RUNS | SIGNS_IN) | (route->open ? 0 : SIGNS_IN);
	const Arg  *arg;

	for (arg = route->args; arg && arg->place != IN_NONE; arg++)
	{
		if (!route->open && arg->type != ARG_LIMIT && arg->type != ARG_OFFSET && arg->type != ARG_CURSOR && arg->type != ARG_TIME)
			deeds |= NAMES;
	}
	if (changes(route))
		deeds |= strcmp(route->method, "DELETE") == 0 ? CHANGES : CHANGES | SENDS;
	return deeds;
}

/* The media types of a text are the answer that the table names. */
static void
add_text_content(Buf *out, const char *types)
{
	const char *comma = "";

	while (types && *types)
	{
		size_t		len = strcspn(types, " ");

		buf_printf(out, "%s\"%.*s\":{\"schema\":{\"type\":\"string\"}}", comma, (int) len, types);
		types += len + strspn(types + len, " ");
		comma = ",";
	}
}

static void
add_responses(Buf *out, const Route *route)
{
	const Answer *answer = route->answer ? answer_named(route->answer) : NULL;
	unsigned	deeds = deeds_of(route);
	int			i;

	buf_text(out, ",\"responses\":{\"200\":{\"description\":\"The answer\",\"content\":{");
	if (route->shape == SHAPE_TEXT || route->shape == SHAPE_STREAM)
		add_text_content(out, route->answer);
	else
	{
		buf_text(out, "\"" JSON_TYPE "\":{\"schema\":");
		schema_answer(out, route);
		buf_text(out, "}");
	}
	buf_text(out, "}}");
	for (i = 0; i < NSTATUSES; i++)
	{
		if (!(deeds & statuses[i].when) || (deeds & statuses[i].also) != statuses[i].also)
			continue;
		if (answer && answer->status == statuses[i].status)
			buf_printf(out, ",\"%d\":{\"description\":\"The answer, or: %s\",\"content\":{\"" JSON_TYPE "\":{\"schema\":"
					   REF("schemas") "},\"" PROBLEM_TYPE "\":{\"schema\":" REF("schemas") "}}}", statuses[i].status,
					   statuses[i].what, answer->name, "problem");
		else
			buf_printf(out, ",\"%d\":{\"$ref\":\"#/components/responses/%d\"}", statuses[i].status, statuses[i].status);
	}
	buf_text(out, "}");
}

/* ---------- operations ---------- */

/* Groups of paths, by their first word behind /api/v1. */
static const struct
{
	const char *name;
	const char *description;
	const char *words;			/* each with spaces around */
}			tags[] = {
	{"jobs", "Jobs: enqueue, look, change; actions on many", " jobs bulk errors events "},
	{"work", "Claim jobs and end them, in any language", " claim "},
	{"types", "Job types, their limits, signals and rules", " types limits signals rules "},
	{"tenants", "Quotas of tenants", " tenants "},
	{"schedules", "Jobs at the ticks of cron expressions", " schedules next_runs "},
	{"workflows", "Workflows and their runs", " workflows runs "},
	{"watch", "What happens now, and happened", " overview alerts audit workers lanes series metrics health livez stream "},
	{"switch", "Stop and start everything", " stop start drain "},
	{"session", "Sign in and out", " session openapi.json "},
	{"seeds", "Calls with fixed names, for dashboards", " admin intentions "},
};
#define NTAGS ((int) (sizeof(tags) / sizeof(tags[0])))

static bool
is_leased(const Route *route)
{
	const Arg  *arg;

	for (arg = route->args; arg && arg->place != IN_NONE; arg++)
	{
		if (strcmp(arg->name, "lease_token") == 0)
			return true;
	}
	return false;
}

static const char *
tag_of(const Route *route)
{
	const char *word = route->path + (strncmp(route->path, "/api/v1/", 8) == 0 ? 8 : 1);
	Buf			spaced = {0};
	const char *name = NULL;
	int			i;

	if (is_leased(route))
		return "work";
	buf_printf(&spaced, " %.*s ", (int) strcspn(word, "/"), word);
	for (i = 0; i < NTAGS && !name; i++)
	{
		if (strstr(tags[i].words, spaced.data))
			name = tags[i].name;
	}
	buf_free(&spaced);
	return name ? name : "other";
}

/* As post_jobs_id_cancel. */
static void
add_operation_id(Buf *out, const Route *route)
{
	const char *c;

	for (c = route->method; *c; c++)
		buf_printf(out, "%c", tolower(*c));
	for (c = route->path + (strncmp(route->path, "/api/v1", 7) == 0 ? 7 : 0); *c; c++)
	{
		if (*c == '/' || *c == '.')
			buf_text(out, "_");
		else if (*c != '{' && *c != '}')
			buf_add(out, c, 1);
	}
}

static void
add_security(Buf *out, const Route *route)
{
	if (route->open)
		buf_text(out, ",\"security\":[]");
	else if (changes(route))
		buf_text(out, ",\"security\":[{\"basic\":[]},{\"session\":[],\"csrf\":[]}]");
	else
		buf_text(out, ",\"security\":[{\"basic\":[]},{\"session\":[]}]");
}

static void
add_route(Buf *out, const Route *route)
{
	const char *c;

	buf_text(out, "\"");
	for (c = route->method; *c; c++)
		buf_printf(out, "%c", tolower(*c));
	buf_text(out, "\":{\"operationId\":\"");
	add_operation_id(out, route);
	buf_printf(out, "\",\"tags\":[\"%s\"],\"summary\":", tag_of(route));
	buf_json(out, route->summary, strlen(route->summary));
	add_security(out, route);
	add_parameters(out, route);
	add_body(out, route);
	add_responses(out, route);
	buf_text(out, "}");
}

/* True if an earlier route has the path. */
static bool
is_repeated(int i)
{
	int			j;

	for (j = 0; j < i; j++)
	{
		if (strcmp(route_table[j].path, route_table[i].path) == 0)
			return true;
	}
	return false;
}

static void
add_path(Buf *out, int first)
{
	const char *path = route_table[first].path;
	const char *comma = "";
	int			i;

	buf_printf(out, "%s\"%s\":{", out->data[out->len - 1] == '}' ? ",\n" : "", path);
	for (i = first; i < route_count; i++)
	{
		if (strcmp(route_table[i].path, path) != 0)
			continue;
		buf_text(out, comma);
		add_route(out, &route_table[i]);
		comma = ",";
	}
	buf_text(out, "}");
}

/* ---------- the document ---------- */

static void
add_tags(Buf *out)
{
	int			i;

	buf_text(out, "\"tags\":[");
	for (i = 0; i < NTAGS; i++)
		buf_printf(out, "%s{\"name\":\"%s\",\"description\":\"%s\"}", i > 0 ? "," : "", tags[i].name, tags[i].description);
	buf_text(out, "],\n");
}

static void
add_components(Buf *out)
{
	int			i;

	buf_text(out, "\"components\":{\"securitySchemes\":{"
			 "\"basic\":{\"type\":\"http\",\"scheme\":\"basic\",\"description\":\"a role of PostgreSQL and its password\"},"
			 "\"session\":{\"type\":\"apiKey\",\"in\":\"cookie\",\"name\":\"" SESSION_COOKIE "\"},"
			 "\"csrf\":{\"type\":\"apiKey\",\"in\":\"header\",\"name\":\"X-Csrf-Token\","
			 "\"description\":\"csrf of GET session; the Origin header must be that of the server, too\"}},\n\"responses\":{");
	for (i = 0; i < NSTATUSES; i++)
	{
		buf_printf(out, "%s\"%d\":{\"description\":\"%s\"", i > 0 ? ",\n" : "", statuses[i].status, statuses[i].what);
		if (statuses[i].header)
			buf_printf(out, ",\"headers\":{\"%s\":{\"schema\":{\"type\":\"string\"}}}", statuses[i].header);
		buf_printf(out, ",\"content\":{\"" PROBLEM_TYPE "\":{\"schema\":" REF("schemas") "}}}", "problem");
	}
	buf_text(out, "},\n\"schemas\":{\n");
	schema_components(out);
	buf_text(out, "}}");
}

static void
reply_openapi(Call *call, const PgError *error)
{
	Buf		   *out = &call->request->reply.body;
	int			i;

	if (error)
	{
		problem_server(call->request, error);
		return;
	}
	schema_facts(&call->items);
	buf_printf(out, "{\"openapi\":\"3.1.0\",\"info\":{\"title\":\"jobq-web\",\"version\":\"%s\",\"summary\":\"The HTTP API of jobq\","
			   "\"description\":\"Names of arguments and columns are those of SQL. Times are ISO 8601, years beyond 9999 have more digits, and infinity is a time. Intervals are written as in"
			   " PostgreSQL: 30s, 1 day. HEAD is answered as GET.\",\"license\":{\"name\":\"PostgreSQL License\","
			   "\"identifier\":\"PostgreSQL\"}},\n\"servers\":[{\"url\":\"%s%s\"}],\n", JOBQ_WEB_VERSION, web_config->origin,
			   web_config->base_path ? web_config->base_path : "");
	buf_text(out, "\"security\":[{\"basic\":[]},{\"session\":[]}],\n");
	add_tags(out);
	buf_text(out, "\"paths\":{\n");
	for (i = 0; i < route_count; i++)
	{
		if (route_table[i].shape != SHAPE_FILE && !is_repeated(i))
			add_path(out, i);
	}
	buf_text(out, "},\n");
	add_components(out);
	buf_text(out, "}\n");
	call_reply(call, 200, JSON_TYPE);
}

void
openapi_get(Call *call)
{
	Buf			names = {0};

	schema_names(&names);
	call->finished = reply_openapi;
	call_run_values(call, answer_facts, names.data);
	buf_free(&names);
}
