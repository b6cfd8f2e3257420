/*
 * handle.c
 *	  Handles a request: its route, its person, its arguments, its statement.
 *
 * A Call is the state of a request from here to its reply, and is freed with
 * it; a statement that still runs then is abandoned and its result dropped.
 */
#include "handle.h"

#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "assets.h"
#include "identify.h"
#include "problem.h"
#include "statement.h"

void
handle_open(const Config *config)
{
	web_config = config;
}

static void
wipe(char *s)
{
	if (s)
		explicit_bzero(s, strlen(s));
	free(s);
}

static void
free_call(Request *request)
{
	Call	   *call = request->state;
	int			i;

	if (call->work)
		work_abandon(call->work);
	if (call->free_state)
		call->free_state(call);
	for (i = 0; i < MAX_ARGS; i++)
		wipe(call->values[i]);
	person_release(call->person);
	buf_free(&call->items);
	free(call->last_key);
	free(call->path);
	free(call->query_text);
	free(call);
}

/* Returns the path below base_path; NULL: it is not below it. */
static char *
below_base(char *path)
{
	const char *base = web_config->base_path ? web_config->base_path : "";
	size_t		len = strlen(base);

	return strncmp(path, base, len) == 0 && path[len] == '/' ? path + len : NULL;
}

/* The relative links of the page need the slash behind base_path. */
static bool
lacks_slash(Call *call)
{
	Buf			location = {0};

	if (!web_config->base_path || strcmp(call->path, web_config->base_path) != 0)
		return false;
	buf_printf(&location, "%s/", strrchr(web_config->base_path, '/') + 1);
	reply_header(call->request, "Location", location.data);
	buf_free(&location);
	call_reply(call, 308, "text/plain");
	return true;
}

/* allow: the methods of the path, if it has some. */
static void
refuse_path(Request *request, const Buf *allow)
{
	if (allow->len > 0)
	{
		reply_header(request, "Allow", allow->data);
		problem_reply(request, 405, "this path has other methods");
	}
	else
		problem_reply(request, 404, "there is no such path");
}

/* Splits the target and finds its route; false: the reply says why not. */
static bool
find_route(Call *call)
{
	Request    *request = call->request;
	Buf			allow = {0};
	const char *problem;
	char	   *path;
	char	   *mark;
	bool		found;

	call->path = mem_text(request->target);
	mark = strchr(call->path, '?');
	call->query_text = mark ? mem_text(mark + 1) : NULL;
	if (mark)
		*mark = '\0';
	if (lacks_slash(call))
		return false;
	path = below_base(call->path);
	call->route = path ? route_find(request->method, path, call->in_path, &allow) : NULL;
	found = call->route && (!request->conn->metrics || call->route->metrics);
	if (!found)
		refuse_path(request, &allow);
	buf_free(&allow);
	if (!found)
		return false;
	problem = query_split(call->query_text, &call->query);
	if (problem && call->query.wrong)
		problem_argument(request, call->query.wrong, "argument \"%.60s\": %s", call->query.wrong, problem);
	else if (problem)
		problem_reply(request, 400, problem);
	return !problem;
}

void
handle_request(Request *request)
{
	Call	   *call = mem_zero(sizeof(Call));

	call->request = request;
	request->state = call;
	request->free_state = free_call;
	if (!find_route(call))
		return;
	if (wants_page(call))
	{
		page_get(call);
		return;
	}
	if (!call_is_of_our_site(call) || (!call->route->open && !call_identify(call)))
		return;
	if (!call_is_meant(call) || !call_arguments(call))
		return;
	if (call->route->run)
		call->route->run(call);
	else
		call_run(call);
}
