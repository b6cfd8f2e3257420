/*
 * claim.c
 *	  jobq.claim: a session asks the dispatcher for jobs and writes the claims.
 *
 * The session puts its request into its place in shared memory (claims.h) and
 * waits for the answer on its latch.  The dispatcher chooses the jobs, counts
 * them as running and puts their refs into the place.  For each ref the session
 * locks the very version that it names, as an executor does, and writes the
 * claim with one update: status, token, lease, attempt.  More jobs than an
 * answer holds take several rounds.
 *
 * The ids of all refs are in the transaction's unpublished changes before any
 * row is written.  Its end publishes them, and the dispatcher reads the rows.
 * So a rollback, a cancelled statement and a lost connection give the jobs
 * back at once, and the attempt is not charged.  A client that is gone gets no
 * job (client_watch.h).
 */
#include "jobq.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/proc.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "base/errors.h"
#include "base/interval.h"
#include "base/job_status.h"
#include "base/json_build.h"
#include "base/relations.h"
#include "pull/claim_request.h"
#include "pull/client_watch.h"
#include "pull/pull_job.h"
#include "pull/wait_snapshot.h"
#include "security/access.h"
#include "settle/settle_counts.h"
#include "shared/breaker.h"
#include "shared/claim_session.h"
#include "shared/claims.h"
#include "shared/stat_changes.h"
#include "shared/wait_events.h"
#include "shared/xact_changes.h"
#include "tables/unique_key_lookup.h"

#define LOOK_AGAIN_MS	1000	/* for a dispatcher that has been replaced */
#define START_MS		5000	/* for a dispatcher that is being started */
#define ANSWER_MS		10000	/* for a turn of a dispatcher that runs, of a claim without a wait */

PG_FUNCTION_INFO_V1(jobq_claim);

/* ---------- asking ---------- */

static void
no_dispatcher(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("jobq.claim has no answer: the dispatcher of this database does not run"),
			 errhint("See jobq.health().")));
}

static void
extension_changes(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("jobq.claim no longer waits: the extension jobq is being updated or dropped"),
			 errhint("Claim again when that is over.")));
}

static void
silent_dispatcher(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("jobq.claim has no answer: the dispatcher of this database has not answered for %d s",
					ANSWER_MS / 1000),
			 errhint("See jobq.health().")));
}

/*
 * True if the dispatcher has ended no turn since then for ANSWER_MS.  One that
 * reads many jobs for the claim ends turns.
 */
static bool
dispatcher_is_silent(JobqDb *db, MonoTime asked, MonoTime now)
{
	return mono_exceeds(Max(asked, (MonoTime) pg_atomic_read_u64(&db->health.beat)), now, ANSWER_MS);
}

/*
 * Sleeps until the answer is there, at most until `until`; false: it is not.
 * Without a dispatcher the wait has its own limit, and so has a claim that
 * does not wait for jobs.  changes: Lifecycle.changes when the call began.
 */
