/*
 * answers.h
 *	  The JSON Schemas of openapi.json: of answers that are no rows of a view,
 *	  and what the catalog says of rows and arguments.
 */
#ifndef JOBQ_WEB_ANSWERS_H
#define JOBQ_WEB_ANSWERS_H

#include "json.h"
#include "route.h"

typedef struct Answer
{
	const char *name;			/* as Route.answer has it */
	const char *properties;		/* JSON, without the braces; a key that ends
								 * with ? may be missing */
	const char *row;			/* a view whose rows it has, too; NULL: none */
	int			status;			/* also the answer of this status; 0: of none */
} Answer;

extern const Answer answer_table[];
extern const int answer_count;
/* NULL: it is not in the table. */
extern const Answer *answer_named(const char *name);

/* Properties of RFC 9457, of all errors. */
extern const char answer_problem[];

/*
 * A statement with the parameter $1, an array of names as "jobq.enqueue".  It
 * gives an object with the schema of the rows of each view or function, and as
 * "jobq.enqueue.priority" the members of the schema of each argument.
 */
extern const char answer_facts[];

#endif
