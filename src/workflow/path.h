/*
 * path.h
 *	  SQL/JSON paths of workflows: lax, in time zone UTC, within a time limit.
 *
 * Errors about a path, and about the items that it finds, have the SQLSTATE
 * JQ004: the engine ends the task with the error code bad_input.  No function
 * here reads a table.
 */
#ifndef JOBQ_PATH_H
#define JOBQ_PATH_H

#include "utils/jsonb.h"

/* Bytes of a path. */
#define MAX_PATH_LENGTH		4096

/*
 * CPU time of all paths that are evaluated with one PathRun: 5 ms, and 62 ns
 * for each byte of the context, which a path may copy.  Beyond it they have it
 * once more.
 */
#define PATH_CPU_US			5000

typedef struct PathRun
{
	Jsonb	   *context;
	int64		cpu_us;			/* used so far */
	bool		again;			/* they have it once more */
} PathRun;

/*
 * Returns the number of items that the path finds: 0, 1, or 2 for several.
 * *item is the first one; it may point into the context.
 */
extern int	path_items(PathRun *run, const JsonbValue *path, JsonbValue *item);
/* Returns all items, as an array. */
extern Jsonb *path_array(PathRun *run, const JsonbValue *path);
/* Returns the truth of a predicate; null counts as false. */
extern bool path_test(PathRun *run, const JsonbValue *path);

/* The parts of a context that a path reads. */
typedef struct PathRefs
{
	List	   *tasks;			/* char *: keys of $.tasks.<key> */
	bool		all_tasks;		/* $.tasks as a whole */
	bool		artifacts;		/* those of the tasks that it reads */
	bool		input;
	bool		run;
	bool		item;			/* $.item or $.index */
	bool		whole;			/* $ itself, or all of its keys */
	const char *unknown;		/* another key of $; NULL: none */
	const char *variable;		/* $name; NULL: none */
} PathRefs;

/*
 * Adds the parts that the path reads.  Raises JQ004 if it is no path; begin
 * with a zeroed struct.
 */
extern void path_refs(PathRun *run, const JsonbValue *path, PathRefs *refs);

/* Returns a path, or another text, as messages show it. */
extern char *path_shown(const JsonbValue *path);

#endif
