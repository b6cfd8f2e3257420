/*
 * option_keys.c
 *	  The option keys of job types, which the view jobq.option_keys shows.
 */
#include "jobq.h"

#include <math.h>

#include "funcapi.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

#include "base/errors.h"
#include "base/texts.h"
#include "base/tool_env.h"
#include "lifecycle/release.h"
#include "registry/options.h"

PG_FUNCTION_INFO_V1(jobq_check_options);
PG_FUNCTION_INFO_V1(jobq_option_keys);

typedef enum OptionType
{
	OPTION_BOOL,
	OPTION_INT,
	OPTION_SIZE,
	OPTION_INTERVAL,
	OPTION_TEXT,
	OPTION_TYPE_NAME,			/* of a job type, which need not exist */
	OPTION_TEXTS,
	OPTION_PATTERNS,			/* of LIKE */
	OPTION_NAMES,				/* names of environment variables */
	OPTION_INTS,
	OPTION_OBJECT,
	OPTION_AGING,				/* {"per", "max"} */
	OPTION_BREAKER,				/* {"failures", "pause"} */
	OPTION_MIN_BATCH,			/* {"jobs", "wait"} */
	OPTION_ENV					/* environment variables and their values */
} OptionType;

static const char *const wanted[] = {
	"true or false", "a whole number", "a number of bytes or a text such as \"64MB\"",
	"an interval as text, not negative", "a text", "a name of 1 to 63 bytes", "an array of texts",
	"an array of LIKE patterns, none of which ends with an escape character",
	"an array of names of environment variables", "an array of whole numbers", "an object",
	"an object of \"per\", an interval above zero, and \"max\", a whole number",
	"an object of \"failures\", a whole number, and \"pause\", an interval above zero and up to 100 years",
	"an object of \"jobs\", a whole number, and \"wait\", an interval above zero and up to 1 day",
	"an object of environment variables and their values, which are texts"
};

typedef struct OptionKey
{
	const char *key;
	int			kinds;
	OptionType	type;
	int			min;
	int			max;
	const char *choices;		/* of a text: ' one two ', NULL: any */
	const char *default_value;	/* without the key; NULL: none */
	const char *meaning;
} OptionKey;

