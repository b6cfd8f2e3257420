/*
 * tick.c
 *	  The job of a tick.
 *
 * The arguments are those of jobq.enqueue: options of the schedule, its type,
 * payload and tenant.  The payload may contain {"$": "$.tick"} and {"$":
 * "$.last_tick"}, which become times; metadata gets schedule, tick and
 * last_tick.  The request is read and stored by the code of enqueue, with the
 * identity of the schedule's owner, so that grants, ceilings, quotas, unique
 * keys and limits count as they do there.  The check of jobq.set_tenant_check
 * does not count: it is code of users.
 */
#include "jobq.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"
#include "utils/memutils.h"

#include "base/errors.h"
#include "base/json_build.h"
#include "base/json_size.h"
#include "enqueue/enqueue_jobs_reader.h"
#include "enqueue/insert_job.h"
#include "schedule/schedule_ticks.h"
#include "schedule/tick.h"
#include "security/act_as_enqueuer.h"
#include "security/access.h"

/* ---------- the payload ---------- */

/* The values of placeholders; last_tick NULL: JSON null. */
typedef struct TickTimes
{
	char		tick[MAXDATELEN + 1];
	char		last_tick[MAXDATELEN + 1];
	bool		has_last;
} TickTimes;

static void
time_text(char *buf, TimestampTz time)
{
	int			utc = 0;

	JsonEncodeDateTime(buf, TimestampTzGetDatum(time), TIMESTAMPTZOID, &utc);
}

static TickTimes
times_of(Schedule *s, TimestampTz tick)
{
	TickTimes	times;

	time_text(times.tick, tick);
	times.has_last = !S_NULL(s, S_last_tick);
	if (times.has_last)
		time_text(times.last_tick, S_TIME(s, S_last_tick));
	return times;
}

static JsonbValue
string_value(const char *text)
{
	JsonbValue	value = {.type = jbvString};

	value.val.string.val = unconstify(char *, text);
	value.val.string.len = strlen(text);
	return value;
}

static bool
is_string(const JsonbValue *value, const char *text)
{
	return value->val.string.len == (int) strlen(text) &&
		memcmp(value->val.string.val, text, value->val.string.len) == 0;
}

/*
 * Replaces a placeholder, an object with the one key "$"; false: the value is
 * none.
 */
static bool
fill_placeholder(JsonbValue *value, const TickTimes *times)
{
	JsonbContainer *object = value->val.binary.data;
	JsonbValue	key = string_value("$");
	JsonbValue *path;

	if (!JsonContainerIsObject(object) || JsonContainerSize(object) != 1)
		return false;
	path = findJsonbValueFromContainer(object, JB_FOBJECT, &key);
	if (path == NULL || path->type != jbvString)
		return false;
	if (is_string(path, "$.tick"))
		*value = string_value(times->tick);
	else if (!is_string(path, "$.last_tick"))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"payload\": unknown placeholder {\"$\": %s}", json_value_shown(path)),
				 errhint("A schedule has {\"$\": \"$.tick\"} and {\"$\": \"$.last_tick\"}.")));
	else if (times->has_last)
		*value = string_value(times->last_tick);
	else
		value->type = jbvNull;
	return true;
}

/* Copies a container and the values in it, with its placeholders filled. */
static void
copy_container(JsonbInState *out, JsonbContainer *container, const TickTimes *times)
{
	JsonbIterator *it = JsonbIteratorInit(container);
	JsonbIteratorToken token;
	JsonbValue	value;

	check_stack_depth();
	while ((token = JsonbIteratorNext(&it, &value, true)) != WJB_DONE)
	{
		bool		nested = (token == WJB_VALUE || token == WJB_ELEM) && value.type == jbvBinary;

		if (nested && !fill_placeholder(&value, times))
			copy_container(out, value.val.binary.data, times);
		else
			pushJsonbValue(out, token, token < WJB_BEGIN_ARRAY ? &value : NULL);
	}
}

/* Returns the payload of a tick; without placeholders it is the schedule's. */
static Jsonb *
payload_of(Schedule *s, const TickTimes *times)
{
	Jsonb	   *payload = DatumGetJsonbP(S_ATT(s, S_payload));
	JsonbValue	whole = {.type = jbvBinary};
	JsonbInState out = {0};

	check_json_size("payload", payload, (int64) jobq_max_payload);
	if (JB_ROOT_IS_SCALAR(payload) || memmem(VARDATA(payload), VARSIZE(payload) - VARHDRSZ, "$.", 2) == NULL)
		return payload;
	whole.val.binary.data = &payload->root;
	whole.val.binary.len = VARSIZE(payload) - VARHDRSZ;
	if (fill_placeholder(&whole, times))
		return JsonbValueToJsonb(&whole);
	copy_container(&out, &payload->root, times);
	return JsonbValueToJsonb(out.result);
}

/* ---------- the request ---------- */

/* Returns the metadata of the options, if any, with those of the tick. */
static Datum
metadata_of(Schedule *s, NullableDatum given, const TickTimes *times)
{
	JsonBuild	b;
	Datum		own;

	json_begin_object(&b);
	json_add_string(&b, "schedule", TextDatumGetCString(S_ATT(s, S_name)));
	json_add_string(&b, "tick", times->tick);
	json_add_text(&b, "last_tick", times->has_last ? times->last_tick : NULL);
	own = JsonbPGetDatum(json_end_object(&b));
	if (given.isnull)
		return own;
	if (!JB_ROOT_IS_OBJECT(DatumGetJsonbP(given.value)))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"options\": key \"metadata\": %s is not an object",
						json_shown(DatumGetJsonbP(given.value)))));
	return DirectFunctionCall2(jsonb_concat, given.value, own);
}

