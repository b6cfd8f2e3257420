/*
 * step_fields.c
 *	  Reads the keys of one step: see steps.h.
 */
#include "jobq.h"

#include "base/errors.h"
#include "enqueue/enqueue_request.h"
#include "registry/options.h"
#include "workflow/steps_internal.h"

#define MAX_CONCURRENCY_KEY	1024	/* bytes */

void
step_bad_value(Steps *s, int step, const char *key, const JsonbValue *value, const char *wanted)
{
	step_problem(s, step, ERRCODE_INVALID_PARAMETER_VALUE, "\"%s\": %s is not %s", key, json_value_shown(value), wanted);
}

/* ---------- values ---------- */

/* Reads a text of 1 to max bytes without control characters. */
static char *
read_text(Steps *s, int step, const char *key, const JsonbValue *value, int max)
{
	char	   *text;

	if (value->type != jbvString)
	{
		step_bad_value(s, step, key, value, "a text");
		return NULL;
	}
	text = json_text(value);
	if (text[0] == '\0' || value->val.string.len > max || has_control(text))
	{
		step_bad_value(s, step, key, value, psprintf("a text of 1 to %d bytes without control characters", max));
		return NULL;
	}
	return text;
}

static int
read_number(Steps *s, int step, const char *key, const JsonbValue *value, int low, int high, int otherwise)
{
	double		number;
	bool		whole = value_number(value, &number);

	if (whole && number >= low && number <= high)
		return (int) number;
	step_problem(s, step, whole ? ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE : ERRCODE_INVALID_PARAMETER_VALUE,
				 "\"%s\": %s is not a whole number of %d..%d", key, json_value_shown(value), low, high);
	return otherwise;
}

static int64
read_interval(Steps *s, int step, const char *key, const JsonbValue *value)
{
	int64		us;

	if (value_interval(value, &us) && us <= JOBQ_MAX_INTERVAL_US)
		return us;
	step_bad_value(s, step, key, value, "an interval of 0..10000 years, as text");
	return -1;
}

static JsonbValue *
read_path(Steps *s, int step, const char *key, const JsonbValue *value)
{
	JsonbValue *path;

	if (value->type != jbvString)
	{
		step_bad_value(s, step, key, value, "a path, as text");
		return NULL;
	}
	path = palloc(sizeof(JsonbValue));
	*path = *value;
	return path;
}

/* Returns the number of the word in the list; -1: a problem. */
static int
read_choice(Steps *s, int step, const char *key, const JsonbValue *value, const char *const *words, const char *wanted)
{
	for (int i = 0; value->type == jbvString && words[i] != NULL; i++)
	{
		if (value->val.string.len == (int) strlen(words[i]) &&
			memcmp(words[i], value->val.string.val, value->val.string.len) == 0)
			return i;
	}
	step_bad_value(s, step, key, value, wanted);
	return -1;
}

/* Reads {"job_type", "payload"}. */
static void
read_compensate(Steps *s, int number, JsonbValue *value)
{
	Step	   *step = &s->steps[number];
	JsonbIterator *it;
	JsonbValue	key;
	JsonbValue	part;

	if (value->type != jbvBinary || !JsonContainerIsObject(value->val.binary.data))
	{
		step_bad_value(s, number, "compensate", value, "an object of \"job_type\" and \"payload\"");
		return;
	}
	it = JsonbIteratorInit(value->val.binary.data);
	(void) JsonbIteratorNext(&it, &key, true);
	while (JsonbIteratorNext(&it, &key, true) == WJB_KEY)
	{
		char	   *name = json_text(&key);

		(void) JsonbIteratorNext(&it, &part, true);
		if (strcmp(name, "payload") == 0 && part.type != jbvNull)
			step->compensate_payload = JsonbValueToJsonb(&part);
		else if (strcmp(name, "job_type") == 0)
			step->compensate_type = read_text(s, number, "compensate", &part, NAMEDATALEN - 1);
		else if (strcmp(name, "payload") != 0)
			step_problem(s, number, ERRCODE_INVALID_PARAMETER_VALUE, "\"compensate\": unknown key \"%s\"", argument_shown(name));
	}
	if (step->compensate_type == NULL)
		step_problem(s, number, ERRCODE_INVALID_PARAMETER_VALUE, "\"compensate\" has no \"job_type\"");
}

/* Checks a backoff as enqueue does. */
static void
read_backoff(Steps *s, int number, JsonbValue *value)
{
	MemoryContext context = CurrentMemoryContext;
	Jsonb	   *backoff = JsonbValueToJsonb(value);

	PG_TRY();
	{
		backoff_check(backoff);
		s->steps[number].backoff = backoff;
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		if (ERRCODE_TO_CATEGORY(error->sqlerrcode) != ERRCODE_DATA_EXCEPTION &&
			ERRCODE_TO_CATEGORY(error->sqlerrcode) != ERRCODE_PROGRAM_LIMIT_EXCEEDED)
			PG_RE_THROW();
		FlushErrorState();
		step_problem(s, number, ERRCODE_INVALID_PARAMETER_VALUE, "%s",
					 error->message + (strncmp(error->message, "argument ", 9) == 0 ? 9 : 0));
	}
	PG_END_TRY();
}

/* ---------- the keys of a step ---------- */

