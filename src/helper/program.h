/*
 * program.h
 *	  Which file a command executes, and why it can't.  Like frame.h it is compiled into the helper and the extension.
 */
#ifndef JOBQ_PROGRAM_H
#define JOBQ_PROGRAM_H

#include "frame.h"

#define PROGRAM_NO_INTERPRETER "the interpreter in its first line does not exist"

/* The file to execute for argv[0]; malloc'd.  0 or an errno, also then *path may be set: an absolute name. */
extern int	find_program(const char *name, FrameText tool_path, char **path);

/* The reason in words; unnamed: the name leads to no path. */
extern const char *program_error(int error, bool unnamed);

/* Why it can't be started now, as far as can be seen without trying; NULL: it can. */
extern const char *program_trouble(const char *name, FrameText tool_path);

/* trust.c: 0 when only root and this user can change what path, absolute, executes; EPERM or another errno */
extern int	check_trust(const char *path, uid_t uid, gid_t gid);

#endif
