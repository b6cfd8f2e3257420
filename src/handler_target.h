/*
 * handler_target.h
 *	  The function behind a job type's handler.
 */
#ifndef JOBQ_HANDLER_TARGET_H
#define JOBQ_HANDLER_TARGET_H

#include "job_types.h"

typedef struct Target
{
	int32		type_id;		/* hash key */
	bool		ready;
	FmgrInfo	flinfo;
	Oid			rettype;
	int			nargs;
} Target;

/*
 * The function and the right to call it: 42883 when it is gone, 42501 when the current user may not.
 * Valid until the next call.
 */
extern Target *handler_target(JobType *type);

#endif
