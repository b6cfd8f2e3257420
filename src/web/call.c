/*
 * call.c
 *	  What all routes need of a call, and the settings.
 */
#include <string.h>

#include "gzip.h"
#include "route.h"

const Config *web_config;

const char *
call_value(const Call *call, const char *name)
{
	int			i;

	for (i = 0; i < call->nargs; i++)
	{
		if (strcmp(call->route->args[i].name, name) == 0)
			return call->values[i];
	}
	return NULL;
}

void
call_reply(Call *call, int status, const char *type)
{
	if (call->route && call->route->shape != SHAPE_FILE)
		gzip_reply(call->request);
	request_reply(call->request, status, type);
}
