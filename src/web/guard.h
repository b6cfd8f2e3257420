/*
 * guard.h
 *	  Checks a request's first line and headers, before anything acts on them.
 */
#ifndef JOBQ_WEB_GUARD_H
#define JOBQ_WEB_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_HEADERS			100
#define MAX_HEADER_BYTES	(16 * 1024)
#define MAX_TARGET			(8 * 1024)
#define MAX_BODY			(2 * 1024 * 1024)

typedef struct Header
{
	const char *name;
	size_t		name_len;
	const char *value;
	size_t		value_len;
} Header;

typedef struct Head
{
	const char *method;
	const char *target;			/* as it came */
	const char *version;
	Header		headers[MAX_HEADERS];
	int			nheaders;		/* MAX_HEADERS + 1: there are more */
	const char *user_header;	/* the name of the proxy's header, NULL: none */
} Head;

/* The headers that requests are judged by: each occurs once at most; NULL: it doesn't. */
typedef struct HeadFacts
{
	uint64_t	body;			/* bytes that follow */
	const char *authorization;
	const char *cookie;
	const char *origin;
	const char *csrf;
	const char *content_type;
	const char *accept;
	const char *accept_encoding;
	const char *if_none_match;
	const char *forwarded_for;
	const char *fetch_mode;
	const char *fetch_site;
	const char *user;			/* of the proxy's header */
} HeadFacts;

/* Returns 0 and the facts, or the status of a refusal and its reason. */
extern int	guard_head(const Head *head, HeadFacts *facts, const char **reason);

#endif
