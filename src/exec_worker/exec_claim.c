/*
 * exec_claim.c
 *	  Claims jobs that the dispatcher has assigned to the exec worker.
 *
 * A claim sets the row to running and commits, before the tool starts; so no
 * start is ever forgotten.
 *
 * All jobs in the slot are claimed in one transaction (exec_transaction.c).
 * When it fails, each job is tried alone.  A job that fails alone is returned,
 * and the dispatcher delays it.  Jobs that need no tool are settled here:
 * cancelled jobs, attempts that a server crash ended, commands that can't be
 * built, and types with an owner that has lost a right.
 */
#include "jobq.h"

#include <unistd.h>

#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/interval.h"
#include "base/job_status.h"
#include "base/json_build.h"
#include "exec_worker/exec_internal.h"
#include "settle/alerts.h"
#include "settle/breaker_news.h"
#include "settle/settle_counts.h"
#include "shared/breaker.h"
#include "shared/stat_changes.h"

/* Result of one job in the transaction; applied after the commit. */
typedef struct Claim
{
	ExecJob    *job;
	bool		start;			/* false: no tool starts, only a report */
	CellReport	report;
	bool		settled;
	bool		failed;
	BreakerNote breaker;
	JobStatus	status;
	FrameStart	frame;
	Size		answer;
} Claim;

struct Claims
{
	Ledger	   *ledger;
	bool		can_start;		/* a helper runs */
	int			n;
	Claim		all[JOBQ_CELLS];
};

/* ---------- claiming ---------- */

/* Settles the job in the open transaction. */
static void
settle_now(Claims *batch, Claim *claim, Job *job, JobType *type, Outcome *outcome)
{
	outcome->ended_at = GetCurrentTimestamp();
	outcome->worker = MySlot->name;
	outcome->source = "helper";
	outcome->progress = get_float8_nan();
	if (ref_leased(&claim->job->ref))
	{
		outcome->worker = JOB_NULL(job, Q_worker) ? NULL : TextDatumGetCString(JOB_ATT(job, Q_worker));
		outcome->source = "dispatcher";
		outcome_keep_progress(job, outcome);
	}
	claim->status = settle(batch->ledger, job, type, outcome);
	claim->settled = true;
	claim->failed = outcome->kind == OUTCOME_FAILED;
	breaker_take_down(&claim->breaker, type, outcome);
	claim->report = REPORT_SETTLED;
}

/* Fails an attempt before its tool starts. */
static void
fail_now(Claims *batch, Claim *claim, Job *job, JobType *type, const char *message, int sqlstate)
{
	Outcome		outcome = {.kind = OUTCOME_FAILED};

	outcome.started_at = GetCurrentTimestamp();
	outcome.message = unconstify(char *, message);
	outcome.code = unpack_sql_state(sqlstate);
	settle_now(batch, claim, job, type, &outcome);
}

static int64
job_timeout(Job *job, JobType *type)
{
	if (JOB_NULL(job, Q_timeout))
		return type ? type->timeout_us : 0;
	return interval_to_us(DatumGetIntervalP(JOB_ATT(job, Q_timeout)));
}

/*
 * Sets the outcome of a job whose client has lost it: the lease or the deadline
 * is over, or its connection is gone.
 */
static void
lose_lease(Job *job, JobType *type, const JobRef *ref, Outcome *o)
{
	if (ref->charge == CHARGE_DEADLINE)
	{
		o->message = psprintf("timeout after %s", span_text(job_timeout(job, type)));
		o->code = "timeout";
	}
	else if (ref->charge == CHARGE_STALL)
	{
		o->message = type == NULL ? "stalled: no heartbeat" :
			psprintf("stalled: no heartbeat for %s", span_text(type->stall_us));
		o->code = "stalled";
	}
	else
	{
		o->message = ref->charge == CHARGE_CONNECTION ?
			"the lease has ended: the connection that claimed the job is gone" :
			"the lease has run out: no heartbeat of its worker has come in time";
		o->code = "lease_expired";
	}
	if (!JOB_NULL(job, Q_cancel_requested) && DatumGetBool(JOB_ATT(job, Q_cancel_requested)))
	{
		o->kind = OUTCOME_CANCELLED;
		o->message = JOB_NULL(job, Q_error_msg) ? NULL : TextDatumGetCString(JOB_ATT(job, Q_error_msg));
		o->code = NULL;
	}
}

