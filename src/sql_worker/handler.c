/*
 * handler.c
 *	  Runs a SQL handler once: in a subtransaction, under its timeout, with
 *	  its settings undone after it.
 *
 * The process is connected as the handler's role (SQL worker) or has taken its
 * identity for the call (run_inline), so there is nothing to escape to.  A
 * batch must be invisible to handlers: in a shared transaction lock waits are
 * short, an overrun is cut off, and both only mean "again, alone".  Timers set
 * QueryCancelPending themselves; they are armed and disarmed with the slot's
 * phase, so that no cancel ever meets bookkeeping.  The two timers and the
 * dispatcher take turns (slots.h): after a cancel, the handler has a moment to
 * catch it.
 *
 * In a worker the handler leaves nothing for the commit, which has no timeout
 * and takes no cancel.  Deferred triggers fire, and the queries of WITH HOLD cursors run to
 * their end, inside the job's subtransaction.  Then all its cursors are
 * dropped.
 */
#include "jobq.h"

#include <math.h>

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "tcop/pquery.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "base/errors.h"
#include "base/interval.h"
#include "base/texts.h"
#include "shared/current_job.h"
#include "sql_worker/handler.h"
#include "sql_worker/handler_lookup.h"
#include "sql_worker/run_inline.h"

#define BATCH_LOCK_TIMEOUT	20		/* ms */
#define BATCH_OVERRUN_MS	100

static Run *current_run = NULL;

static TimeoutId job_timeout = MAX_TIMEOUTS;
static TimeoutId overrun_timeout = MAX_TIMEOUTS;
static volatile sig_atomic_t timed_out = false;
static volatile sig_atomic_t overrun = false;
static volatile sig_atomic_t timeouts_ignored = 0;
static int	ignored_limit = 5;
static pg_atomic_uint64 inline_cancel;	/* run_inline has no cell */
static pg_atomic_uint64 *last_cancel = &inline_cancel;	/* of the current run */

/* ---------- timers ---------- */

static void
cancel_myself(void)
{
	InterruptPending = true;
	QueryCancelPending = true;
	SetLatch(MyLatch);
}

/*
 * Repeats every second; a handler that ignores the cancel for long enough
 * loses its process.  A process that ends for another reason may take as long
 * to roll back: its job has not timed out.
 */
static void
job_timeout_handler(void)
{
	Slot	   *slot = MySlot;

	if (proc_exit_inprogress)
		return;
	timed_out = true;
	if (++timeouts_ignored > ignored_limit && slot != NULL && slot->current >= 0)
	{
		slot->cells[slot->current].timed_out = true;
		ProcDiePending = true;
		cancel_myself();
	}
	else if (take_cancel_turn(last_cancel))
		cancel_myself();
}

static void
overrun_handler(void)
{
	overrun = true;
	if (take_cancel_turn(last_cancel))
		cancel_myself();
}

static int64
run_timeout_us(Run *run)
{
	if (JOB_NULL(run->job, Q_timeout))
		return run->type->timeout_us;
	return interval_to_us(DatumGetIntervalP(JOB_ATT(run->job, Q_timeout)));
}

/*
 * Starts the timers one by one: enable_timeouts lets a repeated one fire first
 * after its interval.
 */
static void
start_timers(Run *run)
{
	int64		timeout_us = run_timeout_us(run);

	if (timeout_us > 0)
		enable_timeout_every(job_timeout, run->outcome.started_at + timeout_us, 1000);
	if (run->shared)
		enable_timeout_after(overrun_timeout, BATCH_OVERRUN_MS);
}

static void
stop_timers(Run *run)
{
	DisableTimeoutParams timers[2] = {{job_timeout, false}, {overrun_timeout, false}};

	if (job_timeout != MAX_TIMEOUTS)
		disable_timeouts(timers, run->shared ? 2 : 1);
}

/*
 * Sets the deadline that the dispatcher watches: PostgreSQL's timers are late
 * when the wall clock was set back.
 */
static void
set_deadline(Run *run)
{
	Cell	   *cell = &MySlot->cells[run->cell];
	int64		timeout_us = run_timeout_us(run);

	cell->patience = ignored_limit;
	cell->deadline = timeout_us > 0 ? cell->begun_at + timeout_us : 0;
}

