/*
 * steps.c
 *	  Reads the steps of a workflow: see steps.h.
 */
#include "jobq.h"

#include "base/errors.h"
#include "workflow/steps_internal.h"

#define MAX_KEY_LENGTH		63

typedef struct NamedStep
{
	char		key[MAX_KEY_LENGTH + 1];	/* hash key */
	int			number;
} NamedStep;

/* ---------- problems ---------- */

void
step_problem(Steps *s, int step, int sqlstate, const char *format,...)
{
	StepProblem *problem = palloc(sizeof(StepProblem));
	StringInfoData text;
	int			more;

	initStringInfo(&text);
	for (;;)
	{
		va_list		args;

		va_start(args, format);
		more = appendStringInfoVA(&text, format, args);
		va_end(args);
		if (more == 0)
			break;
		enlargeStringInfo(&text, more);
	}
	problem->step = step;
	problem->sqlstate = sqlstate;
	problem->text = text.data;
	s->problems = lappend(s->problems, problem);
}

/* ---------- keys and edges ---------- */

static bool
is_identifier(const JsonbValue *value)
{
	if (value->type != jbvString || value->val.string.len < 1 || value->val.string.len > MAX_KEY_LENGTH)
		return false;
	for (int i = 0; i < value->val.string.len; i++)
	{
		char		c = value->val.string.val[i];
		bool		letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';

		if (!letter && (i == 0 || !((c >= '0' && c <= '9') || c == '-')))
			return false;
	}
	return true;
}

int
step_by_key(Steps *s, const char *key)
{
	NamedStep  *named = strlen(key) > MAX_KEY_LENGTH ? NULL : hash_search(s->by_key, key, HASH_FIND, NULL);

	return named == NULL ? -1 : named->number;
}

static bool
find_value(JsonbContainer *object, const char *key, JsonbValue *value)
{
	return getKeyJsonValueFromContainer(object, key, (int) strlen(key), value) != NULL && value->type != jbvNull;
}

/* Reads the key of a step. */
static void
read_key(Steps *s, int n, JsonbContainer *object)
{
	JsonbValue	value;
	NamedStep  *named;
	char	   *key;
	bool		found;

	if (!find_value(object, "key", &value))
		step_problem(s, n, ERRCODE_INVALID_PARAMETER_VALUE, "it has no \"key\"");
	else if (!is_identifier(&value))
		step_bad_value(s, n, "key", &value, "a letter or \"_\" and then letters, digits, \"_\" and \"-\", at most 63 bytes");
	else
	{
		key = json_text(&value);
		named = hash_search(s->by_key, key, HASH_ENTER, &found);
		if (found)
		{
			step_problem(s, n, ERRCODE_INVALID_PARAMETER_VALUE, "\"key\": step %d has the key \"%s\", too", named->number + 1, key);
			return;
		}
		named->number = n;
		s->steps[n].key = key;
	}
}

/* Reads after, when all keys are known. */
static void
read_after(Steps *s, int n, JsonbContainer *object, int *edges)
{
	Step	   *step = &s->steps[n];
	Bitmapset  *seen = NULL;
	JsonbContainer *array;
	JsonbValue	value;
	int			size;

	if (!find_value(object, "after", &value))
		return;
	array = value.val.binary.data;
	if (value.type != jbvBinary || !JsonContainerIsArray(array))
	{
		step_bad_value(s, n, "after", &value, "an array of keys");
		return;
	}
	size = (int) JsonContainerSize(array);
	*edges += size;
	if (*edges > MAX_AFTER)
		return;
	step->after = palloc(sizeof(int) * Max(size, 1));
	for (int i = 0; i < size; i++)
	{
		JsonbValue *parent = getIthJsonbValueFromContainer(array, i);
		int			number = parent->type == jbvString ? step_by_key(s, json_text(parent)) : -1;

		if (parent->type != jbvString)
			step_bad_value(s, n, "after", parent, "a key");
		else if (number < 0)
			step_problem(s, n, ERRCODE_INVALID_PARAMETER_VALUE, "\"after\": there is no step \"%s\"", argument_shown(json_text(parent)));
		else if (!bms_is_member(number, seen))
		{
			seen = bms_add_member(seen, number);
			step->after[step->nafter++] = number;
		}
	}
}

/* ---------- all steps ---------- */

static void
begin(Steps *s, int n)
{
	HASHCTL		ctl = {.keysize = MAX_KEY_LENGTH + 1, .entrysize = sizeof(NamedStep), .hcxt = CurrentMemoryContext};

	s->n = n;
	s->steps = palloc0(sizeof(Step) * Max(n, 1));
	s->by_key = hash_create("jobq steps", Max(n, 8), &ctl, HASH_ELEM | HASH_STRINGS | HASH_CONTEXT);
	s->problems = NIL;
	for (int i = 0; i < n; i++)
		s->steps[i].delay_us = s->steps[i].timeout_us = -1;
}

void
steps_read(Steps *s, Jsonb *json)
{
	JsonbContainer **objects;
	int			edges = 0;
	int			n = JB_ROOT_IS_ARRAY(json) && !JB_ROOT_IS_SCALAR(json) ? JB_ROOT_COUNT(json) : 0;

	begin(s, n > MAX_STEPS ? 0 : n);
	if (n > MAX_STEPS)
		step_problem(s, -1, ERRCODE_PROGRAM_LIMIT_EXCEEDED, "%d steps are more than %d", n, MAX_STEPS);
	else if (n == 0)
		step_problem(s, -1, ERRCODE_INVALID_PARAMETER_VALUE, "%s is not an array of one or more steps", json_shown(json));
	objects = palloc0(sizeof(JsonbContainer *) * Max(s->n, 1));
	for (int i = 0; i < s->n; i++)
	{
		JsonbValue *step = getIthJsonbValueFromContainer(&json->root, i);

		if (step->type == jbvBinary && JsonContainerIsObject(step->val.binary.data))
			read_key(s, i, objects[i] = step->val.binary.data);
		else
			step_problem(s, i, ERRCODE_INVALID_PARAMETER_VALUE, "%s is not an object", json_value_shown(step));
	}
	for (int i = 0; i < s->n; i++)
	{
		if (objects[i] == NULL)
			continue;
		read_after(s, i, objects[i], &edges);
		step_read_fields(s, i, objects[i]);
		step_check_combination(s, i);
	}
	if (edges > MAX_AFTER)
		step_problem(s, -1, ERRCODE_PROGRAM_LIMIT_EXCEEDED, "%d keys in \"after\" are more than %d", edges, MAX_AFTER);
}
