/*
 * request.c
 *	  Checks what a client asks for.  Every message names the argument and its value; a payload is never
 *	  part of a message.
 */
#include "jobq.h"

#include <math.h>

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/numeric.h"
#include "utils/timestamp.h"

#include "access.h"
#include "ceilings.h"
#include "command.h"
#include "disk.h"
#include "handler.h"
#include "json_size.h"
#include "options.h"
#include "quota.h"
#include "request.h"

#define MAX_KEY_LENGTH		1024	/* bytes of a key: index entries must fit */
#define MAX_TENANT_LENGTH	255
#define MAX_DELAY_US		(INT64CONST(10000) * 365 * USECS_PER_DAY)

const char *const argument_names[A_COUNT] = {
	"job_type", "payload", "priority", "delay", "scheduled_for", "max_attempts", "timeout",
	"backoff", "unique_key", "on_conflict", "unique_for", "concurrency_key", "keep_completed",
	"tenant", "metadata", "keep_dead", "after", "after_rule"
};

static void
not_null(const NullableDatum *args, Argument arg)
{
	if (args[arg].isnull)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be NULL", argument_names[arg])));
}

/* A number in its range, or what stands for NULL. */
static int
read_number(const NullableDatum *args, Argument arg, int otherwise, int low, int high)
{
	int			value;

	if (args[arg].isnull)
		return otherwise;
	value = DatumGetInt32(args[arg].value);
	if (value < low || value > high)
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("%s must be between %d and %d, not %d",
						argument_names[arg], low, high, value)));
	return value;
}

static void
bad_interval(Argument arg, Interval *span)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("%s must be zero or more and finite, not \"%s\"", argument_names[arg],
					DatumGetCString(DirectFunctionCall1(interval_out, IntervalPGetDatum(span))))));
}

static Interval *
read_interval(const NullableDatum *args, Argument arg)
{
	Interval   *span;
	int64		us;

	if (args[arg].isnull)
		return NULL;
	span = DatumGetIntervalP(args[arg].value);
	us = interval_to_us(span);
	if (INTERVAL_NOT_FINITE(span) || us < 0 || us > MAX_DELAY_US)
		bad_interval(arg, span);
	return span;
}

/* A name or key of at most max bytes; NULL when it was not given. */
static text *
read_text(const NullableDatum *args, Argument arg, int max)
{
	text	   *value;
	int			len;
	int			i;

	if (args[arg].isnull)
		return NULL;
	value = DatumGetTextPP(args[arg].value);
	len = VARSIZE_ANY_EXHDR(value);
	if (len > max)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("%s must not be longer than %d bytes, this one has %d",
						argument_names[arg], max, len)));
	for (i = 0; i < len; i++)
	{
		unsigned char c = (unsigned char) VARDATA_ANY(value)[i];

		if (c < ' ' || c == 0x7f)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("%s must not contain control characters, this one has 0x%02x at byte %d",
							argument_names[arg], c, i + 1)));
	}
	return value;
}

static text *
read_key(const NullableDatum *args, Argument arg)
{
	text	   *value = read_text(args, arg, MAX_KEY_LENGTH);

	if (value != NULL && VARSIZE_ANY_EXHDR(value) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be \"\"", argument_names[arg]),
				 errhint("Pass NULL for a job without one.")));
	return value;
}

static JobType *
read_type_name(const NullableDatum *args)
{
	char		name[256];
	JobType    *type;

	not_null(args, A_job_type);
	text_to_cstring_buffer(DatumGetTextPP(args[A_job_type].value), name, sizeof(name));
	type = job_type_by_name(name);
	if (type == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("job type \"%s\" does not exist", name),
				 errhint("Create it with jobq.create_job_type.")));
	return type;
}

/* When the job is due; 0: now.  The sum may depend on the session's time zone ('1 month'). */
static TimestampTz
read_due(const NullableDatum *args)
{
	Interval   *delay = read_interval(args, A_delay);
	TimestampTz at;

	if (delay != NULL && !args[A_scheduled_for].isnull)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("delay and scheduled_for must not be given together")));
	if (delay != NULL)
		return interval_to_us(delay) == 0 ? 0 :
			DatumGetTimestampTz(DirectFunctionCall2(timestamptz_pl_interval,
													TimestampTzGetDatum(GetCurrentTimestamp()),
													IntervalPGetDatum(delay)));
	if (args[A_scheduled_for].isnull)
		return 0;
	at = DatumGetTimestampTz(args[A_scheduled_for].value);
	if (TIMESTAMP_NOT_FINITE(at))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("scheduled_for must be finite, not \"%s\"",
						TIMESTAMP_IS_NOBEGIN(at) ? "-infinity" : "infinity")));
	return at == 0 ? -1 : at;	/* 2000-01-01 is long past as well */
}