static void
arm(Run *run)
{
	if (job_timeout == MAX_TIMEOUTS)
	{
		job_timeout = RegisterTimeout(USER_TIMEOUT, job_timeout_handler);
		overrun_timeout = RegisterTimeout(USER_TIMEOUT, overrun_handler);
		pg_atomic_init_u64(&inline_cancel, 0);
	}
	timed_out = false;
	overrun = false;
	timeouts_ignored = 0;
	ignored_limit = (int) Max(1, run->type->kill_grace_us / USECS_PER_SEC);
	last_cancel = run->cell >= 0 ? &MySlot->cells[run->cell].last_cancel : &inline_cancel;
	pg_atomic_write_u64(last_cancel, 0);
	if (run->cell >= 0)
	{
		set_deadline(run);
		slot_enter(run->cell, PHASE_HANDLER);
		RESUME_CANCEL_INTERRUPTS();
		if (slot_cancelled(run->cell, NULL, NULL) != CANCEL_NONE)
			cancel_myself();	/* the request came before the handler could be signalled */
	}
	start_timers(run);
}

/*
 * Ends the phase in which cancels arrive, and forgets a pending one.  (The
 * hold-off count is zero: after an error, and after a return as arm() set it.)
 */
static void
disarm(Run *run)
{
	stop_timers(run);
	if (run->cell >= 0)
	{
		HOLD_CANCEL_INTERRUPTS();
		slot_enter(run->cell, PHASE_SETTLING);
		QueryCancelPending = false;
	}
	else if (timed_out)
		QueryCancelPending = false;
}

Run *
handler_now(void)
{
	return current_run;
}

void
handler_note_conspicuous(void)
{
	if (current_run)
		current_run->closes_batch = true;
}

void
handler_note_held_cursor(const char *name)
{
	MemoryContext old;

	if (current_run == NULL)
		return;
	old = MemoryContextSwitchTo(current_run->context);
	current_run->held = lappend(current_run->held, pstrdup(name));
	MemoryContextSwitchTo(old);
}

/* ---------- one run ---------- */

/*
 * Runs the rest of a WITH HOLD cursor's query, as the commit would; false:
 * there is no further cursor.
 */
static bool
run_held_cursor(Run *run)
{
	Portal		portal;

	if (run->held == NIL)
		return false;
	portal = GetPortalByName(linitial(run->held));
	run->held = list_delete_first(run->held);
	if (!PortalIsValid(portal) || (portal->cursorOptions & CURSOR_OPT_HOLD) == 0)
		return true;			/* closed meanwhile */
	if (portal->status == PORTAL_READY)
		(void) PortalRunFetch(portal, FETCH_FORWARD, FETCH_ALL, None_Receiver);
	PortalDrop(portal, false);
	return true;
}

/*
 * Fires deferred triggers and runs held cursors until neither is left: each
 * may cause more of the other.  In a client's session deferred triggers fire
 * at the client's commit, and held cursors are closed unread.
 */
static void
finish_deferred(Run *run)
{
	if (run->cell < 0)
	{
		inline_drop_cursors();
		return;
	}
	do
	{
		AfterTriggerFireDeferred();
	} while (run_held_cursor(run));
	PortalHashTableDeleteAll();
}

static Jsonb *
convert_result(Target *target, Datum result, MemoryContext context)
{
	MemoryContext old = MemoryContextSwitchTo(context);
	Jsonb	   *j;

	if (target->rettype == JSONOID)
	{
		char	   *json = TextDatumGetCString(result);

		j = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(json)));
	}
	else
		j = (Jsonb *) PG_DETOAST_DATUM_COPY(result);
	MemoryContextSwitchTo(old);
	return j;
}

/*
 * Sets jobq.tenant to the job's while its handler runs; most jobs have none,
 * and the session has none set.
 */
static void
set_tenant(Job *job)
{
	const char *tenant = JOB_NULL(job, Q_tenant) ? "" : TextDatumGetCString(JOB_ATT(job, Q_tenant));

	if (strcmp(tenant, jobq_tenant) != 0)
		(void) set_config_option("jobq.tenant", tenant, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE,
								 true, 0, false);
}

