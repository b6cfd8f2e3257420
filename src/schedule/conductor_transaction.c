/*
 * conductor_transaction.c
 *	  Transactions of the conductor: see conductor_transaction.h.
 *
 * Once one has waited for a lock in vain, others wait a moment only, for a
 * while: many rows may be held, and each would stop the conductor.
 */
#include "jobq.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/proc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "schedule/conductor_transaction.h"
#include "workflow/run_begin.h"
#include "shared/shmem.h"

#define SHORT_WAIT_MS	5
#define IMPATIENT_US	INT64CONST(500000)

ErrorData *
conductor_run(void (*what) (void *), void *arg, bool flush)
{
	MemoryContext context = CurrentMemoryContext;
	ErrorData  *volatile error = NULL;
	int			commit = synchronous_commit;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		PushActiveSnapshot(GetTransactionSnapshot());
		what(arg);
		PopActiveSnapshot();
		if (!flush)
			synchronous_commit = SYNCHRONOUS_COMMIT_OFF;
		CommitTransactionCommand();
	}
	PG_CATCH();
	{
		HOLD_INTERRUPTS();
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		AbortOutOfAnyTransaction();
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	synchronous_commit = commit;
	MemoryContextSwitchTo(context);
	pgstat_report_stat(false);
	return error;
}

ErrorData *
conductor_transaction(void (*what) (void *), void *arg)
{
	static MonoTime impatient_until = 0;
	int			lock_timeout = LockTimeout;
	bool		patient = mono_now() >= impatient_until;
	ErrorData  *error;

	if (!patient)
		LockTimeout = Min(SHORT_WAIT_MS, lock_timeout);
	run_turn_begins();
	error = conductor_run(what, arg, false);
	LockTimeout = lock_timeout;
	if (patient && error != NULL && error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE)
		impatient_until = mono_now() + IMPATIENT_US;
	return error;
}

bool
conductor_error_is_transient(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE || error->sqlerrcode == ERRCODE_T_R_SERIALIZATION_FAILURE ||
		error->sqlerrcode == ERRCODE_T_R_DEADLOCK_DETECTED;
}
