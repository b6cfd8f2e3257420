/*
 * exec_tool_answers.c
 *	  Reads what tools say of their failures, and the answers of warm tools.
 *
 *	 a failure			{"error": text, "code": text, "retryable": boolean,
 *						"retry_after": seconds or interval, "details": object},
 *						on descriptor 3 or as a warm tool's answer
 *	 or, as an answer	{"result": value}, {"skip": reason}
 *
 * The helper has checked that it is JSON, that an answer is one to this job,
 * and the types of an error on descriptor 3. In an answer, "error" comes
 * before "skip", and "skip" before "result". A value of a wrong type counts as
 * missing.
 */
#include "jobq.h"

#include "utils/builtins.h"

#include "base/json_build.h"
#include "base/texts.h"
#include "exec_worker/exec_internal.h"
#include "registry/options.h"

/* the helper's limit */
#define MAX_RETRY_AFTER (INT64CONST(1000000000) * USECS_PER_SEC)

static bool
member(Jsonb *answer, const char *key, JsonbValue *v)
{
	return getKeyJsonValueFromContainer(&answer->root, key, (int) strlen(key), v) != NULL;
}

/* Returns a text unchanged, anything else as JSON; NULL: null or missing. */
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

/*
 * Sets *delay (0: none given). Returns false if retry_after is malformed or
 * too long.
 */
static bool
retry_delay(Jsonb *report, int64 *delay)
{
	JsonbValue	v;
	double		seconds;
	int64		us;

	*delay = 0;
	if (!member(report, "retry_after", &v) || v.type == jbvNull)
		return true;
	if (v.type == jbvNumeric)
	{
		seconds = DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow,
													 NumericGetDatum(v.val.numeric)));
		if (!(seconds >= 0 && seconds <= MAX_RETRY_AFTER / USECS_PER_SEC))
			return false;
		us = (int64) (seconds * USECS_PER_SEC);
	}
	else if (!value_interval(&v, &us) || us > MAX_RETRY_AFTER)
		return false;
	*delay = Max(us, 1);
	return true;
}

static Jsonb *
concatenate(Jsonb *a, Jsonb *b)
{
	if (a == NULL)
		return b;
	return DatumGetJsonbP(DirectFunctionCall2(jsonb_concat, JsonbPGetDatum(a), JsonbPGetDatum(b)));
}

/* Adds the tool's details to the tail of stderr, unless both are too large. */
static void
add_details(Outcome *o, Jsonb *report)
{
	JsonbValue	v;
	Jsonb	   *both;
	Jsonb	   *kept;

	if (!member(report, "details", &v) || v.type != jbvBinary || !JsonContainerIsObject(v.val.binary.data))
		return;
	both = concatenate(o->details, JsonbValueToJsonb(&v));
	kept = bounded_details(both);
	o->details = kept == both ? both : concatenate(o->details, kept);
}

static void
take_report(Outcome *o, Jsonb *report, int64 delay_us)
{
	JsonbValue	v;
	char	   *code = member_text(report, "code");

	o->kind = OUTCOME_FAILED;
	o->message = member_text(report, "error");
	if (o->message == NULL)
		o->message = "the tool answered with an error";
	if (code && code[0] != '\0')
		o->code = code;
	o->code_given = true;
	if (member(report, "retryable", &v) && v.type == jbvBool)
	{
		o->permanent = !v.val.boolean;
		o->retryable = v.val.boolean;
	}
	o->delay_us = delay_us;
	add_details(o, report);
}

static void
failed(Outcome *o, Jsonb *answer)
{
	int64		delay;

	(void) retry_delay(answer, &delay);
	take_report(o, answer, delay);
}

bool
exec_take_error(Outcome *o, FrameExit *end)
{
	char	   *why;
	Jsonb	   *report;
	JsonbValue	v;
	int64		delay;

	if (end->error.len == 0)
		return false;
	report = json_from_utf8_lossy(end->error.data, (int) end->error.len, &why);
	if (report && JB_ROOT_IS_OBJECT(report) && member(report, "error", &v) && v.type == jbvString &&
		retry_delay(report, &delay))
	{
		take_report(o, report, delay);
		return true;
	}
	end->bad_lines++;
	end->error.len = 0;			/* so that a retried settlement counts it
								 * once */
	return false;
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
