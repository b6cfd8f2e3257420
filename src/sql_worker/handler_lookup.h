/*
 * handler_lookup.h
 *	  The function behind a job type's handler.
 */
#ifndef JOBQ_HANDLER_LOOKUP_H
#define JOBQ_HANDLER_LOOKUP_H

#include "registry/job_types.h"

typedef struct Target
{
	int32		type_id;		/* hash key */
	bool		ready;
	FmgrInfo	flinfo;
	Oid			rettype;
	int			nargs;
} Target;

/*
 * The function and the right to call it: 42883 when it is gone, 42501 when the
 * current user may not. Valid until the next call.
 */
extern Target *handler_target(JobType *type);

#endif
