/*
 * exec_answer.c
 *	  What a warm tool has answered: {"id": ..., "result": value}, {"id": ..., "error": text, "code": text,
 *	  "retryable": boolean, "retry_after": seconds or interval} or {"id": ..., "skip": reason}.
 *
 * The helper has seen that it is JSON and answers this job.  An error comes before a skip, that before a result;
 * what has another type than it should is as if it were not there.
 */
#include "jobq.h"

#include "utils/builtins.h"

#include "exec_job.h"
#include "json_build.h"
#include "options.h"

static bool
member(Jsonb *answer, const char *key, JsonbValue *v)
{
	return getKeyJsonValueFromContainer(&answer->root, key, (int) strlen(key), v) != NULL;
}

/* A text as it is, anything else as JSON; NULL: null or not there. */
static char *
member_text(Jsonb *answer, const char *key)
{
	JsonbValue	v;
	Jsonb	   *value;

	if (!member(answer, key, &v) || v.type == jbvNull)
		return NULL;
	if (v.type == jbvString)
		return pnstrdup(v.val.string.val, v.val.string.len);
	value = JsonbValueToJsonb(&v);
	return JsonbToCString(NULL, &value->root, VARSIZE(value));
}

static int64
retry_delay(Jsonb *answer)
{
	JsonbValue	v;
	double		seconds;
	int64		delay;

	if (!member(answer, "retry_after", &v))
		return 0;
	if (v.type == jbvNumeric)
	{
		seconds = DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow, NumericGetDatum(v.val.numeric)));
		return seconds >= 0 && seconds < 1e9 ? Max((int64) (seconds * USECS_PER_SEC), 1) : 0;
	}
	return value_interval(&v, &delay) && delay >= 0 ? Max(delay, 1) : 0;
}

static void
failed(Outcome *o, Jsonb *answer)
{
	JsonbValue	v;

	o->kind = OUTCOME_FAILED;
	o->message = member_text(answer, "error");
	if (o->message == NULL)
		o->message = "the tool answered with an error";
	o->code = member_text(answer, "code");
	o->permanent = member(answer, "retryable", &v) && v.type == jbvBool && !v.val.boolean;
	o->code_given = !(member(answer, "retryable", &v) && v.type == jbvBool && v.val.boolean);
	o->delay_us = retry_delay(answer);
}

void
exec_judge_answer(Outcome *o, FrameExit *end, JobType *type)
{
	char	   *why;
	Jsonb	   *answer = json_from_utf8(end->output.data, (int) end->output.len, &why);
	JsonbValue	v;

	if (answer == NULL || !JB_ROOT_IS_OBJECT(answer))
	{
		o->kind = OUTCOME_FAILED;
		o->code = "bad_output";
		o->message = psprintf("the answer is not valid JSON: %s", why ? why : "no object");
	}
	else if (member(answer, "error", &v))
		failed(o, answer);
	else if (member(answer, "skip", &v))
	{
		o->kind = OUTCOME_SKIPPED;
		o->message = v.type == jbvString ? member_text(answer, "skip") : NULL;
	}
	else
	{
		o->kind = OUTCOME_COMPLETED;
		o->has_result = (type == NULL || type->output != OUTPUT_NONE) && member(answer, "result", &v);
		if (o->has_result)
			o->result = JsonbValueToJsonb(&v);
	}
}
