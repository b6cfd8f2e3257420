/*
 * session.c
 *	  Settings and transactions of our own processes.
 */
#include "jobq.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "base/session.h"

void
set_for_session(const char *name, const char *value)
{
	SetConfigOption(name, value, PGC_SUSET, PGC_S_OVERRIDE);
}

const char *
workdir_parent(void)
{
	const char *dir = getenv("TMPDIR");

	return dir && dir[0] == '/' ? dir : "/tmp";
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

bool
try_transaction(const char *process, bool (*what) (void *), void *arg)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool answer = false;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	PG_TRY();
	{
		answer = what(arg);
		CommitTransactionCommand();
	}
	PG_CATCH();
	{
		if (geterrcode() != ERRCODE_LOCK_NOT_AVAILABLE)
			PG_RE_THROW();
		HOLD_INTERRUPTS();
		MemoryContextSwitchTo(context);
		FlushErrorState();
		AbortOutOfAnyTransaction();
		RESUME_INTERRUPTS();
		answer = false;
		ereport(DEBUG1,
				(errmsg_internal("jobq %s found a table in use and tries again later", process)));
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	pgstat_report_stat(true);
	pgstat_report_activity(STATE_IDLE, NULL);
	return answer;
}