static const OptionKey option_keys[] = {
	{"output", FOR_EXEC, OPTION_TEXT, 0, 0, " json text none ",
		"json", "form of stdout: json, text (a JSON string) or none"},
	{"allow_dash", FOR_EXEC, OPTION_BOOL, 0, 0, NULL,
		"false", "true: payload values that begin with \"-\" may begin an argument"},
	{"env", FOR_EXEC, OPTION_ENV, 0, 0, NULL,
		"{}", "environment variables with their values; kept in jobq.job_type_env"},
	{"pass_env", FOR_EXEC, OPTION_NAMES, 0, 0, NULL,
		"[]", "names of variables to copy from jobq.tool_env_file"},
	{"run_on", FOR_EXEC, OPTION_TEXT, 0, 0, " server agents any ",
		"server", "where the tool runs: server, agents or any; this release accepts only server"},
	{"permanent_exit_codes", FOR_EXEC, OPTION_INTS, 0, 255, NULL,
		PERMANENT_EXIT_CODES, "exit codes, 0 to 255, after which no further attempt follows"},
	{"skip_exit_codes", FOR_EXEC, OPTION_INTS, 0, 255, NULL,
		"[]", "exit codes, 0 to 255, that end the job as skipped"},
	{"snooze_exit_codes", FOR_EXEC, OPTION_INTS, 0, 255, NULL,
		"[]", "exit codes, 0 to 255, that put the job off at no charge"},
	{"snooze", FOR_EXEC, OPTION_INTERVAL, 0, 0, NULL,
		"1min", "time for which snooze_exit_codes put the job off"},
	{"kill_grace", FOR_EXEC, OPTION_INTERVAL, 0, 0, NULL,
		"5s", "time between TERM and KILL"},
	{"memory_max", FOR_EXEC, OPTION_SIZE, 1, INT_MAX, NULL,
		NULL, "memory in bytes: of the whole tool in a cgroup, else address space of each process"},
	{"cpu_seconds", FOR_EXEC, OPTION_INT, 1, INT_MAX, NULL,
		NULL, "processor time of each process of the tool, in seconds"},
	{"nofile", FOR_EXEC, OPTION_INT, 16, 1048576, NULL,
		"256", "open files of each process of the tool, 16 to 1,048,576"},
	{"max_output", FOR_EXEC, OPTION_SIZE, 1, 256 * 1024 * 1024, NULL,
		NULL, "size of stdout in bytes, up to 256 MB; without the key jobq.max_output"},
	{"log_stderr", FOR_EXEC, OPTION_TEXT, 0, 0, " debug1 log ",
		NULL, "level at which stderr goes to the server log: debug1 or log"},
	{"max_log_lines", FOR_EXEC, OPTION_INT, 0, INT_MAX, NULL,
		"100", "lines of one attempt that go to the server log"},
	{"warm", FOR_EXEC, OPTION_INT, 0, 1000, NULL,
		"0", "instances of the tool that stay between jobs, 0 to 1,000"},
	{"warm_idle", FOR_EXEC, OPTION_INTERVAL, 0, 0, NULL,
		"10min", "time without a job after which idle instances end"},
	{"warm_max_jobs", FOR_EXEC, OPTION_INT, 1, INT_MAX, NULL,
		NULL, "jobs after which an instance is replaced"},
	{"warm_memory", FOR_EXEC, OPTION_SIZE, 1, INT_MAX, NULL,
		NULL, "resident memory in bytes above which an instance is replaced"},
	{"stall", FOR_EXEC | FOR_PULL, OPTION_INTERVAL, 0, 0, NULL,
		NULL, "time without output, progress or heartbeat after which an attempt fails as stalled"},
	{"require_labels", FOR_EXEC | FOR_PULL, OPTION_OBJECT, 0, 0, NULL,
		"{}", "labels that a node must have; this release accepts only {}"},
	{"sticky", FOR_EXEC | FOR_PULL, OPTION_BOOL, 0, 0, NULL,
		"false", "true: retries prefer the node of the first attempt; this release accepts only false"},
	{"max_lease", FOR_PULL, OPTION_INTERVAL, 0, 0, NULL,
		"1h", "longest lease that jobq.claim may ask for"},
	{"lease_follows_connection", FOR_PULL, OPTION_BOOL, 0, 0, NULL,
		"false", "true: the lease of a job ends with the connection that claimed it; the attempt has "
		"failed with lease_expired"},
	{"min_batch", FOR_PULL, OPTION_MIN_BATCH, 1, MIN_BATCH_MAX_JOBS, NULL,
		NULL, "jobs, 1 to 128, that a claim waits for, until the oldest has waited so long since it "
		"was due: {\"jobs\": int, \"wait\": interval}; {}: 10 jobs, 5s"},
	{"batch", FOR_SQL, OPTION_BOOL, 0, 0, NULL,
		"true", "true: short jobs may share a commit"},
	{"max_crashes", FOR_ALL, OPTION_INT, 1, 1000, NULL,
		"2", "server crashes, 1 to 1,000, that make a job a dead letter"},
	{"permanent_codes", FOR_ALL, OPTION_PATTERNS, 0, 0, NULL,
		"[]", "LIKE patterns of error codes after which no further attempt follows"},
	{"retry_codes", FOR_ALL, OPTION_PATTERNS, 0, 0, NULL,
		NULL, "LIKE patterns of error codes: after any other code of a handler or tool no further "
		"attempt follows"},
	{"breaker", FOR_ALL, OPTION_BREAKER, 1, 1000000, NULL,
		NULL, "failed attempts in a row, 1 to 1,000,000, that pause the type, and the pause before "
		"one job probes: {\"failures\": int, \"pause\": interval}"},
	{"max_priority", FOR_ALL, OPTION_INT, JOBQ_MIN_PRIORITY, JOBQ_MAX_PRIORITY, NULL,
		NULL, "highest priority, -100 to 100, that a role held to its grants may give; without the "
		"key base_priority for grants of a tenant"},
	{"max_unique_for", FOR_ALL, OPTION_INTERVAL, 0, 0, NULL,
		"30 days", "longest unique_for that a role held to its grants may give"},
	{"min_interval", FOR_ALL, OPTION_INTERVAL, 0, 0, NULL,
		"1min", "least interval between ticks of a schedule whose owner is held to its grants"},
	{"limits", FOR_ALL, OPTION_TEXTS, 0, 0, NULL,
		"[]", "names of up to 8 limits shared with other job types (jobq.set_limit)"},
	{"burst", FOR_ALL, OPTION_INT, 0, INT_MAX, NULL,
		"0", "size of a token bucket that replaces the exact window of rate_limit; 0: none"},
	{"concurrency_per_key", FOR_ALL, OPTION_INT, 1, INT_MAX, NULL,
		"1", "jobs with one concurrency_key that run at once, 1 or more"},
	{"key_order", FOR_ALL, OPTION_TEXT, 0, 0, " fifo ",
		NULL, "fifo: jobs with one concurrency_key run one after another, in the order of enqueue"},
	{"fair_by", FOR_ALL, OPTION_TEXT, 0, 0, " tenant ",
		NULL, "tenant: tenants are served in turn"},
	{"fair_depth", FOR_ALL, OPTION_INT, 1, 100, NULL,
		"1", "with fair_by: leading elements of a tenant path such as acme/eu that take turns, 1 "
		"to 100"},
	{"aging", FOR_ALL, OPTION_AGING, 0, 1000, NULL,
		NULL, "waiting raises the priority by 1 per interval, up to max, 0 to 1,000: {\"per\": "
		"interval, \"max\": int}"},
	{"max_skip", FOR_ALL, OPTION_INT, 0, INT_MAX, NULL,
		"100", "lighter jobs that may pass a job that is too heavy to start"},
	{"max_depth", FOR_ALL, OPTION_INT, 0, INT_MAX, NULL,
		"50", "longest chain of jobs that enqueue jobs; a job due in a second or more is as deep as "
		"its parent"},
	{"require_tenant", FOR_ALL, OPTION_BOOL, 0, 0, NULL,
		"false", "true: an enqueue without a tenant is refused"},
	{"refuse_on_disk_emergency", FOR_ALL, OPTION_BOOL, 0, 0, NULL,
		"false", "true: enqueues are refused while a disk is at level emergency"},
	{"events", FOR_ALL, OPTION_TEXT, 0, 0, " none failures all ",
		"failures", "events that are written: none, failures or all"},
	{"on_complete", FOR_ALL, OPTION_TYPE_NAME, 0, 0, NULL,
		NULL, "job type of a job that is enqueued when a job completes"},
	{"on_failure", FOR_ALL, OPTION_TYPE_NAME, 0, 0, NULL,
		NULL, "job type of a job that is enqueued when an attempt fails"},
	{"on_dead", FOR_ALL, OPTION_TYPE_NAME, 0, 0, NULL,
		NULL, "job type of a job that is enqueued when a job becomes a dead letter"},
	{"alert", FOR_ALL, OPTION_BOOL, 0, 0, NULL,
		"true", "true: a dead letter raises an alert"},
	{"log_fields", FOR_ALL, OPTION_TEXTS, 0, 0, NULL,
		"[]", "names of payload fields that log lines show"},
	{"keep_completed_count", FOR_ALL, OPTION_INT, 0, INT_MAX, NULL,
		NULL, "finished jobs of the type that are kept at most; tasks stay with their run"},
	{"keep_dead_count", FOR_ALL, OPTION_INT, 0, INT_MAX, NULL,
		NULL, "dead letters of the type that are kept at most; tasks stay with their run"}
};

