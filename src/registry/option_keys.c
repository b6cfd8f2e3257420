/*
 * option_keys.c
 *	  The option keys and their kinds; the view jobq.option_keys has their meaning.
 */
#include "registry/options.h"

#include <math.h>

#include "lib/stringinfo.h"
#include "utils/builtins.h"

#include "base/errors.h"
#include "base/tool_env.h"
#include "lifecycle/release.h"

PG_FUNCTION_INFO_V1(jobq_check_options);

typedef enum OptionType
{
	OPTION_BOOL,
	OPTION_INT,
	OPTION_SIZE,
	OPTION_INTERVAL,
	OPTION_TEXT,
	OPTION_TYPE_NAME,			/* of a job type, which need not exist */
	OPTION_TEXTS,
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
} OptionKey;

static const OptionKey option_keys[] = {
	{"output", FOR_EXEC, OPTION_TEXT, 0, 0, " json text none "},
	{"allow_dash", FOR_EXEC, OPTION_BOOL, 0, 0, NULL},
	{"env", FOR_EXEC, OPTION_ENV, 0, 0, NULL},
	{"pass_env", FOR_EXEC, OPTION_NAMES, 0, 0, NULL},
	{"run_on", FOR_EXEC, OPTION_TEXT, 0, 0, " server agents any "},
	{"permanent_exit_codes", FOR_EXEC, OPTION_INTS, 0, 255, NULL},
	{"skip_exit_codes", FOR_EXEC, OPTION_INTS, 0, 255, NULL},
	{"snooze_exit_codes", FOR_EXEC, OPTION_INTS, 0, 255, NULL},
	{"snooze", FOR_EXEC, OPTION_INTERVAL, 0, 0, NULL},
	{"kill_grace", FOR_EXEC, OPTION_INTERVAL, 0, 0, NULL},
	{"memory_max", FOR_EXEC, OPTION_SIZE, 1, INT_MAX, NULL},
	{"cpu_seconds", FOR_EXEC, OPTION_INT, 1, INT_MAX, NULL},
	{"nofile", FOR_EXEC, OPTION_INT, 16, 1048576, NULL},
	{"max_output", FOR_EXEC, OPTION_SIZE, 1, 256 * 1024 * 1024, NULL},
	{"log_stderr", FOR_EXEC, OPTION_TEXT, 0, 0, " debug1 log "},
	{"max_log_lines", FOR_EXEC, OPTION_INT, 0, INT_MAX, NULL},
	{"warm", FOR_EXEC, OPTION_INT, 0, 1000, NULL},
	{"warm_idle", FOR_EXEC, OPTION_INTERVAL, 0, 0, NULL},
	{"warm_max_jobs", FOR_EXEC, OPTION_INT, 1, INT_MAX, NULL},
	{"warm_memory", FOR_EXEC, OPTION_SIZE, 1, INT_MAX, NULL},
	{"stall", FOR_EXEC | FOR_PULL, OPTION_INTERVAL, 0, 0, NULL},
	{"require_labels", FOR_EXEC | FOR_PULL, OPTION_OBJECT, 0, 0, NULL},
	{"sticky", FOR_EXEC | FOR_PULL, OPTION_BOOL, 0, 0, NULL},
	{"max_lease", FOR_PULL, OPTION_INTERVAL, 0, 0, NULL},
	{"lease_follows_connection", FOR_PULL, OPTION_BOOL, 0, 0, NULL},
	{"min_batch", FOR_PULL, OPTION_MIN_BATCH, 1, MIN_BATCH_MAX_JOBS, NULL},
	{"batch", FOR_SQL, OPTION_BOOL, 0, 0, NULL},
	{"max_crashes", FOR_ALL, OPTION_INT, 1, 1000, NULL},
	{"permanent_codes", FOR_ALL, OPTION_TEXTS, 0, 0, NULL},
	{"retry_codes", FOR_ALL, OPTION_TEXTS, 0, 0, NULL},
	{"breaker", FOR_ALL, OPTION_BREAKER, 1, 1000000, NULL},
	{"max_priority", FOR_ALL, OPTION_INT, JOBQ_MIN_PRIORITY, JOBQ_MAX_PRIORITY, NULL},
	{"max_unique_for", FOR_ALL, OPTION_INTERVAL, 0, 0, NULL},
	{"min_interval", FOR_ALL, OPTION_INTERVAL, 0, 0, NULL},
	{"limits", FOR_ALL, OPTION_TEXTS, 0, 0, NULL},
	{"burst", FOR_ALL, OPTION_INT, 0, INT_MAX, NULL},
	{"concurrency_per_key", FOR_ALL, OPTION_INT, 1, INT_MAX, NULL},
	{"key_order", FOR_ALL, OPTION_TEXT, 0, 0, " fifo "},
	{"fair_by", FOR_ALL, OPTION_TEXT, 0, 0, " tenant "},
	{"fair_depth", FOR_ALL, OPTION_INT, 1, 100, NULL},
	{"aging", FOR_ALL, OPTION_AGING, 0, 1000, NULL},
	{"max_skip", FOR_ALL, OPTION_INT, 0, INT_MAX, NULL},
	{"max_depth", FOR_ALL, OPTION_INT, 0, INT_MAX, NULL},
	{"require_tenant", FOR_ALL, OPTION_BOOL, 0, 0, NULL},
	{"refuse_on_disk_emergency", FOR_ALL, OPTION_BOOL, 0, 0, NULL},
	{"events", FOR_ALL, OPTION_TEXT, 0, 0, " none failures all "},
	{"on_complete", FOR_ALL, OPTION_TYPE_NAME, 0, 0, NULL},
	{"on_failure", FOR_ALL, OPTION_TYPE_NAME, 0, 0, NULL},
	{"on_dead", FOR_ALL, OPTION_TYPE_NAME, 0, 0, NULL},
	{"alert", FOR_ALL, OPTION_BOOL, 0, 0, NULL},
	{"log_fields", FOR_ALL, OPTION_TEXTS, 0, 0, NULL},
	{"keep_completed_count", FOR_ALL, OPTION_INT, 0, INT_MAX, NULL},
	{"keep_dead_count", FOR_ALL, OPTION_INT, 0, INT_MAX, NULL}
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
				(errcode(number < option->min || option->type == OPTION_INTS ?
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
	bool		array = option->type == OPTION_TEXTS || option->type == OPTION_NAMES ||
		option->type == OPTION_INTS;
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

void
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
