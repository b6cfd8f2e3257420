/*
 * step_reads.c
 *	  Finds what the paths of each step read, when steps are defined: the context
 *	  of a task holds no other step.
 *
 * The result is {step: {"tasks": [key, ...], "all": true, "artifacts": true}};
 * the key "" is that of the workflow's output.  "all" stands for a path that
 * reads $.tasks as a whole, or $: the steps before are looked up at run time,
 * since tasks may add some.  A mapped step has another such object, "payload":
 * what its tasks read has not the array that the map reads.  The steps have been
 * checked.
 */
#include "jobq.h"

#include "utils/builtins.h"
#include "utils/json.h"
#include "utils/jsonb.h"

#include "workflow/steps.h"
#include "workflow/template.h"

PG_FUNCTION_INFO_V1(jobq_step_reads);

typedef struct Reads
{
	PathRun		run;
	PathRefs	refs;
} Reads;

static void
add_path(void *arg, const JsonbValue *path)
{
	Reads	   *reads = arg;

	if (path == NULL)
		return;
	reads->run.cpu_us = 0;
	path_refs(&reads->run, path, &reads->refs);
}

static void
add_template(Reads *reads, Jsonb *template)
{
	if (template != NULL)
		template_paths(template, add_path, reads);
}

/* Writes what was found under the key; members: for the payload of a map, NULL: none. */
static void
put_reads(StringInfo out, const char *key, const PathRefs *refs, const PathRefs *members)
{
	const char *separator = "";
	ListCell   *lc;

	if (out->data[out->len - 1] != '{')
		appendStringInfoString(out, ", ");
	escape_json(out, key);
	appendStringInfoString(out, ": {\"tasks\": [");
	foreach(lc, refs->tasks)
	{
		appendStringInfoString(out, separator);
		escape_json(out, lfirst(lc));
		separator = ", ";
	}
	appendStringInfoChar(out, ']');
	if (refs->all_tasks || refs->whole)
		appendStringInfoString(out, ", \"all\": true");
	if (refs->artifacts)
		appendStringInfoString(out, ", \"artifacts\": true");
	if (members != NULL)
		put_reads(out, "payload", members, NULL);
	appendStringInfoChar(out, '}');
}

/* jobq_internal._step_reads(steps, output) */
Datum
jobq_step_reads(PG_FUNCTION_ARGS)
{
	Jsonb	   *empty = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum("{}")));
	Reads		of_output = {.run = {.context = empty}};
	StringInfoData out;
	Steps		s;

	initStringInfo(&out);
	appendStringInfoChar(&out, '{');
	steps_read(&s, PG_GETARG_JSONB_P(0));
	for (int i = 0; i < s.n; i++)
	{
		Step	   *step = &s.steps[i];
		Reads		reads = {.run = {.context = empty}};
		Reads		members = reads;

		add_path(&reads, step->condition);
		add_path(&reads, step->map);
		add_template(step->map != NULL ? &members : &reads, step->payload);
		add_template(&reads, step->compensate_payload);
		put_reads(&out, step->key, &reads.refs, step->map != NULL ? &members.refs : NULL);
	}
	if (!PG_ARGISNULL(1))
	{
		add_template(&of_output, PG_GETARG_JSONB_P(1));
		put_reads(&out, "", &of_output.refs, NULL);
	}
	appendStringInfoChar(&out, '}');
	PG_RETURN_DATUM(DirectFunctionCall1(jsonb_in, CStringGetDatum(out.data)));
}
