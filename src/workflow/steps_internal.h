/*
 * steps_internal.h
 *	  What the readers of steps share.
 */
#ifndef JOBQ_STEPS_INTERNAL_H
#define JOBQ_STEPS_INTERNAL_H

#include "workflow/steps.h"

static inline char *
json_text(const JsonbValue *string)
{
	return pnstrdup(string->val.string.val, string->val.string.len);
}

/* Adds the problem that a value is not as wanted. */
extern void step_bad_value(Steps *s, int step, const char *key, const JsonbValue *value, const char *wanted);

/*
 * Reads all keys of a step but "key" and "after", and adds problems of keys
 * that have no effect together.
 */
extern void step_read_fields(Steps *s, int n, JsonbContainer *object);
extern void step_check_combination(Steps *s, int n);

#endif