/*
 * Options of features that do not exist yet, with the only value that is
 * accepted until then.
 */
static const struct
{
	const char *key;
	const char *value;
}			for_nodes[] = {
	{"run_on", "\"server\""},
	{"require_labels", "{}"},
	{"sticky", "false"}
};

#define MAX_OPTIONS_SIZE	(64 * 1024)

/*
 * Raises the error of a bad value.  Values of environment variables are in no
 * message.
 */
static void
bad_option(const OptionKey *option, const JsonbValue *value)
{
	if (option->type == OPTION_ENV)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"%s\" is not %s", option->key, wanted[option->type])));
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("option \"%s\": %s is not %s", option->key, json_value_shown(value), wanted[option->type])));
}

static void
check_range(const OptionKey *option, double number)
{
	if (number < option->min || number > option->max)
		ereport(ERROR,
				(errcode(number < option->min || option->type == OPTION_INTS || option->min == JOBQ_MIN_PRIORITY ?
						 ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE : ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("option \"%s\": %.15g is outside %d..%d",
						option->key, number, option->min, option->max)));
}

/* Returns the choices as a message lists them: "one", "two". */
static char *
choices_text(const char *choices)
{
	StringInfoData list;

	initStringInfo(&list);
	for (const char *word = choices + 1; *word != '\0'; word = strchr(word, ' ') + 1)
		appendStringInfo(&list, "%s\"%.*s\"", list.len > 0 ? ", " : "", (int) strcspn(word, " "), word);
	return list.data;
}

static void
check_choice(const OptionKey *option, const JsonbValue *value)
{
	char	   *word = psprintf(" %.*s ", value->val.string.len, value->val.string.val);

	if (option->choices == NULL)
		return;
	if (strchr(word + 1, ' ') != word + strlen(word) - 1 || strstr(option->choices, word) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"%s\": %s is not one of %s", option->key, json_value_shown(value),
						choices_text(option->choices))));
}

