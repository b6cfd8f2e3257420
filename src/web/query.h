/*
 * query.h
 *	  Splits and decodes what clients send as text: targets, cookies, Basic.
 */
#ifndef JOBQ_WEB_QUERY_H
#define JOBQ_WEB_QUERY_H

#include <stdbool.h>
#include <stddef.h>

#define MAX_PARAMETERS 64

typedef struct Parameter
{
	char	   *name;
	char	   *value;
} Parameter;

typedef struct Query
{
	Parameter	list[MAX_PARAMETERS];
	int			count;
	const char *wrong;			/* the parameter that is refused; NULL: none */
} Query;

/*
 * Decodes %XX in place, and "+" if asked.  false: malformed, a zero byte, or
 * not UTF-8.
 */
extern bool percent_decode(char *s, bool plus);

/*
 * Splits a query string in place into decoded names and values.  NULL, or why
 * it is refused; a name that occurs twice is refused.
 */
extern const char *query_split(char *s, Query *query);
extern const char *query_value(const Query *query, const char *name);

/* Copies the value of the cookie; false: there is none, or it is longer. */
extern bool cookie_value(const char *header, const char *name, char *value, size_t size);

/*
 * Splits "Basic <base64>" into name and password in buffer; false: malformed
 * or too long.
 */
extern bool basic_split(const char *header, char *buffer, size_t size, const char **name, const char **password);

#endif
