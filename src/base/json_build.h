/*
 * json_build.h
 *	  Small JSON objects for events, health and results.
 */
#ifndef JOBQ_JSON_BUILD_H
#define JOBQ_JSON_BUILD_H

#include "datatype/timestamp.h"
#include "utils/jsonb.h"

typedef struct JsonBuild
{
	JsonbInState state;
} JsonBuild;

extern void json_begin_object(JsonBuild *b);
/* A NULL string leaves the key out; the second makes it a JSON null. */
extern void json_add_string(JsonBuild *b, const char *key, const char *value);
extern void json_add_text(JsonBuild *b, const char *key, const char *value);
extern void json_add_number(JsonBuild *b, const char *key, double value);
extern void json_add_integer(JsonBuild *b, const char *key, int64 value);
extern void json_add_bool(JsonBuild *b, const char *key, bool value);
extern void json_add_time(JsonBuild *b, const char *key, TimestampTz value);	/* ISO 8601; 0: JSON null */
/* NULL: JSON null */
extern void json_add_jsonb(JsonBuild *b, const char *key, Jsonb *value);
extern Jsonb *json_end_object(JsonBuild *b);
/* {"progress": 40, "data": ...}; data is JSON text or NULL */
extern Jsonb *progress_json(double progress, const char *data);

#endif
