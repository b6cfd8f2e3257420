/*
 * handler.c
 *	  Runs a SQL handler once: in a subtransaction, under its timeout, with its settings undone after it.
 *
 * The process is connected as the handler's role (SQL worker) or has taken its identity for the
 * call (run_inline), so there is nothing to escape to.  A batch must be invisible to handlers: in a
 * shared transaction lock waits are short, an overrun is cut off, and both only mean "again, alone".
 * Timers set QueryCancelPending themselves; they are armed and disarmed with the slot's phase, so
 * that no cancel ever meets bookkeeping.  Deferred triggers fire inside the job's subtransaction.
 */
#include "jobq.h"

#include <math.h>

#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "handler.h"
#include "json_build.h"

#define BATCH_LOCK_TIMEOUT	"20ms"
#define BATCH_OVERRUN_MS	100

/* A resolved handler; the whole cache is dropped when any function or the registry changes. */
typedef struct Target
{
	int32		type_id;		/* hash key */
	bool		ready;
	FmgrInfo	flinfo;
	Oid			rettype;
	int			nargs;
} Target;

static HTAB *targets = NULL;
static MemoryContext targets_context = NULL;
static bool targets_stale = true;
static uint64 targets_generation = 0;

static Run *current_run = NULL;

static TimeoutId job_timeout = MAX_TIMEOUTS;
static TimeoutId overrun_timeout = MAX_TIMEOUTS;
static volatile sig_atomic_t timed_out = false;
static volatile sig_atomic_t overrun = false;
static volatile sig_atomic_t timeouts_ignored = 0;
static int	ignored_limit = 5;

PG_FUNCTION_INFO_V1(jobq_current_job_id);
PG_FUNCTION_INFO_V1(jobq_set_progress);
PG_FUNCTION_INFO_V1(jobq_log_event);
PG_FUNCTION_INFO_V1(jobq_skip);
PG_FUNCTION_INFO_V1(jobq_discard);
PG_FUNCTION_INFO_V1(jobq_snooze);

/* ---------- finding the function ---------- */

static void
forget_targets(Datum arg, int cacheid, uint32 hashvalue)
{
	targets_stale = true;
}

static void
reset_targets(void)
{
	HASHCTL		ctl;

	if (targets_context == NULL)
	{
		targets_context = AllocSetContextCreate(TopMemoryContext, "jobq handlers",
												ALLOCSET_DEFAULT_SIZES);
		CacheRegisterSyscacheCallback(PROCOID, forget_targets, (Datum) 0);
		CacheRegisterSyscacheCallback(NAMESPACEOID, forget_targets, (Datum) 0);
		CacheRegisterSyscacheCallback(TYPEOID, forget_targets, (Datum) 0);
		CacheRegisterSyscacheCallback(AUTHOID, forget_targets, (Datum) 0);
	}
	MemoryContextReset(targets_context);
	memset(&ctl, 0, sizeof(ctl));
	ctl.keysize = sizeof(int32);
	ctl.entrysize = sizeof(Target);
	ctl.hcxt = targets_context;
	targets = hash_create("jobq handlers", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	targets_stale = false;
	targets_generation = job_types_generation();
}

/* Looks the handler's signature up under a fixed path, whatever the role has set. */
static Oid
resolve_handler(const char *signature)
{
	int			nest = NewGUCNestLevel();
	Oid			oid;

	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	oid = DatumGetObjectId(DirectFunctionCall1(regprocedurein, CStringGetDatum(signature)));
	AtEOXact_GUC(true, nest);
	return oid;
}

static void
check_rights(Oid function, JobType *type)
{
	if (superuser() && !jobq_allow_superuser_handlers)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("job type \"%s\" runs as a superuser, which jobq.allow_superuser_handlers forbids",
						type->name)));
	if (object_aclcheck(ProcedureRelationId, function, GetUserId(), ACL_EXECUTE) != ACLCHECK_OK)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for function %s", type->handler)));
}

/* The function and the right to call it, checked again whenever anything about either has changed. */
static Target *
find_target(JobType *type)
{
	Target	   *target;
	bool		found;

	if (targets_stale || targets_generation != job_types_generation())
		reset_targets();
	target = hash_search(targets, &type->id, HASH_ENTER, &found);
	if (!found)
		target->ready = false;
	if (!target->ready)
	{
		Oid			oid = resolve_handler(type->handler);
		char		kind;

		check_rights(oid, type);
		kind = get_func_prokind(oid);
		if (kind != PROKIND_FUNCTION || get_func_retset(oid))
			ereport(ERROR,
					(errcode(ERRCODE_WRONG_OBJECT_TYPE),
					 errmsg("handler %s is not a plain function", type->handler)));
		fmgr_info_cxt(oid, &target->flinfo, targets_context);
		target->nargs = target->flinfo.fn_nargs;
		target->rettype = get_func_rettype(oid);
		target->ready = true;
	}
	return target;
}

