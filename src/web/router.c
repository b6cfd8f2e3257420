/*
 * router.c
 *	  Finds the route of a path.
 */
#include <string.h>

#include "route.h"

/* True if the segment of a pattern fits; moves both to the next one. */
static bool
segment_fits(const char **pattern, char **path, char **argument)
{
	size_t		len = strcspn(*pattern, "/");
	size_t		path_len = strcspn(*path, "/");

	*argument = NULL;
	if (**pattern == '{')
	{
		if (path_len == 0)
			return false;
		*argument = *path;
	}
	else if (len != path_len || strncmp(*pattern, *path, len) != 0)
		return false;
	*pattern += len;
	*path += path_len;
	return true;
}

static bool
path_fits(const char *pattern, char *path, char **in_path)
{
	int			n = 0;

	while (*pattern == '/' && *path == '/')
	{
		char	   *argument;

		pattern++;
		path++;
		if (!segment_fits(&pattern, &path, &argument))
			return false;
		if (argument && n < MAX_PATH)
			in_path[n++] = argument;
	}
	return *pattern == '\0' && *path == '\0';
}

/* Ends each argument at its slash and decodes it. */
static bool
decode_arguments(char **in_path)
{
	int			i;

	for (i = 0; i < MAX_PATH && in_path[i]; i++)
		in_path[i][strcspn(in_path[i], "/")] = '\0';
	for (i = 0; i < MAX_PATH && in_path[i]; i++)
	{
		if (!percent_decode(in_path[i], false))
			return false;
	}
	return true;
}

const Route *
route_find(const char *method, char *path, char **in_path, Buf *allow)
{
	int			i;

	if (strcmp(method, "HEAD") == 0)
		method = "GET";
	for (i = 0; i < route_count; i++)
	{
		const Route *route = &route_table[i];

		memset(in_path, 0, MAX_PATH * sizeof(char *));
		if (!path_fits(route->path, path, in_path))
			continue;
		if (strcmp(route->method, method) == 0 && decode_arguments(in_path))
			return route;
		if (strcmp(route->method, method) == 0)
		{
			allow->len = 0;		/* it is no path at all */
			return NULL;
		}
		buf_printf(allow, "%s%s", allow->len > 0 ? ", " : "", route->method);
	}
	return NULL;
}
