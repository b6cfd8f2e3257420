/*
 * enqueue_jobs_reader.c
 *	  Reads the jobs of jobq.enqueue_jobs: each object becomes the arguments of
 *	  a call of enqueue, by the input functions of their types.  JSON null is
 *	  NULL.
 */
#include "jobq.h"

#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/numeric.h"
#include "utils/timestamp.h"

#include "base/errors.h"
#include "enqueue/enqueue_jobs_reader.h"
#include "registry/options.h"

void
job_list_begin(JobList *list, Jsonb *jobs)
{
	if (!JB_ROOT_IS_ARRAY(jobs) || JB_ROOT_IS_SCALAR(jobs))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"jobs\": %s is not an array of objects",
						json_shown(jobs))));
	list->jobs = jobs;
	list->count = JB_ROOT_COUNT(jobs);
	list->ordinal = 0;
	list->caller = CurrentMemoryContext;
	list->per_job = AllocSetContextCreate(CurrentMemoryContext, "jobq enqueue_jobs",
										  ALLOCSET_DEFAULT_SIZES);
	list->converting = NULL;
	list->ids = palloc(sizeof(pg_uuid_t) * Max(list->count, 1));
}

void
job_list_end(JobList *list)
{
	MemoryContextSwitchTo(list->caller);
	MemoryContextDelete(list->per_job);
}

const char *
job_list_prefix(const JobList *list)
{
	return list->converting == NULL ? psprintf("job %d: ", list->ordinal) :
		psprintf("job %d: argument \"%s\": ", list->ordinal, list->converting);
}

static void
bad_value(Argument arg, const JsonbValue *value, const char *wanted)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("argument \"%s\": %s is not %s", argument_names[arg],
					json_value_shown(value), wanted)));
}

static char *
string_value(Argument arg, const JsonbValue *value, const char *wanted)
{
	if (value->type != jbvString)
		bad_value(arg, value, wanted);
	return pnstrdup(value->val.string.val, value->val.string.len);
}

/* Returns a text as its type's input function reads it. */
static Datum
converted_value(const char **converting, Argument arg, const JsonbValue *value, PGFunction input, const char *wanted)
{
	char	   *string = string_value(arg, value, wanted);
	Datum		result;

	*converting = argument_names[arg];
	result = DirectFunctionCall3(input, CStringGetDatum(string), ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));
	*converting = NULL;
	return result;
}

static Datum
integer_value(Argument arg, const JsonbValue *value)
{
	double		number;

	if (!value_number(value, &number))
		bad_value(arg, value, "a whole number");
	if (number < PG_INT32_MIN || number > PG_INT32_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("argument \"%s\": %.15g is outside %d..%d", argument_names[arg], number,
						PG_INT32_MIN, PG_INT32_MAX)));
	return Int32GetDatum((int32) number);
}

/* Returns the id that an element of `after` names: itself, or the ordinal of an earlier job. */
static Datum
parent_value(const char **converting, const JsonbValue *value, const pg_uuid_t *earlier, int nearlier)
{
	double		number;

	if (value->type == jbvString)
	{
		char	   *string = pnstrdup(value->val.string.val, value->val.string.len);
		Datum		id;

		*converting = argument_names[A_after];
		id = DirectFunctionCall1(uuid_in, CStringGetDatum(string));
		*converting = NULL;
		return id;
	}
	if (!value_number(value, &number))
		bad_value(A_after, value, "an id or the ordinal of an earlier job");
	if (number < 1 || number > nearlier)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"after\": %.15g is not the ordinal of an earlier job", number)));
	return UUIDPGetDatum(&earlier[(int) number - 1]);
}

static Datum
after_value(const char **converting, JsonbValue *value, const pg_uuid_t *earlier, int nearlier)
{
	JsonbContainer *array = value->val.binary.data;
	Datum	   *ids;
	int			n;

	if (value->type != jbvBinary || !JsonContainerIsArray(array) || JsonContainerIsScalar(array))
		bad_value(A_after, value, "an array of ids and ordinals");
	n = JsonContainerSize(array);
	ids = palloc(sizeof(Datum) * Max(n, 1));
	for (int i = 0; i < n; i++)
		ids[i] = parent_value(converting, getIthJsonbValueFromContainer(array, i), earlier, nearlier);
	return PointerGetDatum(construct_array(ids, n, UUIDOID, UUID_LEN, false, TYPALIGN_CHAR));
}

static Datum
argument_value(const char **converting, Argument arg, JsonbValue *value, const pg_uuid_t *earlier, int nearlier)
{
	switch (arg)
	{
		case A_payload:
		case A_backoff:
		case A_metadata:
			return JsonbPGetDatum(JsonbValueToJsonb(value));
		case A_priority:
		case A_max_attempts:
			return integer_value(arg, value);
		case A_delay:
		case A_timeout:
		case A_unique_for:
		case A_keep_completed:
		case A_keep_dead:
			return converted_value(converting, arg, value, interval_in, "an interval, as text");
		case A_scheduled_for:
			return converted_value(converting, arg, value, timestamptz_in, "a time, as text");
		case A_after:
			return after_value(converting, value, earlier, nearlier);
		default:
			return CStringGetTextDatum(string_value(arg, value, "a text"));
	}
}

static Argument
find_argument(const JsonbValue *key)
{
	int			i;

	for (i = 0; i < A_COUNT; i++)
		if (strlen(argument_names[i]) == (size_t) key->val.string.len &&
			memcmp(argument_names[i], key->val.string.val, key->val.string.len) == 0)
			return (Argument) i;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unknown key \"%s\"", argument_shown(pnstrdup(key->val.string.val, key->val.string.len))),
			 errhint("Keys are the argument names of jobq.enqueue.")));
}

void
job_arguments_read(JsonbContainer *object, NullableDatum *args, const char **converting,
				   const pg_uuid_t *earlier, int nearlier)
{
	JsonbIterator *it = JsonbIteratorInit(object);
	JsonbIteratorToken token;
	JsonbValue	part;
	Argument	arg = A_job_type;

	while ((token = JsonbIteratorNext(&it, &part, true)) != WJB_DONE)
	{
		if (token == WJB_KEY)
			arg = find_argument(&part);
		else if (token == WJB_VALUE)
		{
			args[arg].isnull = part.type == jbvNull;
			args[arg].value = args[arg].isnull ? (Datum) 0 : argument_value(converting, arg, &part, earlier, nearlier);
		}
	}
}

bool
job_list_next(JobList *list, Request *request)
{
	NullableDatum args[A_COUNT];
	JsonbValue *job;

	if (list->ordinal >= list->count)
		return false;
	MemoryContextReset(list->per_job);
	MemoryContextSwitchTo(list->per_job);
	job = getIthJsonbValueFromContainer(&list->jobs->root, list->ordinal++);
	if (job->type != jbvBinary || !JsonContainerIsObject(job->val.binary.data))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s is not an object", json_value_shown(job))));
	request_defaults(args);
	job_arguments_read(job->val.binary.data, args, &list->converting, list->ids, list->ordinal - 1);
	request_read(request, args);
	request_set_payload(request, args[A_payload].isnull ? NULL :
						DatumGetJsonbP(args[A_payload].value));
	return true;
}
