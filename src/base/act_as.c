/*
 * act_as.c
 *	  The identity that a piece of code runs with.
 *
 * As in a SECURITY DEFINER function: an error gives the caller's identity
 * back with the (sub)transaction, so no caller needs PG_TRY for it.
 */
#include "jobq.h"

#include "miscadmin.h"

#include "base/act_as.h"
#include "base/relations.h"

Caller
act_as(Oid role, int restriction)
{
	Caller		caller;

	GetUserIdAndSecContext(&caller.role, &caller.security_context);
	SetUserIdAndSecContext(role, caller.security_context | SECURITY_LOCAL_USERID_CHANGE | restriction);
	return caller;
}

Caller
act_as_owner(void)
{
	return act_as(jobq_owner(), 0);
}

void
act_as_caller(Caller caller)
{
	SetUserIdAndSecContext(caller.role, caller.security_context);
}
