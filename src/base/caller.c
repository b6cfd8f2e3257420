/*
 * caller.c
 *	  The role that has called the management function which runs now.
 */
#include "jobq.h"

#include "miscadmin.h"
#include "utils/builtins.h"

#include "base/caller.h"

static Oid	current = InvalidOid;

PG_FUNCTION_INFO_V1(jobq_called_by);

Oid
caller_set(Oid caller)
{
	Oid			former = current;

	current = caller;
	return former;
}

static const char *
role_name(Oid role)
{
	char	   *name = GetUserNameFromId(role, true);

	return name != NULL ? quote_identifier(name) : psprintf("%u", role);	/* it was dropped meanwhile */
}

char *
caller_text(void)
{
	Oid			session = GetSessionUserId();

	if (!OidIsValid(current))
		return NULL;
	if (current == session)
		return pstrdup(role_name(session));
	return psprintf("%s as %s", role_name(session), role_name(current));
}

/* jobq_internal._called_by() */
Datum
jobq_called_by(PG_FUNCTION_ARGS)
{
	char	   *by = caller_text();

	if (by == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(by));
}
