/*
 * step_checks.c
 *	  Checks the paths, job types and rights of a workflow's steps, and returns
 *	  all problems to SQL.
 *
 * A path may read data of steps before its own: $.tasks.<key>.  The payload of
 * compensate reads its own step, too; output reads every step.
 */
#include "jobq.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

#include "base/errors.h"
#include "base/json_size.h"
#include "registry/job_types.h"
#include "security/act_as_enqueuer.h"
#include "security/access.h"
#include "workflow/steps.h"
#include "workflow/template.h"

PG_FUNCTION_INFO_V1(jobq_check_steps);

/* ---------- paths ---------- */

/* The place of a path, and the data that it may read. */
typedef struct PathPlace
{
	Steps	   *s;
	int			step;			/* -1: output */
	const char *name;			/* key of the step, or "output" */
	bool		item;			/* $.item and $.index exist */
	bool		own;			/* $.tasks of its own step exists */
	PathRun		run;
} PathPlace;

#define BAD_PATH(place, path, format, ...) \
	step_problem((place)->s, (place)->step, ERRCODE_INVALID_PARAMETER_VALUE, "\"%s\": path \"%s\" " format, \
				 (place)->name, path_shown(path), __VA_ARGS__)

static void
check_task(PathPlace *place, const JsonbValue *path, const char *key)
{
	Steps	   *s = place->s;
	int			number = step_by_key(s, key);

	if (number < 0)
		BAD_PATH(place, path, "reads step \"%s\", which does not exist", argument_shown(key));
	else if (place->step >= 0 && s->steps[place->step].wave > 0 && !(place->own && number == place->step) &&
			 !bms_is_member(number, s->steps[place->step].before))
		BAD_PATH(place, path, "reads step \"%s\", which is not before this one", key);
}

static void
check_refs(PathPlace *place, const JsonbValue *path, const PathRefs *refs)
{
	ListCell   *lc;

	foreach(lc, refs->tasks)
		check_task(place, path, lfirst(lc));
	if (refs->item && !place->item)
		BAD_PATH(place, path, "reads $.item or $.index, which %s", "only the payload of a step with \"map\" has");
	if (refs->unknown != NULL)
		BAD_PATH(place, path, "reads $.%s: there are $.input, $.run, $.tasks, $.item and $.index",
				 argument_shown(refs->unknown));
	if (refs->variable != NULL)
		BAD_PATH(place, path, "has the variable $%s: there are none", argument_shown(refs->variable));
}

/*
 * Runs a check, and adds the error that it raises about a path or placeholder
 * as a problem.  Such checks take no lock and open nothing.
 */
static void
catch_problem(PathPlace *place, void (*check) (PathPlace *place, const void *value), const void *value)
{
	MemoryContext context = CurrentMemoryContext;

	PG_TRY();
	{
		check(place, value);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		if (error->sqlerrcode != ERRCODE_JOBQ_BAD_INPUT)
			PG_RE_THROW();
		FlushErrorState();
		step_problem(place->s, place->step, ERRCODE_INVALID_PARAMETER_VALUE, "\"%s\": %s", place->name, error->message);
	}
	PG_END_TRY();
}

static void
check_one_path(PathPlace *place, const void *value)
{
	PathRefs	refs = {0};

	place->run.cpu_us = 0;		/* the session that defines the steps may wait */
	path_refs(&place->run, value, &refs);
	check_refs(place, value, &refs);
}

/* As a callback of template_paths(). */
static void
check_path_of_template(void *arg, const JsonbValue *path)
{
	catch_problem(arg, check_one_path, path);
}

static void
check_whole_template(PathPlace *place, const void *value)
{
	template_paths(unconstify(void *, value), check_path_of_template, place);
}

static void
check_template(PathPlace *place, Jsonb *template)
{
	if (template == NULL)
		return;
	if (!json_fits(template, (int64) jobq_max_payload))
		step_problem(place->s, place->step, ERRCODE_PROGRAM_LIMIT_EXCEEDED,
					 "\"%s\" is larger than jobq.max_payload, or nested more than %d levels deep", place->name,
					 JOBQ_MAX_JSON_DEPTH);
	else
		catch_problem(place, check_whole_template, template);
}

static void
check_path(PathPlace *place, const char *name, const JsonbValue *path)
{
	place->name = name;
	if (path != NULL)
		catch_problem(place, check_one_path, path);
}

