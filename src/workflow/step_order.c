/*
 * step_order.c
 *	  The order of the steps of a workflow: waves, steps before a step, cycles.
 *
 * Steps are visited in topological order.  Those that are never reached are in
 * a cycle or behind one; a walk from parent to parent finds the cycle.
 */
#include "jobq.h"

#include "base/errors.h"
#include "workflow/steps.h"

/* Steps of a cycle that a message names at each end. */
#define CYCLE_SHOWN		10

typedef struct Children
{
	int		   *first;			/* of each step: its place in list */
	int		   *list;
} Children;

/* Returns the edges in the direction from a step to those after it. */
static Children
children_of(const Steps *s)
{
	Children	c = {palloc0(sizeof(int) * (s->n + 2)), NULL};
	int		   *next;

	for (int i = 0; i < s->n; i++)
		for (int j = 0; j < s->steps[i].nafter; j++)
			c.first[s->steps[i].after[j] + 1]++;
	for (int i = 0; i < s->n; i++)
		c.first[i + 1] += c.first[i];
	next = palloc(sizeof(int) * (s->n + 1));
	memcpy(next, c.first, sizeof(int) * (s->n + 1));
	c.list = palloc(sizeof(int) * Max(c.first[s->n], 1));
	for (int i = 0; i < s->n; i++)
		for (int j = 0; j < s->steps[i].nafter; j++)
			c.list[next[s->steps[i].after[j]]++] = i;
	return c;
}

/* Sets wave and before of a step whose parents have theirs. */
static void
place_step(Steps *s, int n)
{
	Step	   *step = &s->steps[n];

	step->wave = 1;
	for (int j = 0; j < step->nafter; j++)
	{
		Step	   *parent = &s->steps[step->after[j]];

		step->wave = Max(step->wave, parent->wave + 1);
		step->before = bms_add_member(bms_add_members(step->before, parent->before), step->after[j]);
	}
}

/* Returns the cycle as a message shows it: a -> b -> a. */
static char *
cycle_text(const Steps *s, const int *cycle, int n)
{
	StringInfoData text;

	initStringInfo(&text);
	for (int i = 0; i < n; i++)
	{
		if (n > 2 * CYCLE_SHOWN && i == CYCLE_SHOWN)
		{
			appendStringInfo(&text, "(%d more) -> ", n - 2 * CYCLE_SHOWN);
			i = n - CYCLE_SHOWN;
		}
		appendStringInfo(&text, "%s -> ", s->steps[cycle[i]].key);
	}
	appendStringInfoString(&text, s->steps[cycle[0]].key);
	return text.data;
}

/*
 * Adds the problem of the cycle that ends with step `last`, found from parent
 * to parent.
 */
static void
report_cycle(Steps *s, const int *parent_of, int last)
{
	int		   *cycle = palloc(sizeof(int) * s->n);
	int		   *turned = palloc(sizeof(int) * s->n);
	int			n = 0;
	int			least = 0;

	for (int at = last; n == 0 || at != last; at = parent_of[at])
		cycle[n++] = at;
	for (int i = 1; i < n; i++)
		if (cycle[i] < cycle[least])
			least = i;
	/* from the first step of the definition on, in the order of the edges */
	for (int i = 0; i < n; i++)
		turned[i] = cycle[(least - i + n) % n];
	step_problem(s, turned[0], ERRCODE_INVALID_PARAMETER_VALUE, "cycle: %s", cycle_text(s, turned, n));
}

/* Finds the cycles among the steps without a wave. */
static void
find_cycles(Steps *s)
{
	int		   *walk = palloc0(sizeof(int) * (s->n + 1));	/* in which a step was visited */
	int		   *parent_of = palloc0(sizeof(int) * (s->n + 1));

	for (int i = 0; i < s->n; i++)
	{
		int			at = i;

		while (s->steps[at].wave == 0 && walk[at] == 0)
		{
			int			j = 0;

			walk[at] = i + 1;
			while (s->steps[s->steps[at].after[j]].wave != 0)
				j++;
			parent_of[at] = s->steps[at].after[j];
			at = parent_of[at];
		}
		if (s->steps[at].wave == 0 && walk[at] == i + 1 && walk[i] == i + 1)
			report_cycle(s, parent_of, at);
	}
}

void
steps_order(Steps *s)
{
	Children	children = children_of(s);
	int		   *missing = palloc(sizeof(int) * Max(s->n, 1));
	int		   *ready = palloc(sizeof(int) * Max(s->n, 1));
	int			nready = 0;

	for (int i = 0; i < s->n; i++)
	{
		missing[i] = s->steps[i].nafter;
		if (missing[i] == 0)
			ready[nready++] = i;
	}
	for (int i = 0; i < nready; i++)
	{
		place_step(s, ready[i]);
		for (int c = children.first[ready[i]]; c < children.first[ready[i] + 1]; c++)
		{
			if (--missing[children.list[c]] == 0)
				ready[nready++] = children.list[c];
		}
	}
	if (nready < s->n)
		find_cycles(s);
}