/* ---------- timers ---------- */

static void
cancel_myself(void)
{
	InterruptPending = true;
	QueryCancelPending = true;
	SetLatch(MyLatch);
}

/* Repeats every second; a handler that swallows it long enough loses its process. */
static void
job_timeout_handler(void)
{
	timed_out = true;
	if (++timeouts_ignored > ignored_limit && MySlot != NULL && MySlot->current >= 0)
	{
		MySlot->cells[MySlot->current].timed_out = true;
		ProcDiePending = true;
	}
	cancel_myself();
}

static void
overrun_handler(void)
{
	overrun = true;
	cancel_myself();
}

static int64
run_timeout_us(Run *run)
{
	if (JOB_NULL(run->job, Q_timeout))
		return run->type->timeout_us;
	return interval_to_us(DatumGetIntervalP(JOB_ATT(run->job, Q_timeout)));
}

static void
arm(Run *run)
{
	int64		timeout_us = run_timeout_us(run);

	if (job_timeout == MAX_TIMEOUTS)
	{
		job_timeout = RegisterTimeout(USER_TIMEOUT, job_timeout_handler);
		overrun_timeout = RegisterTimeout(USER_TIMEOUT, overrun_handler);
	}
	timed_out = false;
	overrun = false;
	timeouts_ignored = 0;
	ignored_limit = (int) Max(1, run->type->kill_grace_us / USECS_PER_SEC);
	if (run->cell >= 0)
	{
		slot_enter(run->cell, PHASE_HANDLER);
		RESUME_CANCEL_INTERRUPTS();
	}
	if (timeout_us > 0)
		enable_timeout_every(job_timeout, GetCurrentTimestamp() + timeout_us, 1000);
	if (run->shared)
		enable_timeout_after(overrun_timeout, BATCH_OVERRUN_MS);
}

/*
 * From here on no cancel reaches us, and none that did is left over.  (After an error the hold-off
 * count is zero, after a return it is what arm() made it: zero as well.)
 */
static void
disarm(Run *run)
{
	if (job_timeout != MAX_TIMEOUTS)
	{
		disable_timeout(job_timeout, false);
		if (run->shared)
			disable_timeout(overrun_timeout, false);
	}
	if (run->cell >= 0)
	{
		HOLD_CANCEL_INTERRUPTS();
		slot_enter(run->cell, PHASE_SETTLING);
		QueryCancelPending = false;
	}
	else if (timed_out)
		QueryCancelPending = false;
}

/* ---------- what the handler leaves behind ---------- */

void
handler_note_conspicuous(void)
{
	if (current_run)
		current_run->closes_batch = true;
}

/* ---------- one run ---------- */

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

