/*
 * after_rules.c
 *	  What ends of parents amount to for a job that waits for them.
 *
 * The conductor (edges.c) and the transactions that end parents
 * (release_children.c) decide by the same function.
 */
#include "jobq.h"

#include "utils/builtins.h"

#include "workflow/after_rules.h"

AfterRule
after_rule_of(Job *job)
{
	char	   *word = JOB_NULL(job, Q_after_rule) ? NULL : TextDatumGetCString(JOB_ATT(job, Q_after_rule));

	for (int i = 0; word != NULL && i < AFTER_FAILED + 1; i++)
	{
		if (strcmp(word, after_rule_names[i]) == 0)
			return (AfterRule) i;
	}
	return AFTER_SUCCESS;
}

static Verdict
decide(AfterRule rule, const Ends *sum, int left, int state)
{
	switch (rule)
	{
		case AFTER_SUCCESS:
			if (sum->cancelled > 0 || sum->gone > 0)
				return CANCELLED;
			if (sum->passed > 0)
				return SKIPPED;
			return left > 0 ? WAITS : (state & AFTER_COMPLETED_BIT) ? RELEASED : SKIPPED;
		case AFTER_DONE:
			return left > 0 ? WAITS : RELEASED;
		case AFTER_ANY:
			return (state & AFTER_COMPLETED_BIT) ? RELEASED : left > 0 ? WAITS : SKIPPED;
		case AFTER_FAILED:
			return (state & AFTER_FAILED_BIT) ? RELEASED : left > 0 ? WAITS : SKIPPED;
	}
	return WAITS;
}

Verdict
after_decide(Job *job, const Ends *sum, int *left, int *state)
{
	int			waiting = JOB_NULL(job, Q_waiting_for) ? 0 : JOB_INT(job, Q_waiting_for);

	*left = Max(waiting - sum->n, 0);
	*state = JOB_NULL(job, Q_after_state) ? 0 : DatumGetInt16(JOB_ATT(job, Q_after_state));
	*state |= sum->completed > 0 ? AFTER_COMPLETED_BIT : 0;
	*state |= sum->dead + sum->cancelled > 0 ? AFTER_FAILED_BIT : 0;
	return decide(after_rule_of(job), sum, *left, *state);
}