/* Refuses a good value of an option whose feature does not exist yet. */
static void
check_nodes(const OptionKey *option, const JsonbValue *value)
{
	for (int i = 0; i < (int) lengthof(for_nodes); i++)
		if (strcmp(for_nodes[i].key, option->key) == 0 && strcmp(for_nodes[i].value, json_value_shown(value)) != 0)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("option \"%s\": %s is a feature that is not there yet", option->key, json_value_shown(value)),
					 errhint("In this release it may be %s; null removes it.", for_nodes[i].value)));
}

/* --- the environment of a tool --- */

static void
check_variable(const OptionKey *option, const JsonbValue *value)
{
	char	   *name = pnstrdup(value->val.string.val, value->val.string.len);
	bool		good = tool_env_is_name(name, strlen(name));

	if (!good || tool_env_refused(name))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"%s\": the environment variable \"%s\" is refused",
						option->key, argument_shown(name)),
				 good ? errhint(TOOL_ENV_REFUSED) :
				 errhint("Names are made of letters, digits and \"_\".")));
}

/* --- arrays and objects --- */

/*
 * Checks an object of a number, which has the range of the option, and an
 * interval above zero.
 */
static void
check_pair(const OptionKey *option, const JsonbValue *value, const char *number_key, const char *interval_key, int64 longest)
{
	JsonbIterator *it;
	JsonbValue	key;
	JsonbValue	part;
	double		number;
	int64		us;

	if (value->type != jbvBinary || !JsonContainerIsObject(value->val.binary.data))
		bad_option(option, value);
	it = JsonbIteratorInit(value->val.binary.data);
	(void) JsonbIteratorNext(&it, &key, true);
	while (JsonbIteratorNext(&it, &key, true) == WJB_KEY)
	{
		char	   *name = pnstrdup(key.val.string.val, key.val.string.len);
		bool		is_number = strcmp(name, number_key) == 0;

		(void) JsonbIteratorNext(&it, &part, true);
		if (is_number ? !value_number(&part, &number) :
			strcmp(name, interval_key) != 0 || !value_interval(&part, &us) || us == 0 || us > longest)
			bad_option(option, value);
		if (is_number)
			check_range(option, number);
	}
}

