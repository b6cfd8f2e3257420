/*
 * grant_checks.c
 *	  Checks of calls by roles that are held to grants (access.h), and of the
 *	  rows that they may see.
 *
 * PostgreSQL checks EXECUTE first: jobq.grant_access grants it for the
 * functions of an access, and no role has it otherwise.  This file checks the
 * tenants and types that the access reaches.  Functions that are not in the
 * table below are for free roles.
 *
 * A job that is not the caller's does not exist for the caller: calls that
 * name it by its id answer as for an unknown id, and filters leave it out.
 */
#include "jobq.h"

#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/inval.h"

#include "security/access.h"

PG_FUNCTION_INFO_V1(jobq_reads);
PG_FUNCTION_INFO_V1(jobq_reads_event);
PG_FUNCTION_INFO_V1(jobq_reads_audit);
PG_FUNCTION_INFO_V1(jobq_reads_type);
PG_FUNCTION_INFO_V1(jobq_reads_tenant);
PG_FUNCTION_INFO_V1(jobq_sees);
PG_FUNCTION_INFO_V1(jobq_manages);
PG_FUNCTION_INFO_V1(jobq_reads_all);
PG_FUNCTION_INFO_V1(jobq_knows_type);
PG_FUNCTION_INFO_V1(jobq_is_free);
PG_FUNCTION_INFO_V1(jobq_reads_schedule);
PG_FUNCTION_INFO_V1(jobq_schedule_right);

typedef enum Reach
{
	REACH_ATTEMPT,				/* a running attempt: the function itself checks its caller */
	REACH_ROWS,					/* the function itself leaves out what is not the caller's */
	REACH_READ,					/* the same, for access "read" */
	REACH_SCHEDULES,			/* the same, for access "enqueue" and "admin" */
	REACH_TENANT,				/* the tenant that its first argument names */
	REACH_TYPE,					/* the type that its first argument names, of every tenant */
	REACH_ALL					/* every type of every tenant */
} Reach;

static const struct
{
	const char *function;
	Reach		reach;
}			calls[] = {
	{"_bulk_begin", REACH_ROWS},
	{"_bulk_step", REACH_ROWS},
	{"add_tasks", REACH_ATTEMPT},
	{"alter_job", REACH_ROWS},
	{"cancel_job", REACH_ROWS},
	{"cancel_jobs", REACH_ROWS},
	{"check_workflow", REACH_ROWS},
	{"purge_dead_letters", REACH_ROWS},
	{"pause_workflow", REACH_ROWS},
	{"rerun_job", REACH_ROWS},
	{"resume_workflow", REACH_ROWS},
	{"retry_dead_letters", REACH_ROWS},
	{"retry_job", REACH_ROWS},
	{"retry_workflow", REACH_ROWS},
	{"error_groups", REACH_READ},
	{"resources", REACH_READ},
	{"alter_schedule", REACH_SCHEDULES},
	{"backfill_schedule", REACH_SCHEDULES},
	{"pause_schedule", REACH_SCHEDULES},
	{"resume_schedule", REACH_SCHEDULES},
	{"run_schedule", REACH_SCHEDULES},
	{"schedule", REACH_SCHEDULES},
	{"send_event", REACH_SCHEDULES},
	{"unschedule", REACH_SCHEDULES},
	{"purge_tenant", REACH_TENANT},
	{"alter_job_type", REACH_TYPE},
	{"create_job_type", REACH_TYPE},
	{"create_workflow", REACH_TYPE},
	{"drop_job_type", REACH_TYPE},
	{"pause_job_type", REACH_TYPE},
	{"resume_job_type", REACH_TYPE},
	{"_alter_pressure_rule", REACH_ALL},
	{"create_signal", REACH_ALL},
	{"drain", REACH_ALL},
	{"drop_limit", REACH_ALL},
	{"drop_signal", REACH_ALL},
	{"set_limit", REACH_ALL},
	{"set_pressure_rule", REACH_ALL},
	{"set_signal", REACH_ALL},
	{"set_tenant_quota", REACH_ALL},
	{"start_all", REACH_ALL},
	{"stat_reset", REACH_ALL},
	{"stop_all", REACH_ALL},
};

static void
refuse_call(const char *function, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied for jobq.%s", function),
			 hint ? errhint("%s", hint) : 0));
}

static text *
text_argument(const NullableDatum *arg)
{
	return arg->isnull ? NULL : DatumGetTextPP(arg->value);
}

static bool
reaches(Oid caller, Reach reach, const NullableDatum *args)
{
	text	   *first;

	switch (reach)
	{
		case REACH_ATTEMPT:
			return true;
		case REACH_ROWS:
			return access_may_some(caller, ACCESS_ADMIN);
		case REACH_READ:
			return access_may_some(caller, ACCESS_READ);
		case REACH_SCHEDULES:
			return access_may_some(caller, ACCESS_ENQUEUE) || access_may_some(caller, ACCESS_ADMIN);
		case REACH_TENANT:
			first = text_argument(&args[0]);
			return access_may(caller, ACCESS_ADMIN, first, NULL);
		case REACH_TYPE:
			first = text_argument(&args[0]);
			return access_may_everywhere(caller, ACCESS_ADMIN, first ? text_to_cstring(first) : NULL);
		case REACH_ALL:
			return access_may_everywhere(caller, ACCESS_ADMIN, NULL);
	}
	return false;
}

