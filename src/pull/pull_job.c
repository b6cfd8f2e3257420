/*
 * pull_job.c
 *	  A client's job: found by its id, fenced by its token, and settled.
 *
 * The row is found by a direct scan of the index on id and locked as any
 * UPDATE would lock it.  A token that is not the row's says nothing about the
 * job: the answer is the same for a job that does not exist, and for one that
 * the caller may not work.
 */
#include "jobq.h"

#include <math.h>

#include "access/xact.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "base/relations.h"
#include "lifecycle/release.h"
#include "pull/pull_job.h"
#include "security/access.h"
#include "settle/breaker_news.h"
#include "shared/claim_session.h"
#include "shared/claims.h"
#include "shared/xact_changes.h"
#include "tables/home.h"
#include "tables/queue_find.h"

#define RANDOM_BYTES	(UUID_LEN - (int) sizeof(Oid))	/* of a token */

JobqDb *
pull_db(const char *function)
{
	JobqDb	   *db = my_db();

	if (db == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("%s needs jobq's dispatcher, which does not run here", function),
				 JobqShmem == NULL ?
				 errhint("Add jobq to shared_preload_libraries and restart the server.") :
				 errhint("Raise jobq.max_databases and restart the server.")));
	return db;
}

void
pull_begin(PullCall *call, const char *function)
{
	PreventCommandDuringRecovery(function);
	PreventCommandIfReadOnly(function);
	PreventCommandIfParallelMode(function);
	release_require();
	AcceptInvalidationMessages();
	want_dispatcher(my_db());
	call->caller = act_as_owner();
	ledger_open(&call->ledger);
}

void
pull_end(PullCall *call)
{
	ledger_close(&call->ledger);
	act_as_caller(call->caller);
}

/*
 * The last bytes of a token are the claiming role, masked with a hash of the
 * random ones: no other role can use it.
 */
static Oid
mask_role(const pg_uuid_t *token, Oid role)
{
	return role ^ hash_bytes(token->data, RANDOM_BYTES);
}

/*
 * Fills `out` with random bytes for one token.  They are made for many tokens
 * at a time, which is cheaper.
 */
static void
random_bytes(uint8 *out)
{
	static uint8 bytes[RANDOM_BYTES * 64];
	static int	left = 0;

	if (left == 0)
	{
		if (!pg_strong_random(bytes, sizeof(bytes)))
			ereport(ERROR,
					(errcode(ERRCODE_INTERNAL_ERROR),
					 errmsg("could not make a lease token")));
		left = sizeof(bytes);
	}
	left -= RANDOM_BYTES;
	memcpy(out, bytes + left, RANDOM_BYTES);
	explicit_bzero(bytes + left, RANDOM_BYTES);
}

pg_uuid_t
pull_token(Oid role, uint32 session)
{
	pg_uuid_t	token;
	Oid			masked;

	random_bytes(token.data);
	token_set_session(&token, session);
	masked = mask_role(&token, role);
	memcpy(token.data + RANDOM_BYTES, &masked, sizeof(masked));
	return token;
}

/* True if the role claimed with that token, or has the rights of that role. */
static bool
owns_token(Oid role, const pg_uuid_t *token)
{
	Oid			masked;

	memcpy(&masked, token->data + RANDOM_BYTES, sizeof(masked));
	return has_privs_of_role(role, mask_role(token, masked));
}

bool
pull_may_work(Oid role, Job *job)
{
	JobType    *type = job_type_by_id(JOB_INT(job, Q_type_id));

	if (access_is_free(role))
		return true;
	return type != NULL && access_may(role, ACCESS_WORK,
									  JOB_NULL(job, Q_tenant) ? NULL : DatumGetTextPP(JOB_ATT(job, Q_tenant)),
									  type->name);
}

void
pull_denied(const JobType *type)
{
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied to work jobs of type \"%s\"", type->name),
			 errhint("It takes access \"work\" to that job type: see jobq.grant_access.")));
}

static bool
has_token(Job *job, const pg_uuid_t *token)
{
	return job->status == JOB_RUNNING && !JOB_NULL(job, Q_lease_token) &&
		memcmp(DatumGetUUIDP(JOB_ATT(job, Q_lease_token)), token, UUID_LEN) == 0;
}

/*
 * True if the row was claimed in this database.  Until jobq.adopt() the leases
 * of a copy are the original's, also before a dispatcher has seen the copy.
 */
static bool
is_of_this_home(Job *job)
{
	int32		ours;

	return home_is_ours(&ours) && JOB_INT(job, Q_home_id) == ours;
}

bool
pull_holds(PullCall *call, Job *job, const pg_uuid_t *token)
{
	return has_token(job, token) && is_of_this_home(job) && owns_token(call->caller.role, token) &&
		pull_may_work(call->caller.role, job);
}

bool
pull_lock(PullCall *call, const pg_uuid_t *id, const pg_uuid_t *token, Job *job)
{
	for (;;)
	{
		Snapshot	snapshot;
		bool		found;
		Job			seen;

		CHECK_FOR_INTERRUPTS();
		CommandCounterIncrement();	/* our own writes count */
		snapshot = RegisterSnapshot(GetLatestSnapshot());
		found = queue_find_by_id(&call->ledger.queue, id, snapshot, &seen);
		UnregisterSnapshot(snapshot);
		if (!found || !pull_holds(call, &seen, token))
			return false;
		if (queue_lock_leased(&call->ledger.queue, &seen, job, NULL))
		{
			claim_hold(id);
			return has_token(job, token);
		}						/* else it has changed: look again */
	}
}

bool
pull_cancel_requested(Job *job)
{
	return !JOB_NULL(job, Q_cancel_requested) && DatumGetBool(JOB_ATT(job, Q_cancel_requested));
}

void
pull_outcome(Job *job, Outcome *o, OutcomeKind kind)
{
	memset(o, 0, sizeof(Outcome));
	o->kind = kind;
	o->begun = true;
	o->started_at = JOB_NULL(job, Q_started_at) ? 0 : DatumGetTimestampTz(JOB_ATT(job, Q_started_at));
	o->ended_at = GetCurrentTimestamp();
	o->worker = JOB_NULL(job, Q_worker) ? NULL : TextDatumGetCString(JOB_ATT(job, Q_worker));
	o->source = o->worker ? psprintf("worker:%s", o->worker) : "client";
	outcome_keep_progress(job, o);
}

JobStatus
pull_settle(PullCall *call, Job *job, Outcome *o)
{
	pg_uuid_t	id = *JOB_ID(job);
	JobType    *type = job_type_by_id(JOB_INT(job, Q_type_id));
	BreakerNote note = {0};
	JobStatus	status;

	if (o->kind != OUTCOME_COMPLETED && pull_cancel_requested(job))
	{
		o->kind = OUTCOME_CANCELLED;
		o->message = JOB_NULL(job, Q_error_msg) ? NULL : TextDatumGetCString(JOB_ATT(job, Q_error_msg));
		o->code = NULL;
		o->details = NULL;
		o->has_result = false;
	}
	breaker_take_down(&note, type, o);
	status = settle(&call->ledger, job, type, o);
	note_attempt_end(&id, status, &note, o->kind == OUTCOME_FAILED);
	return status;
}
