/*
 * ceilings.c
 *	  The most that a role held to its grants may ask for.
 *
 * A job type bounds the cost of one job: its time limit, attempts, backoff,
 * priority and how long its row is kept.  A held role may ask for less.  Free
 * roles may ask for anything.
 *
 * The priority has a ceiling of its own, options.max_priority.  Without that
 * option a grant of one tenant is held to the type's base_priority, and a
 * grant of all tenants is not held.
 *
 * jobq.alter_job, retry_job and retry_dead_letters check the same ceilings, so
 * that none is exceeded after enqueue.  There the priority is held to
 * options.max_priority alone: to order the jobs of a tenant is its
 * administrator's task.  A role with access "admin" to the type for all
 * tenants may change the type itself and is not checked.
 */
#include "jobq.h"

#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/interval.h"
#include "enqueue/ceilings.h"
#include "registry/backoff.h"
#include "registry/options.h"
#include "security/access.h"

#define DEFAULT_UNIQUE_FOR	(30 * USECS_PER_DAY)

PG_FUNCTION_INFO_V1(jobq_check_ceilings);

static void
refuse(const JobType *type, const char *argument, const char *asked, const char *ceiling)
{
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("argument \"%s\": %s is more than job type \"%s\" allows, which is %s",
					argument, asked, type->name, ceiling),
			 errhint("Your role is held to its grants: it may ask for less than the job type gives, not for more.")));
}

static char *
number_text(int number)
{
	return psprintf("%d", number);
}

static void
check_timeout(const JobType *type, const Interval *timeout)
{
	int64		us = timeout ? interval_to_us(timeout) : 0;

	if (timeout != NULL && type->timeout_us > 0 && (us == 0 || us > type->timeout_us))
		refuse(type, "timeout", us == 0 ? "no time limit" : interval_text(timeout), days_text(type->timeout_us));
}

static void
check_max_attempts(const JobType *type, int max_attempts)
{
	if (max_attempts > type->max_attempts)
		refuse(type, "max_attempts", number_text(max_attempts), number_text(type->max_attempts));
}

/* of_all_tenants: the role's grant is not one of a tenant. */
static void
check_priority(const JobType *type, int priority, bool of_all_tenants)
{
	int			ceiling = option_int(type->options, "max_priority",
									 of_all_tenants ? JOBQ_MAX_PRIORITY : type->base_priority);

	ceiling = Max(ceiling, type->base_priority);
	if (priority > ceiling)
		refuse(type, "priority", number_text(priority), number_text(ceiling));
}

static void
check_backoff(const JobType *type, Jsonb *own)
{
	Backoff		asked;

	if (own == NULL)
		return;
	backoff_merge(&type->backoff, own, &asked);
	if (backoff_is_faster(&asked, &type->backoff))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("argument \"backoff\": %s is faster than that of job type \"%s\"",
						JsonbToCString(NULL, &own->root, VARSIZE(own)), type->name),
				 errhint("Your role is held to its grants: its jobs may be retried later than the job type says, not earlier.")));
}

static void
check_interval(const JobType *type, const char *argument, const Interval *asked, int64 ceiling_us, const char *ceiling)
{
	if (asked != NULL && interval_to_us(asked) > ceiling_us)
		refuse(type, argument, interval_text(asked), ceiling);
}

void
ceilings_check(const Request *request)
{
	const JobType *type = request->type;
	int64		unique_us;

	if (access_is_free(GetUserId()))
		return;
	check_timeout(type, request->timeout);
	check_max_attempts(type, request->max_attempts);
	if (request->priority_given)
		check_priority(type, request->priority,
					   access_may_everywhere(GetUserId(), ACCESS_ENQUEUE, type->name) ||
					   access_may_everywhere(GetUserId(), ACCESS_ADMIN, type->name));
	check_backoff(type, request->backoff);
	check_interval(type, "keep_completed", request->keep_completed, interval_to_us(&type->keep_completed),
				   interval_text(&type->keep_completed));
	if (!type->keep_dead_forever)
		check_interval(type, "keep_dead", request->keep_dead, interval_to_us(&type->keep_dead),
					   interval_text(&type->keep_dead));
	unique_us = option_interval(type->options, "max_unique_for", DEFAULT_UNIQUE_FOR);
	check_interval(type, "unique_for", request->unique_for, unique_us, days_text(unique_us));
}

/*
 * jobq_internal._check_ceilings(caller, type_id, priority, max_attempts, timeout):
 * checks the values that an administrator of a tenant gives a waiting job;
 * NULL: not given.
 */
Datum
jobq_check_ceilings(PG_FUNCTION_ARGS)
{
	Oid			caller = PG_GETARG_OID(0);
	JobType    *type = job_type_by_id(PG_GETARG_INT32(1));

	if (type == NULL || access_is_free(caller) || access_may_everywhere(caller, ACCESS_ADMIN, type->name))
		PG_RETURN_VOID();
	if (!PG_ARGISNULL(2))
		check_priority(type, PG_GETARG_INT32(2), true);
	if (!PG_ARGISNULL(3))
		check_max_attempts(type, PG_GETARG_INT32(3));
	if (!PG_ARGISNULL(4))
		check_timeout(type, PG_GETARG_INTERVAL_P(4));
	PG_RETURN_VOID();
}
