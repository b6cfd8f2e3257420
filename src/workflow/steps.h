/*
 * steps.h
 *	  The steps of a workflow, read from JSON, and the problems of a definition.
 *
 * steps_read() reads any JSON and lists the problems; the fields of a step
 * with problems have their defaults.  steps_order() adds waves and the steps
 * before each step; step_checks.c checks paths, job types and rights.  The
 * values live in the memory context of the caller.
 */
#ifndef JOBQ_STEPS_H
#define JOBQ_STEPS_H

#include "enqueue/enqueue_request.h"
#include "nodes/bitmapset.h"
#include "nodes/pg_list.h"
#include "utils/hsearch.h"
#include "utils/jsonb.h"

#define MAX_STEPS			1000
#define MAX_AFTER			10000	/* of all steps */
#define MAX_EVENT_NAME		63

typedef struct Step
{
	char	   *key;			/* NULL: it has no valid key */
	char	   *job_type;		/* NULL: a join, a sleep, or a wait for an event */
	int			nafter;
	int		   *after;			/* numbers of steps, from 0 */
	AfterRule	rule;
	JsonbValue *condition;		/* "if": a path; NULL: none; so for all below */
	JsonbValue *map;			/* a path */
	int			max_parallel;	/* 0: no limit */
	Jsonb	   *payload;		/* a template */
	int64		delay_us;		/* -1: none */
	char	   *event;
	char	   *compensate_type;
	Jsonb	   *compensate_payload;
	int			priority;
	bool		has_priority;
	int			max_attempts;	/* 0: none */
	int64		timeout_us;		/* -1: none */
	Jsonb	   *backoff;
	char	   *concurrency_key;
	int			wave;			/* from 1; 0: it is in a cycle, or behind one */
	Bitmapset  *before;			/* numbers of the steps before it, also indirectly */
} Step;

typedef struct StepProblem
{
	int			step;			/* number, from 0; -1: of the definition */
	int			sqlstate;
	char	   *text;
} StepProblem;

typedef struct Steps
{
	int			n;
	Step	   *steps;
	HTAB	   *by_key;
	List	   *problems;		/* StepProblem */
} Steps;

extern void steps_read(Steps *s, Jsonb *json);
extern void steps_order(Steps *s);

/* Returns the number of the step with that key; -1: there is none. */
extern int	step_by_key(Steps *s, const char *key);
/* Adds a problem. */
extern void step_problem(Steps *s, int step, int sqlstate, const char *format, ...) pg_attribute_printf(4, 5);

#endif