void
access_check_call(Oid caller, const char *function, const NullableDatum *args)
{
	static const char *const hints[] = {
		NULL,
		"It takes access \"admin\": see jobq.grant_access.",
		"It takes access \"read\": see jobq.grant_access.",
		"It takes access \"enqueue\": see jobq.grant_access.",
		"It takes access \"admin\" to that tenant, for all job types.",
		"It takes access \"admin\" to that job type, for all tenants.",
		"It takes access \"admin\" for all tenants and job types."
	};
	int			i;

	AcceptInvalidationMessages();
	if (access_is_free(caller))
		return;
	for (i = 0; i < (int) lengthof(calls); i++)
		if (strcmp(calls[i].function, function) == 0)
			break;
	if (i == (int) lengthof(calls))
		refuse_call(function, NULL);
	if (!reaches(caller, calls[i].reach, args))
		refuse_call(function, hints[calls[i].reach]);
}

void
access_need_free(const char *function)
{
	if (!access_is_free(GetUserId()))
		refuse_call(function, NULL);
}

static bool
has_rights_of(Oid role, Oid of)
{
	return OidIsValid(of) && has_privs_of_role(role, of);
}

/*
 * True if access "admin" to the tenant lets the role enqueue jobs of the
 * type: one that the grant names, or that the role owns or is run as.  A
 * grant of all types does not, or it would give the rights of every run_as.
 */
static bool
is_own_type(Oid role, JobType *type, text *tenant)
{
	if (!access_may(role, ACCESS_ADMIN, tenant, type->name))
		return false;
	return access_names_type(role, ACCESS_ADMIN, tenant, type->name) ||
		has_rights_of(role, job_type_owner(type)) || has_rights_of(role, job_type_run_as(type));
}

bool
access_may_enqueue(Oid role, JobType *type, text *tenant)
{
	return access_may(role, ACCESS_ENQUEUE, tenant, type->name) || is_own_type(role, type, tenant);
}

/*
 * Checks the tenant that the job would have: jobq.tenant is a default and no
 * right.
 */
void
access_check_enqueue(JobType *type, text *tenant)
{
	static const char *const hint = "It takes access \"enqueue\" to that job type and tenant: see jobq.grant_access.";

	if (access_may_enqueue(GetUserId(), type, tenant))
		return;
	if (tenant == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to enqueue a job of type \"%s\" without a tenant", type->name),
				 errhint("%s", hint)));
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied to enqueue a job of type \"%s\" for tenant \"%s\"",
					type->name, text_to_cstring(tenant)),
			 errhint("%s", hint)));
}

bool
access_may_enqueue_some(Oid role, JobType *type)
{
	return access_may_some_tenant(role, ACCESS_ENQUEUE, type->name, false) ||
		access_may_some_tenant(role, ACCESS_ADMIN, type->name, true) ||
		(access_may_some_tenant(role, ACCESS_ADMIN, type->name, false) &&
		 (has_rights_of(role, job_type_owner(type)) || has_rights_of(role, job_type_run_as(type))));
}

/* --- rows --- */

bool
access_sees(Oid role, text *tenant, const char *type, text *enqueued_by)
{
	const char *self;

	if (access_may(role, ACCESS_READ, tenant, type))
		return true;
	if (enqueued_by == NULL || !access_may_some(role, ACCESS_ENQUEUE) || !access_knows_type(role, type))
		return false;
	self = access_enqueuer(role);
	return self != NULL && access_is_enqueuer(self, enqueued_by);
}

static const char *
type_name(FunctionCallInfo fcinfo, int i)
{
	JobType    *type = PG_ARGISNULL(i) ? NULL : job_type_by_id(PG_GETARG_INT32(i));

	return type ? type->name : NULL;
}

#define TEXT_OR_NULL(i) (PG_ARGISNULL(i) ? NULL : PG_GETARG_TEXT_PP(i))

/*
 * jobq_internal._reads(tenant, type_id, enqueued_by): the policy of queue,
 * history and dead_letters
 */
Datum
jobq_reads(PG_FUNCTION_ARGS)
{
	Oid			role = GetUserId();

	if (access_is_free(role))
		PG_RETURN_BOOL(true);
	PG_RETURN_BOOL(access_sees(role, TEXT_OR_NULL(0), type_name(fcinfo, 1), TEXT_OR_NULL(2)));
}

/*
 * jobq_internal._reads_event(tenant, job_type): ... of events and alerts,
 * which name the type
 */