static bool
element_is_good(const OptionKey *option, JsonbIteratorToken token, const JsonbValue *part)
{
	double		number;

	switch (option->type)
	{
		case OPTION_TEXTS:
			return part->type == jbvString;
		case OPTION_PATTERNS:
			return part->type == jbvString && like_pattern_is_good(part->val.string.val, part->val.string.len);
		case OPTION_NAMES:
			if (part->type == jbvString)
				check_variable(option, part);
			return part->type == jbvString;
		case OPTION_INTS:
			if (!value_number(part, &number))
				return false;
			check_range(option, number);
			return true;
		case OPTION_ENV:
			if (token == WJB_KEY)
				check_variable(option, part);
			return part->type == jbvString;
		default:
			return true;
	}
}

static void
check_container(const OptionKey *option, const JsonbValue *value)
{
	bool		array = option->type == OPTION_TEXTS || option->type == OPTION_PATTERNS ||
		option->type == OPTION_NAMES || option->type == OPTION_INTS;
	JsonbIterator *it;
	JsonbIteratorToken token;
	JsonbValue	part;

	if (value->type != jbvBinary ||
		(array ? !JsonContainerIsArray(value->val.binary.data) :
		 !JsonContainerIsObject(value->val.binary.data)))
		bad_option(option, value);
	it = JsonbIteratorInit(value->val.binary.data);
	while ((token = JsonbIteratorNext(&it, &part, true)) != WJB_DONE)
	{
		if (token != WJB_KEY && token != WJB_VALUE && token != WJB_ELEM)
			continue;
		if (!element_is_good(option, token, &part))
			bad_option(option, value);
	}
}

static void
check_value(const OptionKey *option, const JsonbValue *value)
{
	double		number;
	int64		us;
	bool		good = true;

	switch (option->type)
	{
		case OPTION_BOOL:
			good = value->type == jbvBool;
			break;
		case OPTION_INT:
			good = value_number(value, &number);
			break;
		case OPTION_SIZE:
			good = value_size(value, &number);
			break;
		case OPTION_INTERVAL:
			good = value_interval(value, &us);
			break;
		case OPTION_TEXT:
			good = value->type == jbvString;
			break;
		case OPTION_AGING:
			check_pair(option, value, "max", "per", PG_INT64_MAX);
			break;
		case OPTION_BREAKER:
			check_pair(option, value, "failures", "pause", BREAKER_MAX_PAUSE_US);
			break;
		case OPTION_MIN_BATCH:
			check_pair(option, value, "jobs", "wait", MIN_BATCH_MAX_WAIT_US);
			break;
		case OPTION_TYPE_NAME:
			good = value->type == jbvString && value->val.string.len > 0 &&
				value->val.string.len < NAMEDATALEN;
			break;
		default:
			check_container(option, value);
			break;
	}
	if (!good)
		bad_option(option, value);
	if (option->type == OPTION_INT || option->type == OPTION_SIZE)
		check_range(option, number);
	if (option->type == OPTION_TEXT)
		check_choice(option, value);
	check_nodes(option, value);
}

static const OptionKey *
find_key(const JsonbValue *key)
{
	int			i;

	for (i = 0; i < (int) lengthof(option_keys); i++)
		if (strlen(option_keys[i].key) == (size_t) key->val.string.len &&
			memcmp(option_keys[i].key, key->val.string.val, key->val.string.len) == 0)
			return &option_keys[i];
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("argument \"options\": unknown option key \"%s\"",
					argument_shown(pnstrdup(key->val.string.val, key->val.string.len))),
			 errhint("The view jobq.option_keys lists them.")));
}

