/*
 * session.c
 *	  Settings of our own processes.
 */
#include "jobq.h"

#include "utils/guc.h"

#include "session.h"

void
set_for_session(const char *name, const char *value)
{
	SetConfigOption(name, value, PGC_SUSET, PGC_S_OVERRIDE);
}

void
neutralise_session(void)
{
	set_for_session("statement_timeout", "0");
	set_for_session("lock_timeout", "0");
	set_for_session("idle_in_transaction_session_timeout", "0");
	if (GetConfigOption("transaction_timeout", true, false) != NULL)
		set_for_session("transaction_timeout", "0");
	set_for_session("default_transaction_isolation", "read committed");
	set_for_session("default_transaction_read_only", "off");
	set_for_session("default_transaction_deferrable", "off");
}
