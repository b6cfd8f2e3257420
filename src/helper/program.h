/*
 * program.h
 *	  Finds the file that a command executes, or the reason why it can't.
 *	  Compiled into the helper and the extension, like frame.h.
 */
#ifndef JOBQ_PROGRAM_H
#define JOBQ_PROGRAM_H

#include "frame.h"

#define PROGRAM_NO_INTERPRETER "the interpreter in its first line does not exist"

/*
 * Finds the file to execute for argv[0]; malloc'd.  Returns 0 or an errno;
 * with an errno, *path may still be an absolute name.
 */
extern int	find_program(const char *name, FrameText tool_path, char **path);

/* Returns the error as text. unnamed: the name leads to no path. */
extern const char *program_error(int error, bool unnamed);

/*
 * Returns why the program can't be started, as far as visible without a start;
 * NULL: it can.
 */
extern const char *program_trouble(const char *name, FrameText tool_path);

/*
 * trust.c: returns 0 if only root and this user can change the program at path
 * (absolute); else EPERM or another errno
 */
extern int	check_trust(const char *path, uid_t uid, gid_t gid);

#endif