static OnConflict
read_on_conflict(const NullableDatum *args)
{
	char	   *word;

	not_null(args, A_on_conflict);
	word = TextDatumGetCString(args[A_on_conflict].value);
	if (strcmp(word, "ignore") == 0)
		return CONFLICT_IGNORE;
	if (strcmp(word, "replace") == 0)
		return CONFLICT_REPLACE;
	if (strcmp(word, "error") == 0)
		return CONFLICT_ERROR;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("on_conflict must be ignore, replace or error, not \"%s\"", word)));
}

/* True if the element of a path could lead elsewhere than below the path before it. */
static bool
is_bad_element(const char *element, int len)
{
	return len == 0 || (len == 1 && element[0] == '.') || (len == 2 && element[0] == '.' && element[1] == '.');
}

/* Tools get the tenant as JOBQ_TENANT and may take it for a path, as grants do.  It may end with a slash. */
static text *
check_tenant_path(text *tenant)
{
	const char *start = VARDATA_ANY(tenant);
	const char *end = start + VARSIZE_ANY_EXHDR(tenant);

	if (end[-1] == '/' && end - start > 1)
		end--;
	for (const char *at = start; at <= end; at++)
	{
		if (at < end && *at != '/')
			continue;
		if (is_bad_element(start, (int) (at - start)))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("tenant must not begin with a slash or have an element that is empty, \".\" or \"..\": \"%s\"",
							text_to_cstring(tenant))));
		start = at + 1;
	}
	return tenant;
}

static text *
read_tenant(const NullableDatum *args)
{
	text	   *tenant = read_text(args, A_tenant, MAX_TENANT_LENGTH);
	NullableDatum setting[A_COUNT];

	if (tenant != NULL && VARSIZE_ANY_EXHDR(tenant) > 0)
		return check_tenant_path(tenant);
	if (jobq_tenant == NULL || jobq_tenant[0] == '\0')
		return NULL;
	setting[A_tenant].value = CStringGetTextDatum(jobq_tenant);
	setting[A_tenant].isnull = false;
	return check_tenant_path(read_text(setting, A_tenant, MAX_TENANT_LENGTH));
}

/* May the caller enqueue this type for this tenant? */
static void
check_tenant(Request *request)
{
	if (request->tenant == NULL && request->type->require_tenant)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("tenant must be given for job type \"%s\"", request->type->name),
				 errhint("Its options say \"require_tenant\". Pass tenant, or set jobq.tenant.")));
	access_check_enqueue(request->type, request->tenant);
	request->enqueued_by = access_enqueuer(GetUserId());
	request->quotas = quotas_of(request->tenant);
}

/* --- backoff: {"type": "exponential", "base": "30s", "max": "1h", "jitter": 0.1} --- */

static bool
backoff_part_is_good(const char *key, const JsonbValue *value)
{
	int64		us;
	double		share;

	if (strcmp(key, "type") == 0)
		return value->type == jbvString &&
			((value->val.string.len == 5 && memcmp(value->val.string.val, "fixed", 5) == 0) ||
			 (value->val.string.len == 11 && memcmp(value->val.string.val, "exponential", 11) == 0));
	if (strcmp(key, "base") == 0 || strcmp(key, "max") == 0)
		return value_interval(value, &us);
	if (strcmp(key, "jitter") != 0 || value->type != jbvNumeric)
		return false;
	share = DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow,
											   NumericGetDatum(value->val.numeric)));
	return share >= 0 && share <= 1;
}

static Jsonb *
read_backoff(const NullableDatum *args)
{
	Jsonb	   *backoff;
	JsonbIterator *it;
	JsonbIteratorToken token;
	JsonbValue	part;
	char	   *key = NULL;

	if (args[A_backoff].isnull)
		return NULL;
	backoff = DatumGetJsonbP(args[A_backoff].value);
	check_json_size("backoff", backoff, 1024);
	if (!JB_ROOT_IS_OBJECT(backoff))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("backoff must be an object, not %s",
						JsonbToCString(NULL, &backoff->root, VARSIZE(backoff)))));
	it = JsonbIteratorInit(&backoff->root);
	while ((token = JsonbIteratorNext(&it, &part, true)) != WJB_DONE)
	{
		if (token == WJB_KEY)
			key = pnstrdup(part.val.string.val, part.val.string.len);
		else if (token == WJB_VALUE && !backoff_part_is_good(key, &part))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("backoff has no such \"%s\": %s", key,
							JsonbToCString(NULL, &backoff->root, VARSIZE(backoff))),
					 errhint("It may have \"type\" (exponential or fixed), \"base\" and \"max\" (intervals) and \"jitter\" (0 to 1).")));
	}
	return backoff;
}

