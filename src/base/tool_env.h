/*
 * tool_env.h
 *	  The environment of tools: names that they can't be given, and the file
 *	  that jobq.tool_env_file names.
 *
 * The file has lines NAME=value.  A value is taken as it is, quotes and spaces
 * included; of two lines with one name the first counts.
 */
#ifndef JOBQ_TOOL_ENV_H
#define JOBQ_TOOL_ENV_H

/* The names that are refused, for hints. */
#define TOOL_ENV_REFUSED \
	"Refused are names that make a program load or run other code (LD_*, PATH, IFS, ENV, BASH_ENV, and PYTHON* but PYTHONUNBUFFERED and the like), and JOBQ_*, which jobq sets."

/* True for letters, digits and "_", with no digit at the begin. */
extern bool tool_env_is_name(const char *name, size_t len);

/* True for a name that makes a program load or run another file, and for jobq's own. */
extern bool tool_env_refused(const char *name);

/* Returns the file's text; "" without a file.  Raises an error if it can't be read. */
extern char *tool_env_file(void);

/* Returns a copy of the line NAME=value of this text; NULL when there is none. */
extern char *tool_env_line(const char *text, const char *name);

/* Writes a warning to the log for each line of the file that no tool can get. */
extern void tool_env_check_file(void);

#endif
