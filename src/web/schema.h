/*
 * schema.h
 *	  Writes the JSON Schemas of openapi.json.
 */
#ifndef JOBQ_WEB_SCHEMA_H
#define JOBQ_WEB_SCHEMA_H

#include "answers.h"

#define REF(kind) "{\"$ref\":\"#/components/" kind "/%s\"}"

/* The array of names that the parameter of answer_facts is. */
extern void schema_names(Buf *out);
/* Takes what answer_facts gave; it must stay until the document is written. */
extern void schema_facts(const Buf *object);

/* Of an argument of a route. */
extern void schema_argument(Buf *out, const Route *route, const Arg *arg);
/* Of what a route replies. */
extern void schema_answer(Buf *out, const Route *route);
/* All that the others refer to. */
extern void schema_components(Buf *out);

#endif