static Jsonb *
read_metadata(const NullableDatum *args)
{
	Jsonb	   *metadata;

	if (args[A_metadata].isnull)
		return NULL;
	metadata = DatumGetJsonbP(args[A_metadata].value);
	check_json_size("metadata", metadata, (int64) jobq_max_payload);
	return metadata;
}

void
request_set_parent(Request *request, const JobType *type, const pg_uuid_t *parent, int depth)
{
	int			max_depth = option_int(request->type->options, "max_depth", 50);

	request->has_parent = true;
	request->parent_id = *parent;
	request->parent_type = type;
	request->depth = depth;
	if (request->depth > max_depth)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("job would have depth %d, job type \"%s\" allows %d",
						request->depth, request->type->name, max_depth),
				 errhint("Jobs that enqueue jobs that enqueue jobs: see options.max_depth.")));
}

/* True if the job is asked for a second or more ahead: a chain of such jobs can't run away. */
static bool
is_far_ahead(const Request *request, const NullableDatum *args)
{
	Interval   *delay = read_interval(args, A_delay);

	return delay != NULL ? interval_to_us(delay) >= USECS_PER_SEC :
		request->scheduled_for != 0 && request->scheduled_for - GetCurrentTimestamp() >= USECS_PER_SEC;
}

/* A job enqueued by a handler is that job's child, and deeper unless it is for later. */
static void
read_parent(Request *request, const NullableDatum *args)
{
	pg_uuid_t	parent;
	int			depth;

	if (handler_current_job(&parent, &depth))
		request_set_parent(request, handler_now()->type, &parent, is_far_ahead(request, args) ? depth : depth + 1);
}

/* Refuses dependencies, whose arguments are there before the feature is. */
static void
read_after(const NullableDatum *args)
{
	char	   *rule;
	Argument	given = A_after;

	not_null(args, A_after_rule);
	rule = TextDatumGetCString(args[A_after_rule].value);
	if (strcmp(rule, "success") != 0)
	{
		if (strcmp(rule, "done") != 0 && strcmp(rule, "any") != 0 && strcmp(rule, "failed") != 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("after_rule must be success, done, any or failed, not \"%s\"", rule)));
		given = A_after_rule;
	}
	if (given == A_after_rule || !args[A_after].isnull)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("%s of jobq.enqueue is a feature that is not there yet", argument_names[given]),
				 errhint("Enqueue the second job in the handler of the first, or name its type in options.on_complete.")));
}

void
request_defaults(NullableDatum *args, Argument first)
{
	int			i;

	for (i = first; i < A_COUNT; i++)
	{
		args[i].isnull = i != A_payload && i != A_on_conflict && i != A_after_rule;
		args[i].value = (Datum) 0;
		if (i == A_payload)
			args[i].value = DirectFunctionCall1(jsonb_in, CStringGetDatum("{}"));
		else if (!args[i].isnull)
			args[i].value = CStringGetTextDatum(i == A_on_conflict ? "ignore" : "success");
	}
}

void
request_read(Request *request, const NullableDatum *args)
{
	memset(request, 0, sizeof(*request));
	request->type = read_type_name(args);
	request->priority = read_number(args, A_priority, request->type->base_priority,
									JOBQ_MIN_PRIORITY, JOBQ_MAX_PRIORITY);
	request->max_attempts = read_number(args, A_max_attempts, request->type->max_attempts,
										1, JOBQ_MAX_ATTEMPTS);
	request->scheduled_for = read_due(args);
	request->timeout = read_interval(args, A_timeout);
	request->backoff = read_backoff(args);
	request->unique_key = read_key(args, A_unique_key);
	request->on_conflict = read_on_conflict(args);
	request->unique_for = read_interval(args, A_unique_for);
	if (request->unique_for != NULL && request->unique_key == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unique_for needs a unique_key")));
	request->concurrency_key = read_key(args, A_concurrency_key);
	request->keep_completed = read_interval(args, A_keep_completed);
	request->keep_dead = read_interval(args, A_keep_dead);
	read_after(args);
	request->tenant = read_tenant(args);
	check_tenant(request);
	ceilings_check(request, !args[A_priority].isnull);
	request->metadata = read_metadata(args);
	read_parent(request, args);
	disk_admits(request->type);
}

void
request_set_payload(Request *request, Jsonb *payload)
{
	if (payload == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("payload must not be NULL"),
				 errhint("Pass '{}' for a job without one.")));
	check_json_size("payload", payload, (int64) jobq_max_payload);
	if (request->type->command != NULL)
		command_check_payload(request->type, payload);
	request->payload = payload;
}
