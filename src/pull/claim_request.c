/*
 * claim_request.c
 *	  Reads the arguments of jobq.claim: see claim_request.h.
 */
#include "jobq.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/inval.h"

#include "base/errors.h"
#include "base/interval.h"
#include "lifecycle/release.h"
#include "pull/claim_request.h"
#include "pull/pull_job.h"
#include "registry/job_types.h"
#include "security/access.h"

#define MAX_JOBS		1000
#define MAX_NAME		255
#define MAX_WAIT_US		(20 * USECS_PER_SEC)
#define MIN_LEASE_US	USECS_PER_SEC

enum
{
	A_job_types, A_max_jobs, A_worker, A_lease, A_wait, A_node
};

char *
name_argument(FunctionCallInfo fcinfo, int i, const char *name)
{
	char	   *given;

	if (PG_ARGISNULL(i))
		return NULL;
	given = text_to_cstring(PG_GETARG_TEXT_PP(i));
	if (strlen(given) > MAX_NAME)
		argument_too_long(name, strlen(given), MAX_NAME);
	if (given[0] == '\0' || has_control(given))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"%s\": \"%s\" is empty or has control characters", name, argument_shown(given))));
	return given;
}

static char *
interval_shown(const Interval *span)
{
	return DatumGetCString(DirectFunctionCall1(interval_out, IntervalPGetDatum(span)));
}

static int64
interval_argument(FunctionCallInfo fcinfo, int i, const char *name, int64 low, int64 high)
{
	Interval	from = {.time = low};
	Interval	to = {.time = high};
	Interval   *span;
	int64		us;

	if (PG_ARGISNULL(i))
		argument_is_null(name);
	span = PG_GETARG_INTERVAL_P(i);
	us = INTERVAL_NOT_FINITE(span) ? -1 : interval_to_us(span);
	if (us < low || us > high)
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("argument \"%s\": \"%s\" is outside %s..%s", name, interval_shown(span),
						interval_shown(&from), interval_shown(&to))));
	return us;
}

/* ---------- job types ---------- */

void
claim_check_lease(const ClaimRequest *request, const JobType *type)
{
	Interval	given = {.time = request->lease_us};
	Interval	longest = {.time = type->max_lease_us};

	if (request->lease_us > type->max_lease_us)
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("argument \"lease\": \"%s\" is longer than job type \"%s\" allows: %s",
						interval_shown(&given), type->name, interval_shown(&longest)),
				 errhint("options.max_lease of the type is the longest; heartbeats renew a lease.")));
}

static void
no_such_type(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("argument \"job_types\": job type \"%s\" does not exist", name)));
}

void
claim_check_types(const ClaimRequest *request)
{
	job_types_forget();			/* the dispatcher learns of a commit before this session's cache */
	for (int i = 0; request->named && i < request->ntypes; i++)
	{
		JobType    *type = job_type_by_id(request->types[i]);

		if (type == NULL || type->dropped)
			no_such_type(type == NULL ? psprintf("%d", request->types[i]) : type->name);
	}
}

/* Raises an error unless the type is a pull type with room for that lease. */
static void
check_type(const JobType *type, const ClaimRequest *request)
{
	if (type->command != NULL)
		ereport(ERROR,
				(errcode(request->node ? ERRCODE_FEATURE_NOT_SUPPORTED : ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"job_types\": the tool of job type \"%s\" runs on the server", type->name),
				 errhint("Clients claim jobs of types without handler and command.")));
	if (type->handler != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"job_types\": job type \"%s\" has a handler, which a SQL worker calls", type->name),
				 errhint("Clients claim jobs of types without handler and command.")));
	if (type->workflow)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"job_types\": \"%s\" is a workflow, whose steps are jobs of other types", type->name),
				 errhint("Claim jobs of the types that its steps name.")));
	claim_check_lease(request, type);
}

/* Adds a tenant of the last type. */
static void
add_tenant(void *arg, const char *tenant)
{
	ClaimRequest *request = arg;
	ClaimScope *scope = &request->scope;
	int			size = (int) strlen(tenant) + 2;

	if (scope->len + size > JOBQ_CLAIM_SCOPE)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("the tenants of this role's grants are longer than %d bytes", JOBQ_CLAIM_SCOPE),
				 errhint("Name fewer types, or grant access \"work\" to more roles with fewer tenants each.")));
	scope->tenants[scope->len] = (char) (request->ntypes - 1);
	memcpy(scope->tenants + scope->len + 1, tenant, size - 1);
	scope->len += size;
}