Datum
jobq_reads_event(PG_FUNCTION_ARGS)
{
	Oid			role = GetUserId();

	if (access_is_free(role))
		PG_RETURN_BOOL(true);
	if (PG_ARGISNULL(1))		/* of a signal, whose error may name rows of any tenant, or of a partition */
		PG_RETURN_BOOL(access_may_everywhere(role, ACCESS_READ, NULL));
	PG_RETURN_BOOL(access_may(role, ACCESS_READ, TEXT_OR_NULL(0), text_to_cstring(PG_GETARG_TEXT_PP(1))));
}

/*
 * jobq_internal._reads_audit(tenant, object_type, job_type): ... of audit.  A
 * row without a tenant is one of a job without a tenant, or of all tenants.
 */
Datum
jobq_reads_audit(PG_FUNCTION_ARGS)
{
	Oid			role = GetUserId();
	const char *object_type = PG_ARGISNULL(1) ? "" : text_to_cstring(PG_GETARG_TEXT_PP(1));
	const char *type = PG_ARGISNULL(2) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(2));
	bool		of_job = strcmp(object_type, "job") == 0 || strcmp(object_type, "run") == 0;

	if (access_is_free(role))
		PG_RETURN_BOOL(true);
	if (PG_ARGISNULL(0) && !of_job)
		PG_RETURN_BOOL(access_may_everywhere(role, ACCESS_READ, type));
	PG_RETURN_BOOL(access_may(role, ACCESS_READ, TEXT_OR_NULL(0), type));
}

/*
 * jobq_internal._reads_type(name): ... of job_types: a role with any access to
 * the type, of some tenant
 */
Datum
jobq_reads_type(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(access_knows_type(GetUserId(), text_to_cstring(PG_GETARG_TEXT_PP(0))));
}

/*
 * jobq_internal._reads_tenant(tenant): ... of tenant_quotas: a role that may
 * read some type of that tenant
 */
Datum
jobq_reads_tenant(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(access_may_some_type(GetUserId(), ACCESS_READ, PG_GETARG_TEXT_PP(0)));
}

/*
 * jobq_internal._sees(caller, tenant, type_id, enqueued_by): the policy for
 * another role
 */
Datum
jobq_sees(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(access_sees(PG_GETARG_OID(0), TEXT_OR_NULL(1), type_name(fcinfo, 2), TEXT_OR_NULL(3)));
}

/* jobq_internal._manages(caller, tenant, type_id) */
Datum
jobq_manages(PG_FUNCTION_ARGS)
{
	Oid			role = PG_GETARG_OID(0);

	if (access_is_free(role))
		PG_RETURN_BOOL(true);
	PG_RETURN_BOOL(access_may(role, ACCESS_ADMIN, TEXT_OR_NULL(1), type_name(fcinfo, 2)));
}

/* jobq_internal._reads_all(caller) */
Datum
jobq_reads_all(PG_FUNCTION_ARGS)
{
	Oid			role = PG_GETARG_OID(0);

	PG_RETURN_BOOL(access_is_free(role) || access_may_everywhere(role, ACCESS_READ, NULL));
}

/* jobq_internal._knows_type(caller, name) */
Datum
jobq_knows_type(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(access_knows_type(PG_GETARG_OID(0), text_to_cstring(PG_GETARG_TEXT_PP(1))));
}

/* jobq_internal._is_free(role) */
Datum
jobq_is_free(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(access_is_free(PG_GETARG_OID(0)));
}

/*
 * Returns the caller's right on a schedule: "own" lets it change all, "admin"
 * not the jobs that are enqueued with the owner's rights, "read" nothing.
 * NULL: the schedule does not exist for the caller.
 */
static const char *
schedule_right(Oid role, text *tenant, const char *type, Oid owner)
{
	if (access_is_free(role) || has_rights_of(role, owner))
		return "own";
	if (access_may_everywhere(role, ACCESS_ADMIN, type))
		return "admin";
	return access_may(role, ACCESS_READ, tenant, type) ? "read" : NULL;
}

/*
 * jobq_internal._reads_schedule(tenant, job_type, owner_oid): the policy of
 * schedules
 */
Datum
jobq_reads_schedule(PG_FUNCTION_ARGS)
{
	if (PG_ARGISNULL(1))
		PG_RETURN_BOOL(false);
	PG_RETURN_BOOL(schedule_right(GetUserId(), TEXT_OR_NULL(0), text_to_cstring(PG_GETARG_TEXT_PP(1)),
								  PG_GETARG_OID(2)) != NULL);
}

/* jobq_internal._schedule_right(caller, tenant, job_type, owner_oid) */
Datum
jobq_schedule_right(PG_FUNCTION_ARGS)
{
	const char *right = NULL;

	if (!PG_ARGISNULL(2))
		right = schedule_right(PG_GETARG_OID(0), TEXT_OR_NULL(1), text_to_cstring(PG_GETARG_TEXT_PP(2)),
							   PG_GETARG_OID(3));
	if (right == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(right));
}