/*
 * Settles a job that was cancelled while it waited, or is running without an
 * exec worker.
 */
static void
finish_without_tool(Claims *batch, Claim *claim, Job *job, JobType *type, Cell *cell)
{
	Outcome		outcome = {.kind = OUTCOME_FAILED};

	outcome.begun = job->status == JOB_RUNNING;
	if (outcome.begun && !JOB_NULL(job, Q_started_at))
		outcome.started_at = DatumGetTimestampTz(JOB_ATT(job, Q_started_at));
	if (cell->ref.flags & REF_CANCEL)
	{
		outcome.kind = OUTCOME_CANCELLED;
		outcome.message = cell->has_reason ? pstrdup(cell->reason) : NULL;
	}
	else if (ref_leased(&cell->ref))
		lose_lease(job, type, &cell->ref, &outcome);
	else
	{
		if (!outcome.begun)
			outcome.started_at = GetCurrentTimestamp();
		outcome.message = "the server or its exec worker stopped while the tool ran";
		outcome.code = "server_crash";
	}
	settle_now(batch, claim, job, type, &outcome);
}

/* Returns why the type may not run commands; NULL: it may. */
static char *
missing_right(JobType *type)
{
	Oid			owner = job_type_owner(type);
	Oid			run_as = job_type_run_as(type);

	if (!OidIsValid(owner) || !OidIsValid(run_as))
		return psprintf("role \"%s\" of job type \"%s\" does not exist any more",
						OidIsValid(owner) ? type->run_as : type->owner, type->name);
	if (!has_privs_of_role(owner, ROLE_PG_EXECUTE_SERVER_PROGRAM))
		return psprintf("permission denied: owner \"%s\" of job type \"%s\" is no member of "
						"pg_execute_server_program", GetUserNameFromId(owner, false), type->name);
	if (!member_can_set_role(owner, run_as))
		return psprintf("permission denied: owner \"%s\" of job type \"%s\" may not become role \"%s\"",
						GetUserNameFromId(owner, false), type->name, GetUserNameFromId(run_as, false));
	return NULL;
}

static const char *
node_name(void)
{
	static char name[256] = "";

	if (name[0] == '\0' && (gethostname(name, sizeof(name) - 1) != 0 || name[0] == '\0'))
		strlcpy(name, "localhost", sizeof(name));
	return name;
}

/* Writes the row as running. */
static void
mark_running(Claims *batch, ExecJob *x, Job *job)
{
	JOB_ATT(job, Q_status) = ObjectIdGetDatum(status_oid(JOB_RUNNING));
	JOB_ATT(job, Q_started_at) = TimestampTzGetDatum(x->started_at);
	JOB_ATT(job, Q_worker) = CStringGetTextDatum(MySlot->name);
	JOB_ATT(job, Q_node) = CStringGetTextDatum(node_name());
	JOB_ATT(job, Q_rev) = Int32GetDatum(JOB_INT(job, Q_rev) + 1);
	JOB_ATT(job, Q_runs) = Int32GetDatum(JOB_INT(job, Q_runs) + 1);
	job->nulls[Q_started_at - 1] = job->nulls[Q_worker - 1] = job->nulls[Q_node - 1] = false;
	job->nulls[Q_progress - 1] = job->nulls[Q_progress_data - 1] = true;
	queue_update(&batch->ledger->queue, job);
	stat_started(x->ref.type_id, due_since(job), x->started_at);
	x->ref.tid = job->tid;
	x->ref.rev = JOB_INT(job, Q_rev);
	x->ref.attempts = JOB_INT(job, Q_attempts);
	x->ref.runs = JOB_INT(job, Q_runs);
}

/* Copies a column of a type with a length word. */
static void
remember_column(ExecJob *x, Job *job, int att)
{
	if (JOB_NULL(job, att))
		return;
	JOB_ATT(&x->row, att) = PointerGetDatum(PG_DETOAST_DATUM_COPY(JOB_ATT(job, att)));
	x->row.nulls[att - 1] = false;
}

