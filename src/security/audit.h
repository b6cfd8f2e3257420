/*
 * audit.h
 *	  Rows of jobq.audit: one for each management call.
 */
#ifndef JOBQ_AUDIT_H
#define JOBQ_AUDIT_H

#include "utils/jsonb.h"

/* A call that is recorded. */
typedef struct AuditCall
{
	Oid			caller;
	const char *action;			/* name of the function */
	Jsonb	   *args;			/* those that are not NULL, by name */
	Datum		old;			/* jsonb: the object's state before */
	bool		old_isnull;
} AuditCall;

/*
 * Begins to record a call of the function with fcinfo's arguments; false: it
 * is none that is recorded.  Both run as the owner of jobq's tables.
 */
extern bool audit_begin(AuditCall *call, Oid caller, const char *action, Oid function, FunctionCallInfo fcinfo);
/* Writes the row, in the call's transaction. */
extern void audit_end(AuditCall *call, Oid function, Datum result, bool isnull);

#endif