static bool
await_answer(JobqDb *db, ClaimPlace *place, MonoTime until, uint32 changes)
{
	MonoTime	missing = 0;	/* no dispatcher has run since then; 0: one runs */
	MonoTime	asked = mono_now();

	while (!claim_is_answered(place))
	{
		MonoTime	now = mono_now();
		long		timeout = LOOK_AGAIN_MS;

		if (place->waits && now >= until)
			return false;
		if (place->waits && db->lifecycle.changes != changes)
			extension_changes();
		if (db->dispatcher.proc == NULL)
		{
			want_dispatcher(db);
			missing = missing ? missing : now;
			if (mono_exceeds(missing, now, START_MS))
				no_dispatcher();
		}
		else
		{
			missing = 0;
			if (!place->waits && dispatcher_is_silent(db, asked, now))
				silent_dispatcher();
		}
		if (place->waits)		/* a dispatcher that replaces this one finds the request */
			timeout = missing ? Min(mono_ms_left(now, until), LOOK_AGAIN_MS) : mono_ms_left(now, until);
		client_wait_latch(timeout, jobq_wait(WAIT_CLAIM));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	return true;
}

/* Asks for up to n jobs; returns the number of refs. */
static int
ask(const ClaimRequest *request, JobqDb *db, int n, MonoTime until, JobRef *refs)
{
	ClaimPlace *place = my_claim_place();
	bool		released;
	bool		answered;

	place->dboid = MyDatabaseId;
	place->roleid = request->caller;
	place->proc = MyProc;
	place->pid = MyProcPid;
	place->ntypes = request->ntypes;
	memcpy(place->types, request->types, sizeof(int32) * request->ntypes);
	place->scope.limited = request->scope.limited;
	place->scope.len = request->scope.len;
	memcpy(place->scope.tenants, request->scope.tenants, request->scope.len);
	place->begun = request->begun;
	place->wanted = n;
	place->waits = until != 0;
	place->lease_us = request->lease_us;
	released = place->waits && wait_snapshot_release(request->call);
	claim_ask(db, place);
	answered = await_answer(db, place, until, request->changes);
	if (released)
		wait_snapshot_renew();
	if (!answered)
		claim_withdraw();
	else if (place->nrefs > 0)
		client_check();			/* an error gives the refs back */
	return answered ? claim_take(place, refs) : 0;
}

/* ---------- writing a claim ---------- */

static bool
may_start(JobType *type, Job *job)
{
	return type != NULL && !type->dropped && job_type_is_pull(type) &&
		(job->status == JOB_PENDING || job->status == JOB_RETRY) &&
		(type->breaker_failures == 0 || breaker_admits(type->id, JOB_ID(job)));
}

static void
set(Job *job, int att, Datum value)
{
	JOB_ATT(job, att) = value;
	job->nulls[att - 1] = false;
}

/* Writes the job's row as claimed; its progress_data stays as a checkpoint. */
static void
write_row(PullCall *call, const ClaimRequest *request, Job *job, pg_uuid_t *token, TimestampTz now)
{
	Interval   *lease = palloc0(sizeof(Interval));

	lease->time = request->lease_us;
	set(job, Q_status, ObjectIdGetDatum(status_oid(JOB_RUNNING)));
	set(job, Q_started_at, TimestampTzGetDatum(now));
	set(job, Q_worker, CStringGetTextDatum(request->worker));
	job->nulls[Q_node - 1] = request->node == NULL;
	if (request->node)
		JOB_ATT(job, Q_node) = CStringGetTextDatum(request->node);
	set(job, Q_lease_token, UUIDPGetDatum(token));
	set(job, Q_lease_expires_at, TimestampTzGetDatum(now + request->lease_us));
	set(job, Q_lease, IntervalPGetDatum(lease));
	job->nulls[Q_cancel_requested - 1] = true;
	job->nulls[Q_progress - 1] = true;
	set(job, Q_rev, Int32GetDatum(JOB_INT(job, Q_rev) + 1));
	set(job, Q_attempts, Int32GetDatum(JOB_INT(job, Q_attempts) + 1));
	set(job, Q_runs, Int32GetDatum(JOB_INT(job, Q_runs) + 1));
	queue_update(&call->ledger.queue, job);
	stat_started(JOB_INT(job, Q_type_id), due_since(job), now);
}

static void
add_claimed_event(PullCall *call, const ClaimRequest *request, Job *job, JobType *type, TimestampTz now)
{
	Event		event = {.ts = now, .attempt = JOB_INT(job, Q_attempts), .type = "claimed", .level = "info"};
	JsonBuild	b;

	event.source = psprintf("worker:%s", request->worker);
	json_begin_object(&b);
	json_add_string(&b, "worker", request->worker);
	json_add_string(&b, "node", request->node);
	event.data = json_end_object(&b);
	event_add(&call->ledger.events, job->values, job->nulls, type->name, &event);
}

static int64
timeout_of(Job *job, JobType *type)
{
	return JOB_NULL(job, Q_timeout) ? type->timeout_us : interval_to_us(DatumGetIntervalP(JOB_ATT(job, Q_timeout)));
}

static void
copy_att(Datum *values, bool *nulls, int to, Job *job, int att)
{
	values[to] = JOB_ATT(job, att);
	nulls[to] = JOB_NULL(job, att);
}

/* Adds the claimed job to the result. */
static void
put_row(ReturnSetInfo *result, Job *job, JobType *type, int64 timeout_us)
{
	Datum		values[11] = {0};
	bool		nulls[11] = {0};

	copy_att(values, nulls, 0, job, Q_id);
	values[1] = CStringGetTextDatum(type->name);
	copy_att(values, nulls, 2, job, Q_payload);
	copy_att(values, nulls, 3, job, Q_attempts);
	copy_att(values, nulls, 4, job, Q_max_attempts);
	copy_att(values, nulls, 5, job, Q_tenant);
	copy_att(values, nulls, 6, job, Q_metadata);
	copy_att(values, nulls, 7, job, Q_lease_token);
	copy_att(values, nulls, 8, job, Q_lease_expires_at);
	values[9] = TimestampTzGetDatum(DatumGetTimestampTz(JOB_ATT(job, Q_started_at)) + timeout_us);
	nulls[9] = timeout_us == 0;
	copy_att(values, nulls, 10, job, Q_progress_data);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* Claims one job; false: the row is another's, or has changed. */
static bool
claim_one(PullCall *call, const ClaimRequest *request, const JobRef *ref, ReturnSetInfo *result)
{
	TimestampTz now = GetCurrentTimestamp();
	pg_uuid_t	token;
	JobType    *type;
	Job			job;

	if (queue_lock(&call->ledger.queue, ref, &job) != LOCK_OK)
		return false;
	type = job_type_by_id(ref->type_id);
	if (!may_start(type, &job) || !unique_claim(&call->ledger.queue, &job))
	{
		note_position(ref->type_id, ref->priority, ref->sublane, ref->position);	/* to be read again */
		return false;
	}
	if (!pull_may_work(call->caller.role, &job))
		pull_denied(type);		/* a grant was revoked while the claim waited */
	claim_check_lease(request, type);	/* options.max_lease was lowered meanwhile */
	token = pull_token(request->caller, type->lease_follows_connection ? claim_session() : 0);
	write_row(call, request, &job, &token, now);
	if (EVENTS_WANTED(type, EVENTS_ALL))
		add_claimed_event(call, request, &job, type, now);
	put_row(result, &job, type, timeout_of(&job, type));
	return true;
}

/* ---------- the call ---------- */

/* Notes all refs, so that the end of the transaction publishes them. */
static void
note_refs(const ClaimRequest *request, const JobRef *refs, int n)
{
	MonoTime	until = mono_now() + request->lease_us;

	for (int i = 0; i < n; i++)
		note_claim(&refs[i].id, until);
}

static void
note_begun(ClaimRequest *request, int32 type_id)
{
	for (int i = 0; i < request->ntypes; i++)
	{
		if (request->types[i] == type_id)
			claim_types_add(&request->begun, i);
	}
}

/* Asks and claims once; returns the number of refs in the answer. */
static int
claim_round(ClaimRequest *request, JobqDb *db, int n, MonoTime until, ReturnSetInfo *result, int *claimed)
{
	JobRef	   *refs = palloc(sizeof(JobRef) * JOBQ_CLAIM_REFS);
	PullCall	call;
	int			nrefs;

	reserve_lease_notes(JOBQ_CLAIM_REFS);
	nrefs = ask(request, db, n, until, refs);
	if (nrefs > 0)
	{
		note_refs(request, refs, nrefs);
		PushActiveSnapshot(GetLatestSnapshot());
		pull_begin(&call, "jobq.claim()");
		for (int i = 0; i < nrefs; i++)
		{
			if (claim_one(&call, request, &refs[i], result))
			{
				note_begun(request, refs[i].type_id);
				(*claimed)++;
			}
			else
			{
				note_no_claim(&refs[i].id);
				claim_tell(db, &refs[i].id, LEASE_NOT_MINE);
			}
		}
		pull_end(&call);
		PopActiveSnapshot();
		claim_written(my_claim_place());
	}
	pfree(refs);
	return nrefs;
}

Datum
jobq_claim(PG_FUNCTION_ARGS)
{
	ClaimRequest request;
	JobqDb	   *db = RecoveryInProgress() ? NULL : my_db();
	uint32		changes = db == NULL ? 0 : db->lifecycle.changes;	/* before the version is compared */
	MonoTime	until;
	int			claimed = 0;

	claim_request_read(&request, fcinfo);
	request.changes = changes;
	db = pull_db("jobq.claim");
	InitMaterializedSRF(fcinfo, 0);
	if (request.ntypes == 0 && request.wait_us == 0)
		return (Datum) 0;		/* else the caller's loop has its pause all the same */
	want_dispatcher(db);
	until = request.wait_us > 0 ? mono_now() + request.wait_us : 0;
	while (claimed < request.max_jobs)
	{
		int			n = Min(request.max_jobs - claimed, JOBQ_CLAIM_REFS);
		int			before = claimed;
		int			nrefs = claim_round(&request, db, n, claimed == 0 ? until : 0,
										(ReturnSetInfo *) fcinfo->resultinfo, &claimed);

		if (nrefs == 0 && claimed == 0 && mono_now() < until)
			claim_check_types(&request);	/* the dispatcher has ended the wait */
		if (nrefs == 0 || (nrefs < n && claimed - before == nrefs))
			break;				/* else a job was not there any more: its room is free */
	}
	return (Datum) 0;
}