static void
check_kind(const OptionKey *option, int kind)
{
	if ((option->kinds & kind) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"%s\" has no meaning for a %s", option->key,
						kind == FOR_EXEC ? "job type with a command" : kind == FOR_SQL ? "job type with a handler" :
						kind == FOR_WORKFLOW ? "workflow" : "job type without handler and command")));
}

/*
 * Raises 22023, 22003 or 54000 with the name of a bad key.  A JSON null counts
 * as a missing key.
 */
static void
check_options(Jsonb *options, int kind)
{
	const OptionKey *option = NULL;
	JsonbIterator *it;
	JsonbIteratorToken token;
	JsonbValue	part;

	if (!JB_ROOT_IS_OBJECT(options))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"options\": %s is not an object", json_shown(options))));
	if (VARSIZE(options) > MAX_OPTIONS_SIZE)
		argument_too_long("options", VARSIZE(options), MAX_OPTIONS_SIZE);
	it = JsonbIteratorInit(&options->root);
	while ((token = JsonbIteratorNext(&it, &part, true)) != WJB_DONE)
	{
		if (token == WJB_KEY)
		{
			option = find_key(&part);
			check_kind(option, kind);
		}
		else if (token == WJB_VALUE && part.type != jbvNull)
			check_value(option, &part);
	}
}

/* Returns the kind that the column kind of jobq.job_types names. */
static int
kind_of_name(const char *name)
{
	return strcmp(name, "exec") == 0 ? FOR_EXEC : strcmp(name, "pull") == 0 ? FOR_PULL :
		strcmp(name, "workflow") == 0 ? FOR_WORKFLOW : FOR_SQL;
}

/* jobq_internal._check_options(options, kind) */
Datum
jobq_check_options(PG_FUNCTION_ARGS)
{
	release_require();			/* another release has other arguments */
	if (PG_ARGISNULL(0))
		argument_is_null("options");
	check_options(PG_GETARG_JSONB_P(0), kind_of_name(text_to_cstring(PG_GETARG_TEXT_PP(1))));
	PG_RETURN_VOID();
}

/* --- the view --- */

static const char *const type_names[] = {
	[OPTION_BOOL] = "boolean", [OPTION_INT] = "int", [OPTION_SIZE] = "size", [OPTION_INTERVAL] = "interval",
	[OPTION_TEXT] = "text", [OPTION_TYPE_NAME] = "text", [OPTION_TEXTS] = "array of text", [OPTION_PATTERNS] = "array of text", [OPTION_NAMES] = "array of text",
	[OPTION_INTS] = "array of int", [OPTION_OBJECT] = "object", [OPTION_AGING] = "object", [OPTION_BREAKER] = "object",
	[OPTION_MIN_BATCH] = "object", [OPTION_ENV] = "object"
};

static const char *
kinds_text(int kinds)
{
	switch (kinds)
	{
		case FOR_ALL:
			return "all";
		case FOR_EXEC:
			return "exec";
		case FOR_PULL:
			return "pull";
		case FOR_SQL:
			return "sql";
		default:
			Assert(kinds == (FOR_EXEC | FOR_PULL));
			return "exec, pull";
	}
}

/* jobq_internal._option_keys() */
Datum
jobq_option_keys(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < (int) lengthof(option_keys); i++)
	{
		const OptionKey *option = &option_keys[i];
		Datum		values[] = {
			CStringGetTextDatum(option->key), CStringGetTextDatum(kinds_text(option->kinds)),
			CStringGetTextDatum(type_names[option->type]),
			option->default_value != NULL ? CStringGetTextDatum(option->default_value) : (Datum) 0,
			CStringGetTextDatum(option->meaning)
		};
		bool		nulls[] = {false, false, false, option->default_value == NULL, false};

		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}