static void
check_paths(Steps *s, int n, Jsonb *empty)
{
	Step	   *step = &s->steps[n];
	PathPlace	place = {.s = s, .step = n, .run = {.context = empty}};

	check_path(&place, "if", step->condition);
	check_path(&place, "map", step->map);
	place.item = step->map != NULL;
	place.name = "payload";
	check_template(&place, step->payload);
	place.item = false;
	place.own = true;
	place.name = "compensate";
	check_template(&place, step->compensate_payload);
}

/* ---------- job types ---------- */

/* Checks a step's job type, or the one that compensates it. */
static void
check_type(Steps *s, int n, const char *name, Oid definer)
{
	JobType    *type = name == NULL ? NULL : job_type_by_name(name);

	if (name == NULL)
		return;
	if (type == NULL || !access_knows_type(definer, name))
		step_problem(s, n, ERRCODE_UNDEFINED_OBJECT, "job type \"%s\" does not exist", argument_shown(name));
	else if (!may_call_enqueue(definer) || !access_may_enqueue_some(definer, type))
		step_problem(s, n, ERRCODE_INSUFFICIENT_PRIVILEGE, "role \"%s\" may not enqueue jobs of type \"%s\"",
					 GetUserNameFromId(definer, false), argument_shown(name));
	else if (type->workflow && name == s->steps[n].job_type && s->steps[n].timeout_us == 0)
		step_problem(s, n, ERRCODE_INVALID_PARAMETER_VALUE, "\"timeout\" of a run is not more than zero");
}

/* output: of the workflow; NULL: none.  definer: its tasks have its rights. */
static void
steps_check(Steps *s, Jsonb *output, Oid definer)
{
	Jsonb	   *empty = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum("{}")));
	PathPlace	place = {.s = s, .step = -1, .name = "output", .run = {.context = empty}};

	for (int i = 0; i < s->n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		check_type(s, i, s->steps[i].job_type, definer);
		check_type(s, i, s->steps[i].compensate_type, definer);
		check_paths(s, i, empty);
	}
	check_template(&place, output);
}

/* ---------- SQL ---------- */

/* Adds a row: a step with one of its problems, or with none. */
static void
put_row(ReturnSetInfo *rsinfo, Steps *s, int n, const StepProblem *problem)
{
	Step	   *step = n < 0 ? NULL : &s->steps[n];
	Datum		values[6] = {0};
	bool		nulls[6];

	memset(nulls, true, sizeof(nulls));
#define SET(i, value) (values[i] = (value), nulls[i] = false)
	if (step != NULL)
		SET(0, Int32GetDatum(n + 1));
	if (step != NULL && step->key != NULL)
		SET(1, CStringGetTextDatum(step->key));
	if (step != NULL && step->wave > 0)
		SET(2, Int32GetDatum(step->wave));
	if (step != NULL && step->job_type != NULL)
		SET(3, CStringGetTextDatum(step->job_type));
	if (problem != NULL)
	{
		SET(4, CStringGetTextDatum(problem->text));
		SET(5, CStringGetTextDatum(unpack_sql_state(problem->sqlstate)));
	}
#undef SET
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/*
 * jobq_internal._check_steps(definer, steps, output): returns a row for each
 * problem, and for each step without one.
 */
Datum
jobq_check_steps(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Bitmapset  *bad = NULL;
	Steps		s;
	ListCell   *lc;

	check_json_size("steps", PG_GETARG_JSONB_P(1), (int64) jobq_max_payload);
	if (!PG_ARGISNULL(2))
		check_json_size("output", PG_GETARG_JSONB_P(2), (int64) jobq_max_payload);
	InitMaterializedSRF(fcinfo, 0);
	steps_read(&s, PG_GETARG_JSONB_P(1));
	steps_order(&s);
	steps_check(&s, PG_ARGISNULL(2) ? NULL : PG_GETARG_JSONB_P(2), PG_GETARG_OID(0));
	foreach(lc, s.problems)
	{
		StepProblem *problem = lfirst(lc);

		put_row(rsinfo, &s, problem->step, problem);
		if (problem->step >= 0)
			bad = bms_add_member(bad, problem->step);
	}
	for (int i = 0; i < s.n; i++)
	{
		if (!bms_is_member(i, bad))
			put_row(rsinfo, &s, i, NULL);
	}
	return (Datum) 0;
}
