/*
 * json_size.h
 *	  How large a JSON value is when it is written out, and how deep.
 *
 * What is stored says little: 1e131071 takes 22 bytes and prints 131,072 digits.
 */
#ifndef JOBQ_JSON_SIZE_H
#define JOBQ_JSON_SIZE_H

#include "utils/jsonb.h"

#define JOBQ_MAX_JSON_DEPTH 64

/* ERROR 54000 when value, an argument of that name, is written in more than limit bytes or too deep. */
extern void check_json_size(const char *argument, Jsonb *value, int64 limit);
/* Would it be an error? */
extern bool json_fits(Jsonb *value, int64 limit);

#endif
