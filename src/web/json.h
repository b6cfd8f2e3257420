/*
 * json.h
 *	  Reads the members of a JSON object, and hides values in JSON text.
 */
#ifndef JOBQ_WEB_JSON_H
#define JOBQ_WEB_JSON_H

#include "buf.h"
#include "config.h"

typedef struct JsonMember
{
	const char *name;			/* between its quotes, with its escapes */
	size_t		name_len;
	const char *value;
	size_t		value_len;
} JsonMember;

/* Checks a whole text; NULL, or what is wrong, and where. */
extern const char *json_problem(const char *text, size_t len, size_t *offset);

/*
 * Steps through a checked text.  Begin with *place = the text; false: no more
 * members, or no object.
 */
extern bool json_member(const char **place, const char *end, JsonMember *member);

/* The same with the elements of an array, which have no names. */
extern bool json_element(const char **place, const char *end, JsonMember *member);

/* Returns the text of a checked string of JSON; NULL: it has a zero byte or is no string. */
extern char *json_string(const char *value, size_t len);

/*
 * Adds a text of the server, with the values of these keys replaced below its
 * top level: columns keep their names.
 */
extern void json_redact(Buf *out, const char *text, size_t len, const List *keys);

/* True if a checked text has what json_redact() writes as the value of one of these keys. */
extern bool json_has_redacted(const char *text, size_t len, const List *keys);

#endif
