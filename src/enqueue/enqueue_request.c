/*
 * enqueue_request.c
 *	  Checks the arguments of enqueue.  Every message names the argument and its
 *	  value; a payload is never part of a message.
 */
#include "jobq.h"

#include <math.h>

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/numeric.h"
#include "utils/timestamp.h"

#include "base/errors.h"
#include "base/interval.h"
#include "base/json_size.h"
#include "enqueue/ceilings.h"
#include "enqueue/after.h"
#include "enqueue/enqueue_request.h"
#include "enqueue/quota.h"
#include "registry/command_template.h"
#include "registry/options.h"
#include "security/access.h"
#include "shared/current_job.h"
#include "shared/disk_level.h"

#define MAX_KEY_LENGTH		1024	/* bytes of a key: index entries must fit */
#define MAX_TENANT_LENGTH	255

const char *const argument_names[A_COUNT] = {
	"job_type", "payload", "priority", "delay", "scheduled_for", "max_attempts", "timeout",
	"backoff", "unique_key", "on_conflict", "unique_for", "concurrency_key", "keep_completed",
	"tenant", "metadata", "keep_dead", "after", "after_rule"
};

static void
not_null(const NullableDatum *args, Argument arg)
{
	if (args[arg].isnull)
		argument_is_null(argument_names[arg]);
}

/* Returns a number, checked against its range; `otherwise` for NULL. */
static int
read_number(const NullableDatum *args, Argument arg, int otherwise, int low, int high)
{
	int			value;

	if (args[arg].isnull)
		return otherwise;
	value = DatumGetInt32(args[arg].value);
	if (value < low || value > high)
		argument_out_of_range(argument_names[arg], value, low, high);
	return value;
}

static Interval *
read_interval(const NullableDatum *args, Argument arg)
{
	Interval   *span;

	if (args[arg].isnull)
		return NULL;
	span = DatumGetIntervalP(args[arg].value);
	argument_check_interval(argument_names[arg], span);
	return span;
}

/* 0: none, which a run can't have. */
static Interval *
read_timeout(const NullableDatum *args, const JobType *type)
{
	Interval   *timeout = read_interval(args, A_timeout);

	if (timeout != NULL && type->workflow && interval_to_us(timeout) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"timeout\": \"00:00:00\" is not more than zero"),
				 errdetail("A run of a workflow has a deadline.")));
	return timeout;
}

/* Returns a name or key of at most max bytes; NULL when it was not given. */
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
		argument_too_long(argument_names[arg], len, max);
	for (i = 0; i < len; i++)
	{
		unsigned char c = (unsigned char) VARDATA_ANY(value)[i];

		if (c < ' ' || c == 0x7f)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("argument \"%s\": control character 0x%02x at byte %d",
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
				 errmsg("argument \"%s\": \"\" is empty", argument_names[arg]),
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
				 errmsg("job type \"%s\" does not exist", argument_shown(name)),
				 errhint("Create it with jobq.create_job_type.")));
	return type;
}

/*
 * Returns the job's due time; 0: now.  The sum may depend on the
 * session's time zone ('1 month').
 */
static TimestampTz
read_due(const NullableDatum *args)
{
	Interval   *delay = read_interval(args, A_delay);
	TimestampTz at;

	if (delay != NULL && !args[A_scheduled_for].isnull)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("arguments \"delay\" and \"scheduled_for\" are both given")));
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
				 errmsg("argument \"scheduled_for\": \"%s\" is not finite",
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
	argument_no_choice("on_conflict", word, "\"ignore\", \"replace\", \"error\"");
}

/* True if the element of a path could lead elsewhere than below the path before it. */
static bool
is_bad_element(const char *element, int len)
{
	return len == 0 || (len == 1 && element[0] == '.') || (len == 2 && element[0] == '.' && element[1] == '.');
}

/*
 * Checks the tenant's path: tools get it as JOBQ_TENANT and may use it as one,
 * as grants do.  It may end with a slash.
 */
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
					 errmsg("argument \"tenant\": \"%s\" begins with a slash or has an element that is empty, \".\" or \"..\"",
							argument_shown(text_to_cstring(tenant)))));
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

/* Checks that the caller may enqueue this type for this tenant. */
static void
check_tenant(Request *request)
{
	if (request->tenant == NULL && request->type->require_tenant)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"tenant\" must be given for job type \"%s\"", request->type->name),
				 errhint("Its options say \"require_tenant\". Pass tenant, or set jobq.tenant.")));
	access_check_enqueue(request->type, request->tenant);
	request->enqueued_by = access_enqueuer(GetUserId());
	request->quotas = quotas_of(request->tenant);
}

/* --- backoff: {"type": "exponential", "base": "30s", "max": "1h", "jitter": 0.1} --- */

static bool
is_word(const JsonbValue *value, const char *word)
{
	return value->type == jbvString && value->val.string.len == (int) strlen(word) &&
		memcmp(value->val.string.val, word, value->val.string.len) == 0;
}

