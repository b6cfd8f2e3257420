/*
 * json_build.h
 *	  Small JSON objects for events, health and results.
 */
#ifndef JOBQ_JSON_BUILD_H
#define JOBQ_JSON_BUILD_H

#include "utils/jsonb.h"

typedef struct JsonBuild
{
	JsonbParseState *state;
} JsonBuild;

extern void json_begin_object(JsonBuild *b);
/* A NULL string leaves the key out. */
extern void json_add_string(JsonBuild *b, const char *key, const char *value);
extern void json_add_number(JsonBuild *b, const char *key, double value);
extern Jsonb *json_end_object(JsonBuild *b);

#endif
