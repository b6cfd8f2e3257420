/*
 * path_internal.h
 *	  What the files of paths share.
 */
#ifndef JOBQ_PATH_INTERNAL_H
#define JOBQ_PATH_INTERNAL_H

#include "fmgr.h"
#include "workflow/path.h"

/*
 * path_call.c: calls one of the server's functions of jsonb, jsonpath, vars,
 * silent within the limit of the run.
 */
extern Datum path_call(PathRun *run, const JsonbValue *path, PGFunction function, Datum first, Datum second, bool *isnull);
/* Returns the path as a jsonpath. */
extern Datum path_parse(PathRun *run, const JsonbValue *path);

/*
 * path.c: reads the next key of a chain, .key or ."key"; false: the path has
 * another form here.
 */
extern bool path_next_key(const char **at, const char *end, const char **key, int *len);

#endif