static void
call_handler(Run *run)
{
	LOCAL_FCINFO(fcinfo, 1);
	Target	   *target = handler_target(run->type);
	Datum		result;
	Jsonb	   *converted = NULL;

	set_tenant(run->job);
	if (run->search_path)
		(void) set_config_option("search_path", run->search_path, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	InitFunctionCallInfoData(*fcinfo, &target->flinfo, target->nargs, InvalidOid, NULL, NULL);
	if (target->nargs == 1)
	{
		fcinfo->args[0].value = JOB_ATT(run->job, Q_payload);
		fcinfo->args[0].isnull = false;
	}
	PushActiveSnapshot(GetTransactionSnapshot());
	run->called = true;
	result = FunctionCallInvoke(fcinfo);
	/* while the temporary table is there that may have the value */
	if (!fcinfo->isnull && target->rettype != VOIDOID)
		converted = convert_result(target, result, run->context);
	finish_deferred(run);
	run->outcome.result = converted;
	run->outcome.has_result = converted != NULL;
	PopActiveSnapshot();
}

char *
handler_timeout_message(Run *run)
{
	return psprintf("timeout after %s", span_text(run_timeout_us(run)));
}

/*
 * Reads the interval in the DETAIL of RAISE ... ERRCODE 'JQ003'; false: it is
 * no interval.
 */
static bool
read_snooze(const char *detail, int64 *delay_us)
{
	volatile bool ok = true;
	MemoryContext context = CurrentMemoryContext;
	uint32		held_off = QueryCancelHoldoffCount;

	PG_TRY();
	{
		Interval   *span = interval_from_text(detail);

		*delay_us = interval_to_us(span);
		ok = !INTERVAL_NOT_FINITE(span) && *delay_us >= 0 && *delay_us <= JOBQ_MAX_INTERVAL_US;
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		FlushErrorState();
		QueryCancelHoldoffCount = held_off; /* an error resets it */
		ok = false;
	}
	PG_END_TRY();
	return ok;
}

/* Snoozes the job, or fails the attempt with a message about the DETAIL. */
static void
snooze_from_error(Outcome *o, ErrorData *edata)
{
	if (edata->detail == NULL)
		o->message = psprintf("DETAIL of JQ003 is missing, it must be an interval: %s", o->message);
	else if (!read_snooze(edata->detail, &o->delay_us))
		o->message = psprintf("DETAIL of JQ003: \"%s\" is not an interval of 0..10000 years: %s",
							  argument_shown(edata->detail), o->message);
	else
		o->kind = OUTCOME_SNOOZED;
	o->message = bounded_text(o->message);
}

static void
fail_with(Run *run, ErrorData *edata)
{
	Outcome    *o = &run->outcome;

	o->kind = OUTCOME_FAILED;
	o->code_given = run->called;
	if (run->restricted && edata->hint == NULL && edata->message_id != NULL &&
		strstr(edata->message_id, "security-restricted operation") != NULL)
		edata->hint = psprintf("jobq.run_inline restricts handlers of another role: call it in a session of \"%s\".", run->type->run_as);
	o->message = bounded_text(pstrdup(edata->message ? edata->message : ""));
	o->code = pstrdup(unpack_sql_state(edata->sqlerrcode));
	o->details = details_of_error(edata);
}

static void
outcome_from_error(Run *run, ErrorData *edata)
{
	Outcome    *o = &run->outcome;

	fail_with(run, edata);
	switch (edata->sqlerrcode)
	{
		case ERRCODE_JOBQ_SKIP:
			o->kind = OUTCOME_SKIPPED;
			break;
		case ERRCODE_JOBQ_DISCARD:
			o->permanent = true;
			break;
		case ERRCODE_JOBQ_SNOOZE:
			snooze_from_error(o, edata);
			break;
		default:
			return;
	}
	if (o->kind != OUTCOME_FAILED)
		o->code = NULL;
	o->details = NULL;
}

/*
 * Finds the source of the cancel: a timeout, a user, DDL, the batch, or an
 * unknown one.
 */
static void
outcome_from_cancel(Run *run, ErrorData *edata)
{
	Outcome    *o = &run->outcome;
	char		reason[JOBQ_REASON_LEN];
	bool		has_reason = false;
	CancelKind	kind = run->cell >= 0 ? slot_cancelled(run->cell, reason, &has_reason) : CANCEL_NONE;

	if (kind == CANCEL_USER)
	{
		o->kind = OUTCOME_CANCELLED;
		o->message = has_reason ? pstrdup(reason) : NULL;
	}
	else if (kind != CANCEL_NONE && kind != CANCEL_TIMEOUT)
		run->end = RUN_RELEASED;
	else if (timed_out || kind == CANCEL_TIMEOUT)
	{
		o->kind = OUTCOME_FAILED;
		o->code = pstrdup("timeout");
		o->message = handler_timeout_message(run);
	}
	else if (overrun || !run->stray_before)
		run->end = RUN_ALONE;
	else
		fail_with(run, edata);
}

/* True for errors that a shared transaction may cause, rather than the job. */
static bool
company_error(int sqlerrcode)
{
	return sqlerrcode == ERRCODE_T_R_DEADLOCK_DETECTED ||
		sqlerrcode == ERRCODE_T_R_SERIALIZATION_FAILURE ||
		sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE;
}

static void
handle_error(Run *run, ErrorData *edata)
{
	run->end = RUN_OUTCOME;
	if (edata->sqlerrcode == ERRCODE_QUERY_CANCELED && run->cell >= 0)
		outcome_from_cancel(run, edata);
	else if (edata->sqlerrcode == ERRCODE_QUERY_CANCELED && timed_out)
		outcome_from_cancel(run, edata);
	else if (edata->sqlerrcode == ERRCODE_QUERY_CANCELED)
		run->callers_cancel = edata;
	else if (run->shared && company_error(edata->sqlerrcode))
		run->end = RUN_ALONE;
	else
		outcome_from_error(run, edata);
}

/* Takes the outcome that the handler has set before it returned, if any. */
static void
outcome_from_return(Run *run)
{
	Outcome    *o = &run->outcome;

	run->end = RUN_OUTCOME;
	o->kind = OUTCOME_COMPLETED;
	if (!run->said)
		return;
	o->kind = run->said_kind;
	o->permanent = run->said_permanent;
	o->message = run->said_reason;
	o->delay_us = run->said_delay_us;
	if (o->kind == OUTCOME_FAILED)
		o->code = "JQ002";
}

static void
prepare_run(Run *run)
{
	memset(&run->outcome, 0, sizeof(Outcome));
	run->outcome.progress = NAN;
	run->outcome.source = "sql";
	run->outcome.started_at = GetCurrentTimestamp();
	run->log = NIL;
	run->said = false;
	run->progress = NAN;
	run->progress_data = NULL;
	run->progress_told = 0;
	run->closes_batch = false;
	run->held = NIL;
	run->callers_cancel = NULL;
	run->called = false;
	if (run->cell >= 0)
	{
		MySlot->cells[run->cell].begun_at = mono_now();
		MySlot->cells[run->cell].started_at = run->outcome.started_at;
	}
}

void
handler_run(Run *run)
{
	MemoryContext old = MemoryContextSwitchTo(run->context);
	ResourceOwner owner = CurrentResourceOwner;
	Run		   *outer = current_run;
	const CurrentJob *outer_job = current_job();
	CurrentJob	self = {*JOB_ID(run->job), JOB_INT(run->job, Q_depth)};
	int			lock_timeout = LockTimeout;

	prepare_run(run);
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(run->context);
	/* past the GUC machinery, which would walk all settings for each job */
	if (run->shared)
		LockTimeout = BATCH_LOCK_TIMEOUT;
	PG_TRY();
	{
		int			nest = NewGUCNestLevel();

		current_run = run;
		current_job_set(&self);
		arm(run);
		CHECK_FOR_INTERRUPTS();
		call_handler(run);
		disarm(run);
		AtEOXact_GUC(false, nest);
		ReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(run->context);
		CurrentResourceOwner = owner;
		outcome_from_return(run);
	}
	PG_CATCH();
	{
		ErrorData  *edata;

		disarm(run);
		MemoryContextSwitchTo(run->context);
		edata = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(run->context);
		CurrentResourceOwner = owner;
		handle_error(run, edata);
	}
	PG_END_TRY();
	LockTimeout = lock_timeout;
	current_run = outer;
	current_job_set(outer_job);
	run->outcome.ended_at = GetCurrentTimestamp();
	run->outcome.progress = run->progress;
	run->outcome.progress_data = run->progress_data;
	run->outcome.log = run->log;
	MemoryContextSwitchTo(old);
}
