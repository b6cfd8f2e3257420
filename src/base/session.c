/*
 * session.c
 *	  Settings and transactions of our own processes.
 */
#include "jobq.h"

#include <signal.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/ipc.h"
#include "utils/guc.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "base/session.h"

#define TICK_MS		10

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
try_transaction(const char *who, bool (*what) (void *), void *arg)
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
				(errmsg_internal("jobq %s found a table in use and tries again later", who)));
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	pgstat_report_stat(true);
	pgstat_report_activity(STATE_IDLE, NULL);
	return answer;
}

/* ---------- a limit ---------- */

static TimeoutId tick_timeout = MAX_TIMEOUTS;
static bool (*tick_counts) (void);
static volatile sig_atomic_t ticks_left;

/*
 * A process that exits, at FATAL say, has its timers until the end, but no
 * MyProc.
 */
static void
tick_handler(void)
{
	if (proc_exit_inprogress || (tick_counts != NULL && !tick_counts()) || ticks_left == 0 || --ticks_left > 0)
		return;
	InterruptPending = true;
	QueryCancelPending = true;
}

static void
start_ticks(bool (*counts) (void), int ms)
{
	if (tick_timeout == MAX_TIMEOUTS)
		tick_timeout = RegisterTimeout(USER_TIMEOUT, tick_handler);
	tick_counts = counts;
	ticks_left = Max(1, ms / TICK_MS);
	enable_timeout_every(tick_timeout, TimestampTzPlusMilliseconds(GetCurrentTimestamp(), TICK_MS), TICK_MS);
}

/* A cancel of ours that came too late to be an error is none. */
static void
stop_ticks(void)
{
	disable_timeout(tick_timeout, false);
	if (ticks_left == 0)
		QueryCancelPending = false;
}

void
run_limited(void (*what) (void *), void *arg, bool (*counts) (void), int ms, const char *message)
{
	start_ticks(counts, ms);
	PG_TRY();
	{
		what(arg);
	}
	PG_CATCH();
	{
		stop_ticks();
		if (ticks_left > 0 || geterrcode() != ERRCODE_QUERY_CANCELED)
			PG_RE_THROW();
		FlushErrorState();
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg_internal("%s", message)));
	}
	PG_END_TRY();
	stop_ticks();
}
