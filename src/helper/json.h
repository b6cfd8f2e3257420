/*
 * json.h
 *	  Checks that a text is one JSON value that jsonb accepts.
 *
 * jsonb accepts every text that passes, but not the reverse: depth, length of
 * numbers and size are bounded, and \u0000 is refused.
 */
#ifndef JOBQ_JSON_H
#define JOBQ_JSON_H

#include <stdbool.h>
#include <stddef.h>

#define JSON_MAX_DEPTH		64
#define JSON_MAX_NUMBER		64	/* characters */
#define JSON_MAX_EXPONENT	400 /* covers every double; jsonb stores all
								 * digits */

typedef enum JsonResult
{
	JSON_OK,
	JSON_EMPTY,					/* white space only */
	JSON_BAD,
	JSON_NOT_UTF8,
	JSON_NUL,					/* a zero byte, or \u0000 */
	JSON_TOO_DEEP,
	JSON_TOO_LARGE				/* over max_bytes with numbers written out */
} JsonResult;

typedef struct JsonError
{
	size_t		offset;
	const char *what;			/* "expected a value", ... */
} JsonError;

/* Checks the whole of s; error may be NULL. */
extern JsonResult json_check(const char *s, size_t len, size_t max_bytes, JsonError *error);

/*
 * Finds key (plain letters) in a checked object and returns its value's text;
 * the last duplicate counts, as in jsonb.  false: no such key, or no object.
 */
extern bool json_find(const char *s, size_t len, const char *key, const char **value, size_t *value_len);

#endif