static void
call_handler(Run *run)
{
	LOCAL_FCINFO(fcinfo, 1);
	Target	   *target = find_target(run->type);
	Datum		result;

	if (run->shared)
		(void) set_config_option("lock_timeout", BATCH_LOCK_TIMEOUT, PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_SAVE, true, 0, false);
	if (!JOB_NULL(run->job, Q_tenant))
		(void) set_config_option("jobq.tenant", TextDatumGetCString(JOB_ATT(run->job, Q_tenant)),
								 PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	InitFunctionCallInfoData(*fcinfo, &target->flinfo, target->nargs, InvalidOid, NULL, NULL);
	if (target->nargs == 1)
	{
		fcinfo->args[0].value = JOB_ATT(run->job, Q_payload);
		fcinfo->args[0].isnull = false;
	}
	PushActiveSnapshot(GetTransactionSnapshot());
	result = FunctionCallInvoke(fcinfo);
	AfterTriggerFireDeferred();
	if (!fcinfo->isnull && target->rettype != VOIDOID)
	{
		run->outcome.result = convert_result(target, result, run->context);
		run->outcome.has_result = true;
	}
	PopActiveSnapshot();
}

static char *
copy_string(MemoryContext context, const char *s)
{
	return s ? MemoryContextStrdup(context, s) : NULL;
}

static char *
interval_text(int64 us)
{
	Interval	span = {.time = us};

	return DatumGetCString(DirectFunctionCall1(interval_out, IntervalPGetDatum(&span)));
}

static Jsonb *
error_details(ErrorData *edata)
{
	JsonBuild	b;

	json_begin_object(&b);
	json_add_string(&b, "detail", edata->detail);
	json_add_string(&b, "hint", edata->hint);
	json_add_string(&b, "context", edata->context);
	return json_end_object(&b);
}

/* RAISE ... ERRCODE 'JQ003' carries the interval in DETAIL. */
static bool
snooze_from_error(Outcome *o, ErrorData *edata)
{
	volatile bool ok = true;

	if (edata->detail == NULL)
		return false;
	PG_TRY();
	{
		Interval   *span = DatumGetIntervalP(DirectFunctionCall3(interval_in,
																 CStringGetDatum(edata->detail),
																 ObjectIdGetDatum(InvalidOid),
																 Int32GetDatum(-1)));

		o->delay_us = interval_to_us(span);
	}
	PG_CATCH();
	{
		FlushErrorState();
		ok = false;
	}
	PG_END_TRY();
	return ok && o->delay_us >= 0;
}

static void
fail_with(Outcome *o, ErrorData *edata)
{
	o->kind = OUTCOME_FAILED;
	o->message = pstrdup(edata->message ? edata->message : "");
	o->code = pstrdup(unpack_sql_state(edata->sqlerrcode));
	o->details = error_details(edata);
}

static void
outcome_from_error(Run *run, ErrorData *edata)
{
	Outcome    *o = &run->outcome;

	fail_with(o, edata);
	switch (edata->sqlerrcode)
	{
		case ERRCODE_JOBQ_SKIP:
			o->kind = OUTCOME_SKIPPED;
			break;
		case ERRCODE_JOBQ_DISCARD:
			o->permanent = true;
			break;
		case ERRCODE_JOBQ_SNOOZE:
			if (snooze_from_error(o, edata))
				o->kind = OUTCOME_SNOOZED;
			break;
		default:
			return;
	}
	if (o->kind != OUTCOME_FAILED)
		o->code = NULL;
	o->details = NULL;
}

/* Who cancelled us?  A timeout, a user, DDL, the batch, or nobody we know. */
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
	else if (kind != CANCEL_NONE)
		run->end = RUN_RELEASED;
	else if (timed_out)
	{
		o->kind = OUTCOME_FAILED;
		o->code = pstrdup("timeout");
		o->message = psprintf("timeout after %s", interval_text(run_timeout_us(run)));
	}
	else if (overrun || !run->stray_before)
		run->end = RUN_ALONE;
	else
		fail_with(o, edata);
}

/* In a shared transaction these say something of the company, not of the job. */
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
	else if (run->shared && company_error(edata->sqlerrcode))
		run->end = RUN_ALONE;
	else
		outcome_from_error(run, edata);
}

/* The handler returned: its own word on the outcome, if it gave one. */
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
take_progress(Run *run)
{
	Outcome    *o = &run->outcome;

	if (run->cell >= 0)
	{
		Cell	   *cell = &MySlot->cells[run->cell];

		SpinLockAcquire(&MySlot->mutex);
		run->progress = cell->progress;
		strlcpy(run->progress_data, cell->progress_data, sizeof(run->progress_data));
		SpinLockRelease(&MySlot->mutex);
	}
	o->progress = run->progress;
	o->progress_data = run->progress_data;
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
	run->progress_data[0] = '\0';
	run->closes_batch = false;
	if (run->cell >= 0)
		MySlot->cells[run->cell].started_at = run->outcome.started_at;
}

void
handler_run(Run *run)
{
	MemoryContext old = MemoryContextSwitchTo(run->context);
	ResourceOwner owner = CurrentResourceOwner;
	Run		   *outer = current_run;

	prepare_run(run);
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(run->context);
	PG_TRY();
	{
		int			nest = NewGUCNestLevel();

		current_run = run;
		arm(run);
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
	current_run = outer;
	run->outcome.ended_at = GetCurrentTimestamp();
	take_progress(run);
	MemoryContextSwitchTo(old);
}

bool
handler_write_log(Ledger *ledger, Run *run)
{
	Datum		charged = JOB_ATT(run->job, Q_attempts);
	ListCell   *lc;
	bool		ok = true;

	JOB_ATT(run->job, Q_attempts) = Int32GetDatum(DatumGetInt32(charged) + 1);
	foreach(lc, run->log)
	{
		LogLine    *line = lfirst(lc);

		ok = event_write(ledger, run->job, run->type, line->type, "sql", line->level,
						 line->message, line->data);
		if (!ok)
			break;
	}
	JOB_ATT(run->job, Q_attempts) = charged;
	return ok;
}

/* ---------- what a handler may call ---------- */

bool
handler_current_job(pg_uuid_t *id, int *depth)
{
	if (current_run == NULL)
		return false;
	*id = *JOB_ID(current_run->job);
	*depth = JOB_INT(current_run->job, Q_depth);
	return true;
}

const Run *
handler_inline_run(void)
{
	return current_run != NULL && current_run->cell < 0 ? current_run : NULL;
}

static Run *
need_run(const char *function)
{
	if (current_run == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("jobq.%s can only be called inside a SQL handler", function)));
	return current_run;
}