/* Keeps the columns that events and artifacts need after the transaction. */
static void
remember_row(ExecJob *x, Job *job)
{
	MemoryContext caller = MemoryContextSwitchTo(x->context);

	memset(x->row.nulls, true, sizeof(x->row.nulls));
	JOB_ATT(&x->row, Q_id) = UUIDPGetDatum(&x->ref.id);
	JOB_ATT(&x->row, Q_attempts) = JOB_ATT(job, Q_attempts);
	x->row.nulls[Q_id - 1] = x->row.nulls[Q_attempts - 1] = false;
	remember_column(x, job, Q_tenant);
	remember_column(x, job, Q_task_key);
	if (!JOB_NULL(job, Q_workflow_id))
	{
		JOB_ATT(&x->row, Q_workflow_id) = UUIDPGetDatum(memcpy(palloc(UUID_LEN), DatumGetUUIDP(JOB_ATT(job, Q_workflow_id)), UUID_LEN));
		x->row.nulls[Q_workflow_id - 1] = false;
	}
	if (!JOB_NULL(job, Q_keep_until))
	{
		JOB_ATT(&x->row, Q_keep_until) = JOB_ATT(job, Q_keep_until);
		x->row.nulls[Q_keep_until - 1] = false;
	}
	if (!JOB_NULL(job, Q_keep_completed))
	{
		JOB_ATT(&x->row, Q_keep_completed) = IntervalPGetDatum(memcpy(palloc(sizeof(Interval)), DatumGetIntervalP(JOB_ATT(job, Q_keep_completed)), sizeof(Interval)));
		x->row.nulls[Q_keep_completed - 1] = false;
	}
	MemoryContextSwitchTo(caller);
}

static void
remember_log_fields(ExecJob *x, Jsonb *fields)
{
	if (fields)
		x->log_fields = MemoryContextStrdup(x->context, JsonbToCString(NULL, &fields->root, VARSIZE(fields)));
}

static void
add_claimed_event(Claims *batch, ExecJob *x, JobType *type)
{
	Event		event = {.ts = x->started_at, .attempt = JOB_INT(&x->row, Q_attempts), .type = "claimed",
	.source = "helper", .level = "info"};
	JsonBuild	b;

	json_begin_object(&b);
	json_add_string(&b, "worker", MySlot->name);
	json_add_string(&b, "node", node_name());
	event.data = json_end_object(&b);
	event_add(&batch->ledger->events, x->row.values, x->row.nulls, type->name, &event);
}

static void
claim_to_start(Claims *batch, Claim *claim, Job *job, JobType *type)
{
	ExecJob    *x = claim->job;
	ErrorData  *error;
	char	   *refusal = missing_right(type);

	if (refusal)
	{
		fail_now(batch, claim, job, type, refusal, ERRCODE_INSUFFICIENT_PRIVILEGE);
		return;
	}
	x->all_events = EVENTS_WANTED(type, EVENTS_ALL);
	x->started_at = GetCurrentTimestamp();
	x->timeout_us = job_timeout(job, type);
	x->kill_grace_us = type->kill_grace_us;
	JOB_ATT(job, Q_attempts) = Int32GetDatum(JOB_INT(job, Q_attempts) + 1);
	error = exec_build_start(x, job, type, &claim->frame, &claim->answer);
	if (error)
	{
		JOB_ATT(job, Q_attempts) = Int32GetDatum(JOB_INT(job, Q_attempts) - 1);
		fail_now(batch, claim, job, type, error->message, error->sqlerrcode);
		return;
	}
	mark_running(batch, x, job);
	/*
	 * Set before readers see the claim.  A job of a warm instance may get no
	 * STARTED, so it does not count as starting.
	 */
	MySlot->cells[x->cell].starting = !x->warm;
	pg_write_barrier();
	remember_row(x, job);
	remember_log_fields(x, log_fields(type, DatumGetJsonbP(JOB_ATT(job, Q_payload))));
	if (x->all_events)
		add_claimed_event(batch, x, type);
	claim->start = true;
}

