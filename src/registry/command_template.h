/*
 * command_template.h
 *	  The command of an exec type: its syntax, and how a payload fills it in.
 *
 * There is no shell.  `{name}` inside an element is replaced by the payload's
 * field of that name (dots go deeper); `{{` is a literal `{`, and so is every
 * brace that opens no placeholder.  The number of elements is fixed: no value
 * becomes a second argument, or an option unless options.allow_dash.
 */
#ifndef JOBQ_COMMAND_TEMPLATE_H
#define JOBQ_COMMAND_TEMPLATE_H

#include "registry/job_types.h"

#define JOBQ_MAX_ARGS		256
#define JOBQ_MAX_ARGS_SIZE	(128 * 1024 - 1)	/* of all of them; the kernel's limit for one */

/* ERROR 22023 or 54000 when type's command can't be built from payload. */
extern void command_check_payload(JobType *type, Jsonb *payload);
/* The same, and returns the arguments: palloc'd, NULL-terminated, in UTF-8. */
extern char **command_build(JobType *type, Jsonb *payload, int *argc);

#endif
