/*
 * json_size.h
 *	  The size of a JSON value when it is written out, and its depth.
 *
 * The stored size means little: 1e131071 takes 22 bytes and prints 131,072
 * digits.
 */
#ifndef JOBQ_JSON_SIZE_H
#define JOBQ_JSON_SIZE_H

#include "utils/jsonb.h"

#define JOBQ_MAX_JSON_DEPTH 64

/*
 * Raises 54000 when the value, of the argument of that name, is written in
 * more than limit bytes or too deep.  The HINT names jobq.max_payload, or is
 * the one that is given.
 */
extern void check_json_size(const char *argument, Jsonb *value, int64 limit);
extern void check_json_size_hint(const char *argument, Jsonb *value, int64 limit, const char *hint);
/* False if check_json_size would raise an error. */
extern bool json_fits(Jsonb *value, int64 limit);

#endif
