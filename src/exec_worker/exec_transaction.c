/*
 * exec_transaction.c
 *	  Writes the settlements and claims of a turn of the exec worker's loop in
 *	  one transaction.
 *
 * An ended tool has already freed its cell (slot_ended), so the dispatcher
 * assigns the next job during the settlement.  The claim of that job is in the
 * same commit, so consecutive tools cost one commit each.  When the
 * transaction fails, each job is tried alone.
 */
#include "jobq.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "base/relations.h"
#include "exec_worker/exec_internal.h"
#include "settle/breaker_news.h"
#include "shared/wait_events.h"

#define FINAL_TRIES		50		/* of 20 ms */
#define CLAIM_DELAY_MS	1000	/* after an error before the first claim */

static MonoTime claim_at = 0;

typedef struct ExecTurn
{
	Settlements *settlements;	/* NULL: none */
	Claims	   *claims;			/* NULL: none */
	bool		take;			/* takes jobs from the slot, after the
								 * settlements */
	bool		final;			/* this process is exiting */
} ExecTurn;

ErrorData *
exec_in_transaction(void (*work) (void *arg), void *arg)
{
	ErrorData  *volatile error = NULL;

	PG_TRY();
	{
		SetCurrentStatementStartTimestamp();
		StartTransactionCommand();
		PushActiveSnapshot(GetTransactionSnapshot());
		work(arg);
		PopActiveSnapshot();
		CommitTransactionCommand();
	}
	PG_CATCH();
	{
		HOLD_INTERRUPTS();
		MemoryContextSwitchTo(ExecTurnContext);
		error = CopyErrorData();
		EmitErrorReport();
		AbortOutOfAnyTransaction();
		FlushErrorState();
		QueryCancelPending = false;
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(ExecTurnContext);
	pgstat_report_stat(false);
	return error;
}

/*
 * Locks the queue, with a bounded wait: the postmaster may wait for this
 * process to exit.
 */
static bool
lock_queue_soon(void)
{
	Oid			queue = jobq_relid("queue");
	int			tries = 0;

	if (!OidIsValid(queue))
		return false;
	while (!ConditionalLockRelationOid(queue, RowExclusiveLock))
	{
		if (tries++ >= FINAL_TRIES)
			return false;
		(void) WaitLatch(NULL, WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 20, jobq_wait(WAIT_HELPER_LEAVES));
	}
	return true;
}

static void
write_turn(void *arg)
{
	ExecTurn   *turn = arg;
	bool		here = OidIsValid(jobq_relid("queue"));
	Ledger		ledger;

	if (turn->final && here && !lock_queue_soon())
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("could not put back the jobs whose tools were stopped: jobq.queue is locked")));
	if (here)
		ledger_open(&ledger);
	if (turn->settlements)
		settlements_write(turn->settlements, here ? &ledger : NULL);
	if (turn->claims && (!turn->take || exec_claims_take(turn->claims) > 0))
	{
		exec_types_recheck();
		exec_claims_write(turn->claims, here ? &ledger : NULL);
	}
	if (here)
		ledger_close(&ledger);
	if (turn->settlements && !turn->final)
		settlements_release_children(turn->settlements);
}

static ErrorData *
settle_alone(Settlements *one, bool final)
{
	ExecTurn	turn = {.settlements = one, .final = final};
	ErrorData  *error = exec_in_transaction(write_turn, &turn);

	if (error == NULL)
		settlements_apply(one);
	return error;
}

static bool
claim_alone(Claims *one)
{
	ExecTurn	turn = {.claims = one};

	if (exec_in_transaction(write_turn, &turn) != NULL)
		return false;
	exec_claims_apply(one);
	return true;
}

MonoTime
exec_claim_at(void)
{
	return claim_at;
}

void
exec_turn(bool final)
{
	ExecTurn	turn = {.settlements = settlements_make(final), .take = true, .final = final};
	bool		may_claim = !final && claim_at <= mono_now();

	if (turn.settlements == NULL && (!may_claim || !exec_has_assigned()))
		return;
	if (may_claim)
		turn.claims = exec_claims_make();
	if (exec_in_transaction(write_turn, &turn) == NULL)
	{
		if (turn.settlements)
			settlements_apply(turn.settlements);
		if (turn.claims)
			exec_claims_apply(turn.claims);
	}
	else
	{
		if (turn.settlements)
			settlements_retry(turn.settlements, settle_alone, final);
		else if (exec_claims_count(turn.claims) == 0)
			claim_at = mono_now() + CLAIM_DELAY_MS * INT64CONST(1000);	/* no job is to blame */
		if (turn.claims)
			exec_claims_retry(turn.claims, claim_alone);
	}
	slot_report();
	breaker_tell();
}
