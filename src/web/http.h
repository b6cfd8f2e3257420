/*
 * http.h
 *	  Requests and their replies, over libmicrohttpd.
 */
#ifndef JOBQ_WEB_HTTP_H
#define JOBQ_WEB_HTTP_H

#include "config.h"
#include "conn.h"
#include "guard.h"

#define MAX_REPLY_HEADERS	8
#define JSON_TYPE			"application/json"
#define EVENTS_TYPE			"text/event-stream"
#define PROBLEM_TYPE		"application/problem+json"

struct MHD_Connection;

typedef struct Reply
{
	int			status;			/* 0: not yet */
	const char *type;
	Buf			body;
	const char *names[MAX_REPLY_HEADERS];
	char	   *values[MAX_REPLY_HEADERS];
	int			nheaders;
	bool		close;			/* the connection */
	const char *policy;			/* Content-Security-Policy; NULL: that of data */
	bool		kept;			/* the client may keep it, and asks each time */
} Reply;

typedef struct Request Request;

/*
 * Gives the next bytes of a reply without an end, up to size.  0: there are
 * none until request_more(); PART_END; PART_CUT: the connection is closed as it
 * is.  It is called again when the socket has taken all bytes before.
 */
typedef long (*ReplyPart) (Request *request, char *to, size_t size);

#define PART_END	(-1)
#define PART_CUT	(-2)

struct Request
{
	struct MHD_Connection *mhd;
	Conn	   *conn;
	char	   *target;			/* as it came */
	char	   *method;
	HeadFacts	facts;
	Address		client;			/* behind a trusted proxy: the forwarded one */
	Buf			body;
	uint64_t	began;
	Reply		reply;

	/* http.c */
	bool		seen;
	bool		handled;
	bool		suspended;
	ReplyPart	part;			/* NULL: the reply is a text */

	/* the handler's */
	void	   *state;
	void		(*free_state) (Request *request);	/* also when the client has left */
};

typedef void (*Handler) (Request *request);

/* Opens the sockets and begins to serve; false: the log says why. */
extern bool http_open(const Config *config, Handler handler);
/* Accepts no more connections. */
extern void http_stop(void);

extern void reply_header(Request *request, const char *name, const char *value);
/*
 * Sends the reply that is in request->reply; called once, from the handler or
 * later.
 */
extern void request_reply(Request *request, int status, const char *type);
/* Begins a reply without an end instead, which closes the connection. */
extern void request_stream(Request *request, const char *type, ReplyPart part);
/* Asks for the next part, if it waits. */
extern void request_more(Request *request);

#endif
