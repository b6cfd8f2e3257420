/*
 * path_call.c
 *	  Calls the server's functions of SQL/JSON paths, within a time limit.
 *
 * A regular expression in a path may take hours.  A timer looks at the CPU
 * time of the process, because a busy machine may stop a process for longer
 * than the limit.  It cancels the call like a cancel of the query.  The first
 * time the call is made again: a virtual machine counts time that its host has
 * taken.  Then the error becomes one of the path.
 *
 * The caller may hold off cancels (a worker between two handlers).  A cancel
 * from elsewhere that arrives meanwhile stays pending, and the call is made
 * again.  A caller must not hold off interrupts.
 */
#include "jobq.h"

#include <time.h>

#include "miscadmin.h"
#include "pgtime.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonpath.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "workflow/path_internal.h"

/* ---------- the time limit ---------- */

#define CHECK_EVERY_MS	5

static TimeoutId path_timeout = MAX_TIMEOUTS;
static volatile int64 cpu_limit_us;
static volatile sig_atomic_t over_limit = false;

static int64
cpu_now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (int64) now.tv_sec * USECS_PER_SEC + now.tv_nsec / 1000;
}

static int64
limit_us(const PathRun *run)
{
	return PATH_CPU_US + VARSIZE(run->context) / 16;
}

/* Runs in a signal handler. */
static void
path_timeout_handler(void)
{
	if (cpu_now_us() < cpu_limit_us)
		return;					/* it fires again */
	over_limit = true;
	InterruptPending = true;
	QueryCancelPending = true;
	SetLatch(MyLatch);
}

static void
start_timer(PathRun *run, int64 cpu_now)
{
	if (path_timeout == MAX_TIMEOUTS)
		path_timeout = RegisterTimeout(USER_TIMEOUT, path_timeout_handler);
	over_limit = false;
	cpu_limit_us = cpu_now + limit_us(run) - run->cpu_us;
	enable_timeout_every(path_timeout, TimestampTzPlusMilliseconds(GetCurrentTimestamp(), CHECK_EVERY_MS),
						 CHECK_EVERY_MS);
}

/* ---------- calls of the server's functions ---------- */

/* A call, and what an error resets. */
typedef struct Guard
{
	PathRun    *run;
	const JsonbValue *path;
	MemoryContext context;
	uint32		cancels_held;
	uint32		interrupts_held;
	bool		cancel_pending;
	pg_tz	   *timezone;
	int64		cpu_began;
} Guard;

static void
guard_begin(Guard *guard, PathRun *run, const JsonbValue *path)
{
	guard->run = run;
	guard->path = path;
	guard->context = CurrentMemoryContext;
	guard->cancels_held = QueryCancelHoldoffCount;
	guard->interrupts_held = InterruptHoldoffCount;
	guard->cancel_pending = guard->cancels_held > 0 && QueryCancelPending;
	guard->timezone = session_timezone;
	guard->cpu_began = cpu_now_us();
	CHECK_FOR_INTERRUPTS();
	if (guard->cancels_held > 0)
		QueryCancelPending = false;
	QueryCancelHoldoffCount = 0;
	session_timezone = pg_tzset("UTC");
	start_timer(run, guard->cpu_began);
}

static void
guard_end(Guard *guard)
{
	disable_timeout(path_timeout, false);
	guard->run->cpu_us += cpu_now_us() - guard->cpu_began;
	session_timezone = guard->timezone;
	InterruptHoldoffCount = guard->interrupts_held;
	QueryCancelHoldoffCount = guard->cancels_held;
	if (over_limit)
		QueryCancelPending = false;
	if (guard->cancel_pending)
		InterruptPending = QueryCancelPending = true;
}

/* Raises JQ004. */
pg_noreturn static void
path_refuse(const JsonbValue *path, const char *reason)
{
	ereport(ERROR,
			(errcode(ERRCODE_JOBQ_BAD_INPUT),
			 errmsg("path \"%s\" %s", path_shown(path), reason)));
}

/*
 * True for errors that the path or its data cause: those of bad data, of
 * syntax and of limits.
 */
static bool
is_of_path(int sqlstate)
{
	int			category = ERRCODE_TO_CATEGORY(sqlstate);

	return category == ERRCODE_DATA_EXCEPTION || category == ERRCODE_PROGRAM_LIMIT_EXCEEDED ||
		category == ERRCODE_SYNTAX_ERROR_OR_ACCESS_RULE_VIOLATION || sqlstate == ERRCODE_FEATURE_NOT_SUPPORTED;
}

/*
 * Raises the caught error as one of the path; returns if the call has to be
 * made again, because of the time or a cancel that its caller holds off.
 */
static void
guard_error(Guard *guard)
{
	ErrorData  *error;

	guard_end(guard);
	MemoryContextSwitchTo(guard->context);
	error = CopyErrorData();
	if (error->sqlerrcode == ERRCODE_QUERY_CANCELED && over_limit)
	{
		FlushErrorState();
		if (!guard->run->again)
		{
			guard->run->again = true;
			guard->run->cpu_us = 0;
			return;
		}
		path_refuse(guard->path, psprintf("takes more than %d ms", (int) (limit_us(guard->run) / 1000)));
	}
	if (error->sqlerrcode == ERRCODE_QUERY_CANCELED && guard->cancels_held > 0)
	{
		FlushErrorState();
		InterruptPending = QueryCancelPending = true;
		return;
	}
	if (!is_of_path(error->sqlerrcode))
		PG_RE_THROW();
	FlushErrorState();
	path_refuse(guard->path, psprintf("cannot be evaluated: %s", error->message));
}

/*
 * Calls one of the server's functions of jsonb, jsonpath, vars, silent; or,
 * for jsonpath_in, of a text alone.
 */
static Datum
call_path_function(PGFunction function, Datum first, Datum second, bool *isnull)
{
	LOCAL_FCINFO(fcinfo, 4);
	Datum		result;

	InitFunctionCallInfoData(*fcinfo, NULL, 4, InvalidOid, NULL, NULL);
	for (int i = 0; i < 4; i++)
		fcinfo->args[i].isnull = false;
	fcinfo->args[0].value = first;
	fcinfo->args[1].value = second;
	fcinfo->args[2].value = DirectFunctionCall1(jsonb_in, CStringGetDatum("{}"));
	fcinfo->args[3].value = BoolGetDatum(false);
	result = function(fcinfo);
	*isnull = fcinfo->isnull;
	return result;
}

Datum
path_call(PathRun *run, const JsonbValue *path, PGFunction function, Datum first, Datum second, bool *isnull)
{
	volatile bool done = false;
	volatile Datum result = (Datum) 0;

	while (!done)
	{
		Guard		guard;

		guard_begin(&guard, run, path);
		PG_TRY();
		{
			result = call_path_function(function, first, second, isnull);
			guard_end(&guard);
			done = true;
		}
		PG_CATCH();
		{
			guard_error(&guard);
		}
		PG_END_TRY();
	}
	return result;
}

Datum
path_parse(PathRun *run, const JsonbValue *path)
{
	char	   *text = pnstrdup(path->val.string.val, path->val.string.len);
	bool		isnull;
	Datum		parsed;

	if (path->val.string.len > MAX_PATH_LENGTH)
		path_refuse(path, psprintf("is longer than %d bytes", MAX_PATH_LENGTH));
	parsed = path_call(run, path, jsonpath_in, CStringGetDatum(text), (Datum) 0, &isnull);
	if ((DatumGetJsonPathP(parsed)->header & JSONPATH_LAX) == 0)
		path_refuse(path, "is strict, paths of workflows are lax");
	return parsed;
}