static const char *const step_keys[] = {
	"key", "job_type", "after", "rule", "if", "payload", "map", "max_parallel", "delay", "event", "on_failure",
	"compensate", "priority", "max_attempts", "timeout", "backoff", "concurrency_key"
};
static const char *const rule_words[] = {"success", "done", "any", "failed", NULL};
static const char *const failure_words[] = {"stop", "continue", NULL};

static void
read_priority(Steps *s, int number, JsonbValue *value)
{
	s->steps[number].priority = read_number(s, number, "priority", value, JOBQ_MIN_PRIORITY, JOBQ_MAX_PRIORITY, 0);
	s->steps[number].has_priority = true;
}

static void
read_rule(Steps *s, int number, JsonbValue *value)
{
	int			rule = read_choice(s, number, "rule", value, rule_words,
								   "one of \"success\", \"done\", \"any\", \"failed\"");

	s->steps[number].rule = rule < 0 ? AFTER_SUCCESS : (AfterRule) rule;
}

/* Reads one key of a step. */
static void
read_field(Steps *s, int n, const char *key, JsonbValue *value)
{
	Step	   *step = &s->steps[n];

	if (strcmp(key, "job_type") == 0)
		step->job_type = read_text(s, n, key, value, NAMEDATALEN - 1);
	else if (strcmp(key, "rule") == 0)
		read_rule(s, n, value);
	else if (strcmp(key, "if") == 0)
		step->condition = read_path(s, n, key, value);
	else if (strcmp(key, "map") == 0)
		step->map = read_path(s, n, key, value);
	else if (strcmp(key, "max_parallel") == 0)
		step->max_parallel = read_number(s, n, key, value, 1, 1000000, 1);
	else if (strcmp(key, "payload") == 0)
		step->payload = JsonbValueToJsonb(value);
	else if (strcmp(key, "delay") == 0)
		step->delay_us = read_interval(s, n, key, value);
	else if (strcmp(key, "event") == 0)
		step->event = read_text(s, n, key, value, MAX_EVENT_NAME);
	else if (strcmp(key, "on_failure") == 0)
		(void) read_choice(s, n, key, value, failure_words, "one of \"stop\", \"continue\"");
	else if (strcmp(key, "compensate") == 0)
		read_compensate(s, n, value);
	else if (strcmp(key, "priority") == 0)
		read_priority(s, n, value);
	else if (strcmp(key, "max_attempts") == 0)
		step->max_attempts = read_number(s, n, key, value, 1, JOBQ_MAX_ATTEMPTS, 1);
	else if (strcmp(key, "timeout") == 0)
		step->timeout_us = read_interval(s, n, key, value);
	else if (strcmp(key, "backoff") == 0)
		read_backoff(s, n, value);
	else if (strcmp(key, "concurrency_key") == 0)
		step->concurrency_key = read_text(s, n, key, value, MAX_CONCURRENCY_KEY);
}

static bool
is_step_key(const char *key)
{
	for (int i = 0; i < (int) lengthof(step_keys); i++)
	{
		if (strcmp(step_keys[i], key) == 0)
			return true;
	}
	return false;
}

/* JSON null counts as not given. */
void
step_read_fields(Steps *s, int n, JsonbContainer *object)
{
	JsonbIterator *it = JsonbIteratorInit(object);
	JsonbValue	key;
	JsonbValue	value;

	(void) JsonbIteratorNext(&it, &key, true);
	while (JsonbIteratorNext(&it, &key, true) == WJB_KEY)
	{
		char	   *name = json_text(&key);

		(void) JsonbIteratorNext(&it, &value, true);
		if (!is_step_key(name))
			step_problem(s, n, ERRCODE_INVALID_PARAMETER_VALUE, "unknown key \"%s\"", argument_shown(name));
		else if (value.type != jbvNull)
			read_field(s, n, name, &value);
	}
}

/* Keys that have no effect together are probably a mistake. */
void
step_check_combination(Steps *s, int n)
{
	Step	   *step = &s->steps[n];
	bool		job = step->job_type != NULL;

#define PROBLEM(wrong, text) \
	((wrong) ? step_problem(s, n, ERRCODE_INVALID_PARAMETER_VALUE, "%s", text) : (void) 0)
	PROBLEM(step->event != NULL && step->map != NULL, "\"map\" and \"event\" are both given");
	PROBLEM(step->event != NULL && job, "\"job_type\" and \"event\" are both given: put the job in a step after it");
	PROBLEM(step->map != NULL && !job && step->event == NULL, "\"map\" needs \"job_type\"");
	PROBLEM(step->max_parallel > 0 && step->map == NULL, "\"max_parallel\" needs \"map\"");
	PROBLEM(step->payload != NULL && !job, "\"payload\" needs \"job_type\"");
	PROBLEM(step->timeout_us >= 0 && !job && step->event == NULL, "\"timeout\" needs \"job_type\" or \"event\"");
	PROBLEM(step->has_priority && !job, "\"priority\" needs \"job_type\"");
	PROBLEM(step->max_attempts > 0 && !job, "\"max_attempts\" needs \"job_type\"");
	PROBLEM(step->backoff != NULL && !job, "\"backoff\" needs \"job_type\"");
	PROBLEM(step->concurrency_key != NULL && !job, "\"concurrency_key\" needs \"job_type\"");
	PROBLEM((step->rule == AFTER_ANY || step->rule == AFTER_FAILED) && step->nafter == 0,
			step->rule == AFTER_ANY ? "\"rule\": \"any\" needs \"after\"" : "\"rule\": \"failed\" needs \"after\"");
#undef PROBLEM
}