/* True if the role may work the type, of some tenant at least. */
static bool
may_work_some(Oid role, const JobType *type)
{
	return access_may_everywhere(role, ACCESS_WORK, type->name) ||
		access_tenants(role, ACCESS_WORK, type->name, NULL, NULL) > 0;
}

/* Adds the type, with the tenants that the role may work. */
static void
add_type(ClaimRequest *request, const JobType *type)
{
	request->types[request->ntypes++] = type->id;
	if (access_may_everywhere(request->caller, ACCESS_WORK, type->name))
		return;
	claim_types_add(&request->scope.limited, request->ntypes - 1);
	(void) access_tenants(request->caller, ACCESS_WORK, type->name, add_tenant, request);
}

static void
add_named(ClaimRequest *request, const char *name)
{
	JobType    *type = job_type_by_name(name);

	if (type == NULL)
		no_such_type(argument_shown(name));
	if (!may_work_some(request->caller, type))
		pull_denied(type);
	check_type(type, request);
	add_type(request, type);
}

static void
read_types(ClaimRequest *request, ArrayType *names)
{
	Datum	   *elements;
	bool	   *nulls;
	int			n;

	deconstruct_array(names, TEXTOID, -1, false, TYPALIGN_INT, &elements, &nulls, &n);
	if (n == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"job_types\" is an empty array"),
				 errhint("NULL stands for every pull type that the role may work.")));
	if (n > JOBQ_CLAIM_TYPES)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("argument \"job_types\": %d names are more than %d", n, JOBQ_CLAIM_TYPES)));
	for (int i = 0; i < n; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("argument \"job_types\": an element must not be NULL")));
		add_named(request, TextDatumGetCString(elements[i]));
	}
}

/*
 * Adds all pull types that the role may work, with room for that lease.  The
 * claim may wait afterwards, so that no lock stays behind.
 */
static void
add_all_types(ClaimRequest *request)
{
	ListCell   *lc;

	foreach(lc, job_type_pull_ids())
	{
		JobType    *type = job_type_by_id(lfirst_int(lc));

		if (type == NULL || type->max_lease_us < request->lease_us || !may_work_some(request->caller, type))
			continue;
		if (request->ntypes == JOBQ_CLAIM_TYPES)
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("argument \"job_types\" is NULL, and there are more than %d pull types", JOBQ_CLAIM_TYPES),
					 errhint("Name the types.")));
		add_type(request, type);
	}
}

/* ---------- all arguments ---------- */

static void
check_circumstances(void)
{
	PreventCommandDuringRecovery("jobq.claim()");
	PreventCommandIfReadOnly("jobq.claim()");
	PreventCommandIfParallelMode("jobq.claim()");
	if (IsolationUsesXactSnapshot())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("jobq.claim cannot be called in a REPEATABLE READ or SERIALIZABLE transaction"),
				 errhint("Its snapshot may not see the jobs that it is given.")));
}

void
claim_request_read(ClaimRequest *request, FunctionCallInfo fcinfo)
{
	int64		max_jobs;

	memset(request, 0, sizeof(ClaimRequest));
	request->call = fcinfo;
	if (PG_ARGISNULL(A_max_jobs))
		argument_is_null("max_jobs");
	max_jobs = PG_GETARG_INT32(A_max_jobs);
	if (max_jobs < 1 || max_jobs > MAX_JOBS)
		argument_out_of_range("max_jobs", max_jobs, 1, MAX_JOBS);
	request->max_jobs = (int) max_jobs;
	request->worker = name_argument(fcinfo, A_worker, "worker");
	if (request->worker == NULL)
		request->worker = psprintf("client/%d", MyProcPid);
	request->node = name_argument(fcinfo, A_node, "node");
	request->lease_us = interval_argument(fcinfo, A_lease, "lease", MIN_LEASE_US, JOBQ_MAX_INTERVAL_US);
	request->wait_us = interval_argument(fcinfo, A_wait, "wait", 0, MAX_WAIT_US);
	check_circumstances();
	release_require();
	AcceptInvalidationMessages();
	request->caller = GetUserId();
	request->named = !PG_ARGISNULL(A_job_types);
	if (request->named)
		read_types(request, PG_GETARG_ARRAYTYPE_P(A_job_types));
	else
		add_all_types(request);
}