/* jobq._current_job_id() */
Datum
jobq_current_job_id(PG_FUNCTION_ARGS)
{
	pg_uuid_t  *id = palloc(sizeof(pg_uuid_t));
	int			depth;

	if (!handler_current_job(id, &depth))
		PG_RETURN_NULL();
	PG_RETURN_UUID_P(id);
}

static char *
arg_text(FunctionCallInfo fcinfo, int i)
{
	if (PG_NARGS() <= i || PG_ARGISNULL(i))
		return NULL;
	return text_to_cstring(PG_GETARG_TEXT_PP(i));
}

static void
need_arg(FunctionCallInfo fcinfo, int i, const char *name)
{
	if (PG_ARGISNULL(i))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("argument \"%s\" must not be NULL", name)));
}

/* jobq.set_progress(progress numeric, data jsonb): visible at once, in the slot */
Datum
jobq_set_progress(PG_FUNCTION_ARGS)
{
	Run		   *run = need_run("set_progress");
	double		progress;
	char	   *data = NULL;

	need_arg(fcinfo, 0, "progress");
	progress = DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow, PG_GETARG_DATUM(0)));
	if (isnan(progress) || progress < 0 || progress > 100)
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("argument \"progress\" is %s, outside 0..100",
						DatumGetCString(DirectFunctionCall1(numeric_out, PG_GETARG_DATUM(0))))));
	if (!PG_ARGISNULL(1))
	{
		data = JsonbToCString(NULL, &PG_GETARG_JSONB_P(1)->root, 0);
		if (strlen(data) >= JOBQ_PROGRESS_LEN)
			data = "{\"truncated\": true}";
	}
	if (run->cell >= 0)
	{
		Cell	   *cell = &MySlot->cells[run->cell];

		SpinLockAcquire(&MySlot->mutex);
		cell->progress = progress;
		strlcpy(cell->progress_data, data ? data : "", JOBQ_PROGRESS_LEN);
		SpinLockRelease(&MySlot->mutex);
	}
	else
	{
		run->progress = progress;
		strlcpy(run->progress_data, data ? data : "", JOBQ_PROGRESS_LEN);
	}
	PG_RETURN_VOID();
}

/* jobq.log_event(message, level, type, data, id, lease_token): kept aside until the attempt ends */
Datum
jobq_log_event(PG_FUNCTION_ARGS)
{
	Run		   *run = need_run("log_event");
	MemoryContext old = MemoryContextSwitchTo(run->context);
	LogLine    *line = palloc0(sizeof(LogLine));

	need_arg(fcinfo, 0, "message");
	line->message = arg_text(fcinfo, 0);
	line->level = PG_ARGISNULL(1) ? "info" : arg_text(fcinfo, 1);
	line->type = PG_ARGISNULL(2) ? "log" : arg_text(fcinfo, 2);
	if (!PG_ARGISNULL(3))
		line->data = (Jsonb *) PG_DETOAST_DATUM_COPY(PG_GETARG_DATUM(3));
	run->log = lappend(run->log, line);
	MemoryContextSwitchTo(old);
	PG_RETURN_VOID();
}

static void
say(Run *run, OutcomeKind kind, const char *reason)
{
	run->said = true;
	run->said_kind = kind;
	run->said_permanent = false;
	run->said_reason = copy_string(run->context, reason);
	run->said_delay_us = 0;
}

/* jobq.skip(reason) */
Datum
jobq_skip(PG_FUNCTION_ARGS)
{
	say(need_run("skip"), OUTCOME_SKIPPED, arg_text(fcinfo, 0));
	PG_RETURN_VOID();
}

/* jobq.discard(reason) */
Datum
jobq_discard(PG_FUNCTION_ARGS)
{
	Run		   *run = need_run("discard");

	need_arg(fcinfo, 0, "reason");
	say(run, OUTCOME_FAILED, arg_text(fcinfo, 0));
	run->said_permanent = true;
	PG_RETURN_VOID();
}

/* jobq.snooze(delay, reason) */
Datum
jobq_snooze(PG_FUNCTION_ARGS)
{
	Run		   *run = need_run("snooze");
	int64		delay;

	need_arg(fcinfo, 0, "delay");
	delay = interval_to_us(PG_GETARG_INTERVAL_P(0));
	if (delay < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"delay\" is negative: %s",
						DatumGetCString(DirectFunctionCall1(interval_out, PG_GETARG_DATUM(0))))));
	say(run, OUTCOME_SNOOZED, arg_text(fcinfo, 1));
	run->said_delay_us = delay;
	PG_RETURN_VOID();
}