/* Refuses arguments that the tick or another argument of the schedule gives. */
static void
check_option_keys(Jsonb *options)
{
	static const Argument others[] = {A_job_type, A_payload, A_delay, A_scheduled_for, A_tenant, A_after, A_after_rule};

	for (int i = 0; i < (int) lengthof(others); i++)
	{
		JsonbValue	key = string_value(argument_names[others[i]]);

		if (findJsonbValueFromContainer(&options->root, JB_FOBJECT, &key) != NULL)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("argument \"options\": key \"%s\" is none of a schedule's", argument_names[others[i]])));
	}
}

static void
read_options(Schedule *s, NullableDatum *args)
{
	Jsonb	   *options = DatumGetJsonbP(S_ATT(s, S_options));
	MemoryContext context = CurrentMemoryContext;
	const char *volatile converting = NULL;

	if (!JB_ROOT_IS_OBJECT(options))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"options\": %s is not an object", json_shown(options))));
	check_option_keys(options);
	PG_TRY();
	{
		job_arguments_read(&options->root, args, (const char **) &converting, NULL, 0);
	}
	PG_CATCH();
	{
		raise_with_prefix(context, converting == NULL ? "argument \"options\": " :
						  psprintf("argument \"options\": key \"%s\": ", converting));
	}
	PG_END_TRY();
}

/*
 * Raises the error that is caught, as one of `options` if it is about an
 * argument of enqueue that they give.
 */
static void
raise_option_error(Schedule *s, MemoryContext context)
{
	static const char begin[] = "argument \"";
	JsonbValue	key = {.type = jbvString};
	ErrorData  *error;

	MemoryContextSwitchTo(context);
	error = CopyErrorData();
	FlushErrorState();
	if (error->message != NULL && strncmp(error->message, begin, strlen(begin)) == 0)
	{
		key.val.string.val = error->message + strlen(begin);
		key.val.string.len = (int) strcspn(key.val.string.val, "\"");
		if (findJsonbValueFromContainer(&DatumGetJsonbP(S_ATT(s, S_options))->root, JB_FOBJECT, &key) != NULL)
			error->message = psprintf("argument \"options\": key \"%s", key.val.string.val);
	}
	ReThrowError(error);
}

/* request_read(), with errors about options of the schedule. */
static void
read_with_options(Schedule *s, Request *request, const NullableDatum *args)
{
	MemoryContext context = CurrentMemoryContext;

	PG_TRY();
	{
		request_read(request, args);
	}
	PG_CATCH();
	{
		raise_option_error(s, context);
	}
	PG_END_TRY();
}

static void
set_argument(NullableDatum *arg, Datum value, bool isnull)
{
	arg->value = value;
	arg->isnull = isnull;
}

static void
read_request(Schedule *s, TimestampTz tick, Request *request)
{
	NullableDatum args[A_COUNT];
	TickTimes	times = times_of(s, tick);
	TimestampTz due = tick + schedule_jitter_us(s, tick);

	if (!IS_VALID_TIMESTAMP(due))
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("argument \"jitter\": the job of tick %s would be due too late", timestamptz_to_str(tick))));
	request_defaults(args);
	read_options(s, args);
	set_argument(&args[A_job_type], S_ATT(s, S_job_type), false);
	set_argument(&args[A_scheduled_for], TimestampTzGetDatum(due), false);
	set_argument(&args[A_tenant], S_ATT(s, S_tenant), S_NULL(s, S_tenant));
	set_argument(&args[A_metadata], metadata_of(s, args[A_metadata], &times), false);
	read_with_options(s, request, args);
	request_set_payload(request, payload_of(s, &times));
	request->schedule_id = S_INT(s, S_id);
}

/* ---------- the owner ---------- */

typedef struct TickJob
{
	Enqueuer   *e;				/* NULL: only checked */
	Schedule   *schedule;
	TimestampTz tick;
	pg_uuid_t  *id;
	bool		is_new;
} TickJob;

static void
store(TickJob *job)
{
	Request		request;

	(void) act_as_enqueuer(DatumGetObjectId(S_ATT(job->schedule, S_owner_oid)),
						   TextDatumGetCString(S_ATT(job->schedule, S_owner)));
	read_request(job->schedule, job->tick, &request);
	if (job->e != NULL)
		job->is_new = store_job(job->e, &request, job->id);
}

/*
 * Acts as the owner.  jobq.tenant is the caller's and does not count: the
 * schedule has its tenant.
 */
static void
store_as_owner(TickJob *job)
{
	char	   *tenant = jobq_tenant;
	bool		ignored = tenant_check_ignored;
	Caller		caller;

	GetUserIdAndSecContext(&caller.role, &caller.security_context);
	jobq_tenant = "";
	tenant_check_ignored = true;
	PG_TRY();
	{
		store(job);
	}
	PG_FINALLY();
	{
		act_as_caller(caller);
		jobq_tenant = tenant;
		tenant_check_ignored = ignored;
	}
	PG_END_TRY();
}

/* The copies of a payload are freed at once: a turn may have many ticks. */
bool
tick_enqueue(Enqueuer *e, Schedule *s, TimestampTz tick, pg_uuid_t *id)
{
	TickJob		job = {.e = e, .schedule = s, .tick = tick, .id = id};
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "jobq tick", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);

	store_as_owner(&job);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	if (!job.is_new)
		return false;
	schedule_set(s, S_runs, Int64GetDatum(DatumGetInt64(S_ATT(s, S_runs)) + 1));
	schedule_set(s, S_last_job_id, UUIDPGetDatum(id));
	return true;
}

void
tick_check(Schedule *s)
{
	TickJob		job = {.schedule = s, .tick = S_TIME(s, S_ticks_after)};

	store_as_owner(&job);
}