static bool
is_share(const JsonbValue *value)
{
	double		share;

	if (value->type != jbvNumeric)
		return false;
	share = DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow,
											   NumericGetDatum(value->val.numeric)));
	return share >= 0 && share <= 1;
}

/* Returns the kind of value that a key needs; NULL: it has that kind. */
static const char *
backoff_wants(const char *key, const JsonbValue *value)
{
	int64		us;

	if (strcmp(key, "type") == 0)
		return is_word(value, "exponential") || is_word(value, "fixed") ? NULL : "one of \"exponential\", \"fixed\"";
	if (strcmp(key, "base") == 0 || strcmp(key, "max") == 0)
		return value_interval(value, &us) ? NULL : "an interval of zero or more, as text";
	if (strcmp(key, "jitter") == 0)
		return is_share(value) ? NULL : "a number from 0 to 1";
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("argument \"backoff\": unknown key \"%s\"", argument_shown(key)),
			 errhint("Its keys are \"type\", \"base\", \"max\" and \"jitter\".")));
}

static void
check_backoff_part(const char *key, const JsonbValue *value)
{
	const char *wanted = backoff_wants(key, value);

	if (wanted != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"backoff\", key \"%s\": %s is not %s", key,
						json_value_shown(value), wanted)));
}

void
backoff_check(Jsonb *backoff)
{
	JsonbIterator *it;
	JsonbIteratorToken token;
	JsonbValue	part;
	char	   *key = NULL;

	check_json_size("backoff", backoff, 1024);
	if (!JB_ROOT_IS_OBJECT(backoff))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"backoff\": %s is not an object", json_shown(backoff))));
	it = JsonbIteratorInit(&backoff->root);
	while ((token = JsonbIteratorNext(&it, &part, true)) != WJB_DONE)
	{
		if (token == WJB_KEY)
			key = pnstrdup(part.val.string.val, part.val.string.len);
		else if (token == WJB_VALUE)
			check_backoff_part(key, &part);
	}
}

static Jsonb *
read_backoff(const NullableDatum *args)
{
	if (args[A_backoff].isnull)
		return NULL;
	backoff_check(DatumGetJsonbP(args[A_backoff].value));
	return DatumGetJsonbP(args[A_backoff].value);
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
request_set_parent(Request *request, const pg_uuid_t *parent, int depth)
{
	int			max_depth = option_int(request->type->options, "max_depth", 50);

	request->has_parent = true;
	request->parent_id = *parent;
	request->depth = depth;
	if (request->depth > max_depth)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("job would have depth %d, job type \"%s\" allows %d",
						request->depth, request->type->name, max_depth),
				 errhint("Jobs that enqueue jobs that enqueue jobs: see options.max_depth.")));
}

/* True if the job is due a second or more ahead: a chain of such jobs can't run away. */
static bool
is_far_ahead(const Request *request, const NullableDatum *args)
{
	Interval   *delay = read_interval(args, A_delay);

	return delay != NULL ? interval_to_us(delay) >= USECS_PER_SEC :
		request->scheduled_for != 0 && request->scheduled_for - GetCurrentTimestamp() >= USECS_PER_SEC;
}

/* Makes a job that a handler enqueues that job's child, and deeper unless it is for later. */
static void
read_parent(Request *request, const NullableDatum *args)
{
	const CurrentJob *parent = current_job();

	if (parent != NULL)
		request_set_parent(request, &parent->id,
						   is_far_ahead(request, args) ? parent->depth : parent->depth + 1);
}

void
request_defaults(NullableDatum *args)
{
	int			i;

	for (i = 0; i < A_COUNT; i++)
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
	request->priority_given = !args[A_priority].isnull;
	request->max_attempts_given = !args[A_max_attempts].isnull;
	request->due_given = !args[A_delay].isnull || !args[A_scheduled_for].isnull;
	request->timeout = read_timeout(args, request->type);
	request->backoff = read_backoff(args);
	request->unique_key = read_key(args, A_unique_key);
	request->on_conflict = read_on_conflict(args);
	request->unique_for = read_interval(args, A_unique_for);
	if (request->unique_for != NULL && request->unique_key == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"unique_for\" needs \"unique_key\"")));
	request->concurrency_key = read_key(args, A_concurrency_key);
	request->keep_completed = read_interval(args, A_keep_completed);
	request->keep_dead = read_interval(args, A_keep_dead);
	after_read(request, &args[A_after], &args[A_after_rule]);
	request->tenant = read_tenant(args);
	check_tenant(request);
	ceilings_check(request);
	request->metadata = read_metadata(args);
	read_parent(request, args);
	if (request->type->refuse_on_disk_emergency)
		disk_refuse_at_emergency(request->type->name);
}

void
request_set_payload(Request *request, Jsonb *payload)
{
	if (payload == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"payload\" must not be NULL"),
				 errhint("Pass '{}' for a job without one.")));
	check_json_size("payload", payload, (int64) jobq_max_payload);
	if (request->type->command != NULL)
		command_check_payload(request->type, payload);
	request->payload = payload;
}