static void
claim_one(Claims *batch, Claim *claim)
{
	ExecJob    *x = claim->job;
	Cell	   *cell = &MySlot->cells[x->cell];
	JobType    *type;
	Job			job;

	claim->start = claim->settled = false;
	claim->report = REPORT_NOT_MINE;
	x->ref = cell->ref;
	if (queue_lock(&batch->ledger->queue, &x->ref, &job) != LOCK_OK)
		return;
	type = job_type_by_id(x->ref.type_id);
	if (ref_settles(&cell->ref))
		finish_without_tool(batch, claim, &job, type, cell);
	else if (job.status == JOB_RUNNING)
		claim->report = REPORT_NOT_MINE;
	else if (type == NULL || type->dropped || type->ncommand == 0 || !batch->can_start)
		claim->report = REPORT_STUCK;
	else if (type->breaker_failures > 0 && !breaker_admits(type->id, &x->ref.id))
		claim->report = REPORT_RELEASED;
	else
		claim_to_start(batch, claim, &job, type);
}

void
exec_claims_write(Claims *claims, Ledger *ledger)
{
	int			i;

	claims->ledger = ledger;
	for (i = 0; i < claims->n; i++)
	{
		if (ledger)
			claim_one(claims, &claims->all[i]);
		else
			/* the extension was dropped */
			claims->all[i].report = REPORT_NOT_MINE;
		if (claims->all[i].start)
			ForceSyncCommit();	/* for every synchronous_commit: a committed
								 * claim must survive a crash */
	}
	claims->ledger = NULL;
}

/* Applies the claim after the commit. */
static void
apply(Claim *claim)
{
	ExecJob    *x = claim->job;
	Cell	   *cell = &MySlot->cells[x->cell];
	Frame		frame = {.type = FRAME_START};

	if (!claim->start)
	{
		if (claim->settled)
		{
			breaker_note(&claim->breaker, &x->ref.id);
			pg_atomic_fetch_add_u64(&exec_db->counters.settled, 1);
			if (claim->failed)
				pg_atomic_fetch_add_u64(&exec_db->counters.failed_attempts, 1);
			if (claim->status >= JOB_COMPLETED)
				wake_waiters(exec_db, &x->ref.id, claim->status);
		}
		exec_job_forget(x, claim->report);
		return;
	}
	exec_job_started(x);
	cell->started_at = x->started_at;
	frame.u.start = claim->frame;
	if (!helper_queue(&frame, claim->answer))
	{
		int			error = errno;

		exec_job_ended(x, FRAME_START_FAILED, error, error == ENOMEM ? "out of memory" :
					   "the frame for jobq-helper is too long");
	}
}

/*
 * True if a helper will be started within a second; the jobs stay in the slot
 * until then.
 */
static bool
helper_comes_soon(void)
{
	MonoTime	at = helper_retry_at();

	return at != DT_NOEND && !mono_exceeds(mono_now(), at, 1000);
}

bool
exec_has_assigned(void)
{
	return pg_atomic_read_u32(&MySlot->head) != pg_atomic_read_u32(&MySlot->tail);
}

Claims *
exec_claims_make(void)
{
	Claims	   *claims = MemoryContextAllocZero(ExecTurnContext, sizeof(Claims));

	claims->can_start = exec_has_assigned() ? helper_ready() : helper_socket() != PGINVALID_SOCKET;
	return claims;
}

int
exec_claims_take(Claims *claims)
{
	ExecJob    *job;

	if (!claims->can_start && helper_comes_soon())
		return 0;
	while (claims->n < JOBQ_CELLS && (job = exec_job_take()) != NULL)
		claims->all[claims->n++] = (Claim) {.job = job};
	return claims->n;
}

void
exec_claims_apply(Claims *claims)
{
	int			i;

	for (i = 0; i < claims->n; i++)
		apply(&claims->all[i]);
}

int
exec_claims_count(const Claims *claims)
{
	return claims->n;
}

void
exec_claims_retry(Claims *claims, bool (*alone) (Claims *claims))
{
	Claims	   *one = MemoryContextAllocZero(ExecTurnContext, sizeof(Claims));
	int			i;

	one->can_start = claims->can_start;
	for (i = 0; i < claims->n; i++)
	{
		one->n = 1;
		one->all[0] = claims->all[i];
		if (!alone(one))
			exec_job_forget(claims->all[i].job, REPORT_STUCK);
	}
}
