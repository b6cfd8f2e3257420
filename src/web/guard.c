/*
 * guard.c
 *	  Checks a request's first line and headers, before anything acts on them.
 *
 * libmicrohttpd has parsed them and is not trusted with what two programs in a
 * row may read differently: a proxy and this server must agree where a request
 * ends and for which host it is.  So there is one way to give a body, one
 * Content-Length, which counts it; all else is refused, and the connection is
 * closed.  A name that is no token ("Transfer-Encoding " with a space) is
 * refused, too.  Headers that decide on rights occur once or not at all.
 */
#include "guard.h"

#include <string.h>
#include <strings.h>

#define MAX_LENGTH_DIGITS 10

typedef struct Guard
{
	const Head *head;
	HeadFacts  *facts;
	const char *reason;
	int			hosts;
	int			lengths;
	const char *length;
} Guard;

static int
refuse(Guard *g, int status, const char *reason)
{
	g->reason = reason;
	return status;
}

static bool
is_token(const char *s, size_t len)
{
	size_t		i;

	for (i = 0; i < len; i++)
	{
		unsigned char c = (unsigned char) s[i];

		if (c <= ' ' || c >= 0x7F || strchr("\"(),/:;<=>?@[\\]{}", c))
			return false;
	}
	return len > 0;
}

static bool
is_value(const char *s, size_t len)
{
	size_t		i;

	for (i = 0; i < len; i++)
	{
		unsigned char c = (unsigned char) s[i];

		if ((c < ' ' && c != '\t') || c == 0x7F)
			return false;
	}
	return true;
}

static bool
is_visible(const char *s)
{
	for (; *s; s++)
	{
		if ((unsigned char) *s <= ' ' || (unsigned char) *s >= 0x7F)
			return false;
	}
	return true;
}

static int
guard_line(Guard *g)
{
	const Head *head = g->head;

	if (!is_token(head->method, strlen(head->method)))
		return refuse(g, 400, "the method is not a token");
	if (strcmp(head->version, "HTTP/1.1") != 0 && strcmp(head->version, "HTTP/1.0") != 0)
		return refuse(g, 505, "the version is neither HTTP/1.1 nor HTTP/1.0");
	if (strlen(head->target) > MAX_TARGET)
		return refuse(g, 414, "the target is longer than 8 kB");
	if (head->target[0] != '/' || !is_visible(head->target))
		return refuse(g, 400, "the target is not a path");
	return 0;
}

static bool
is_named(const Header *h, const char *name)
{
	return strlen(name) == h->name_len && strncasecmp(h->name, name, h->name_len) == 0;
}

/* Returns the place of a header that may occur once; NULL: it has none. */
static const char **
place_of(Guard *g, const Header *h)
{
	HeadFacts  *f = g->facts;
	const struct
	{
		const char *name;
		const char **place;
	}			known[] = {
		{"authorization", &f->authorization}, {"cookie", &f->cookie}, {"origin", &f->origin},
		{"x-csrf-token", &f->csrf}, {"content-type", &f->content_type}, {"accept", &f->accept},
		{"accept-encoding", &f->accept_encoding}, {"if-none-match", &f->if_none_match},
		{"x-forwarded-for", &f->forwarded_for}, {"sec-fetch-mode", &f->fetch_mode},
		{"sec-fetch-site", &f->fetch_site}
	};
	size_t		i;

	if (g->head->user_header && is_named(h, g->head->user_header))
		return &f->user;
	for (i = 0; i < sizeof(known) / sizeof(known[0]); i++)
	{
		if (is_named(h, known[i].name))
			return known[i].place;
	}
	return NULL;
}

/*
 * True for a header of the body's length whose value is on a folded line:
 * libmicrohttpd 0.9.75 adds that line to the name, and sees no body.
 */
static bool
is_folded(const Header *h)
{
	static const char *const names[] = {"content-length", "transfer-encoding"};
	size_t		i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
	{
		size_t		len = strlen(names[i]);

		if (h->name_len > len && strncasecmp(h->name, names[i], len) == 0)
			return true;
	}
	return false;
}

static int
guard_header(Guard *g, const Header *h)
{
	const char **place;

	if (!is_token(h->name, h->name_len))
		return refuse(g, 400, "the name of a header is not a token");
	if (!is_value(h->value, h->value_len))
		return refuse(g, 400, "a header has a control character");
	if (is_folded(h))
		return refuse(g, 400, "the length of the body is on a folded line");
	if (is_named(h, "transfer-encoding"))
		return refuse(g, 400, "Transfer-Encoding is not accepted: give Content-Length");
	if (is_named(h, "expect") && strcasecmp(h->value, "100-continue") != 0)
		return refuse(g, 417, "Expect is not 100-continue");
	if (is_named(h, "host"))
		g->hosts++;
	if (is_named(h, "content-length"))
	{
		g->lengths++;
		g->length = h->value;
	}
	place = place_of(g, h);
	if (place && *place)
		return refuse(g, 400, "a header that may occur once occurs twice");
	if (place)
		*place = h->value;
	return 0;
}

static int
guard_length(Guard *g)
{
	size_t		digits = g->length ? strspn(g->length, "0123456789") : 0;
	const char *c;

	if (g->lengths == 0)
		return 0;
	if (g->lengths > 1)
		return refuse(g, 400, "there are two Content-Length headers");
	if (digits == 0 || g->length[digits] != '\0')
		return refuse(g, 400, "Content-Length is not a number");
	if (digits > MAX_LENGTH_DIGITS)
		return refuse(g, 413, "the body is larger than 2 MB");
	for (c = g->length; *c; c++)
		g->facts->body = g->facts->body * 10 + (uint64_t) (*c - '0');
	if (g->facts->body > MAX_BODY)
		return refuse(g, 413, "the body is larger than 2 MB");
	if (g->facts->body > 0 && strcmp(g->head->method, "POST") != 0 && strcmp(g->head->method, "PUT") != 0 &&
		strcmp(g->head->method, "PATCH") != 0)
		return refuse(g, 400, "only POST, PUT and PATCH may have a body");
	return 0;
}

static int
guard_all(Guard *g)
{
	const Head *head = g->head;
	size_t		bytes = strlen(head->target);
	int			status = guard_line(g);
	int			i;

	if (status == 0 && head->nheaders > MAX_HEADERS)
		return refuse(g, 431, "there are more than 100 headers");
	for (i = 0; status == 0 && i < head->nheaders; i++)
	{
		bytes += head->headers[i].name_len + head->headers[i].value_len + 4;
		status = guard_header(g, &head->headers[i]);
	}
	if (status != 0)
		return status;
	if (bytes > MAX_HEADER_BYTES)
		return refuse(g, 431, "the headers are larger than 16 kB");
	if (g->hosts > 1 || (g->hosts == 0 && strcmp(head->version, "HTTP/1.1") == 0))
		return refuse(g, 400, "there must be one Host header");
	return guard_length(g);
}

int
guard_head(const Head *head, HeadFacts *facts, const char **reason)
{
	Guard		g = {.head = head, .facts = facts};
	int			status;

	*facts = (HeadFacts) {0};
	status = guard_all(&g);
	*reason = g.reason;
	return status;
}
