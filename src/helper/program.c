/*
 * program.c
 *	  Finds the program of a command.
 *
 * A starter does this for each start.  The extension does it when a job type
 * is defined, to warn of a missing program.  So nothing here needs the helper.
 */
#include "program.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * Returns 0, or why the file can't be executed.  EPERM: another user can
 * change it.
 */
static int
check_program(const char *path)
{
	struct stat st;

	if (stat(path, &st) != 0)
		return errno;
	if (!S_ISREG(st.st_mode))
		return EACCES;
	if (access(path, X_OK) != 0)
		return errno;
	return check_trust(path, geteuid(), getegid());
}

/*
 * Searches each absolute directory of the list.  Returns EACCES or EPERM if
 * only files were found that can't be run.
 */
static int
search_program(const char *name, FrameText tool_path, char **path)
{
	const char *at = tool_path.data;
	const char *end = at + tool_path.len;
	int			result = ENOENT;

	while (tool_path.len > 0 && at < end)
	{
		const char *colon = memchr(at, ':', (size_t) (end - at));
		int			len = (int) ((colon ? colon : end) - at);
		int			error = ENOENT;

		if (len > 0 && *at == '/')
		{
			if (asprintf(path, "%.*s/%s", len, at, name) < 0)
				return ENOMEM;
			error = check_program(*path);
			if (error == 0)
				return 0;
			free(*path);
		}
		if (error == EACCES || error == EPERM)
			result = error;
		at += len + 1;
	}
	return result;
}

int
find_program(const char *name, FrameText tool_path, char **path)
{
	bool		plain = name[0] != '\0' && !strchr(name, '/') && strcmp(name, ".") != 0 &&
		strcmp(name, "..") != 0;
	int			result = EINVAL;

	*path = NULL;
	if (plain)
		result = search_program(name, tool_path, path);
	if (result != 0)
		*path = NULL;
	if (name[0] == '/')
	{
		*path = strdup(name);
		result = *path ? check_program(*path) : ENOMEM;
	}
	return result;
}

const char *
program_error(int error, bool unnamed)
{
	if (error == ENOEXEC)
		return "it is no program and has no first line that names an interpreter";
	if (error == EPERM)
		return "users other than root and the server's user may change it, its interpreter,"
			" or a directory or link on the way to them";
	if (error == EINVAL && unnamed)
		return "a command is an absolute path, or a name without a slash";
	return strerror(error);
}

const char *
program_trouble(const char *name, FrameText tool_path)
{
	char	   *path;
	int			error = find_program(name, tool_path, &path);
	bool		interpreter = error == ENOENT && path && access(path, X_OK) == 0;
	bool		unnamed = path == NULL;

	free(path);
	if (interpreter)
		return PROGRAM_NO_INTERPRETER;
	return error == 0 ? NULL : program_error(error, unnamed);
}
