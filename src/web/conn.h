/*
 * conn.h
 *	  Connections of clients: their number, addresses and deadlines.
 */
#ifndef JOBQ_WEB_CONN_H
#define JOBQ_WEB_CONN_H

#include "address.h"
#include "buf.h"
#include "loop.h"

#define MAX_CONNS			1024	/* fewer, if the limit of open files is low */
#define CONNS_AN_ADDRESS	64

#define HEADERS_MS			(10 * SECOND)
#define BODY_MS				(30 * SECOND)
#define SENDING_MS			(60 * SECOND)
#define IDLE_CONN_MS		(60 * SECOND)

typedef enum Phase
{
	PHASE_IDLE,					/* kept alive; the first byte of a request
								 * begins PHASE_HEADERS */
	PHASE_HEADERS,
	PHASE_BODY,
	PHASE_WORKING,				/* no deadline: a work has its own */
	PHASE_SENDING,
	PHASE_STREAM				/* each part of the stream has a deadline */
} Phase;

typedef struct Conn Conn;
struct Conn
{
	Source		source;
	Address		peer;
	bool		trusted;		/* a proxy whose X-Forwarded-For counts */
	bool		metrics;		/* came to metrics_listen */
	Phase		phase;
	uint64_t	deadline;
	bool		left;			/* the client sends no more: it has left, too */
	void		(*on_gone) (Conn *conn);	/* the client has left while we work */
	void	   *request;		/* http.h */
	uint64_t	body;			/* declared by its request, in bytes */
	Address		client;			/* of its request: behind a proxy another one */
	Conn	   *next;
	Conn	   *previous;
};

extern void conns_open(void);

/* Adds a connection; NULL: there are too many, at all or from that address. */
extern Conn *conn_add(int fd, const Address *peer, bool trusted, bool metrics);
extern Conn *conn_of(int fd);
extern void conn_remove(Conn *conn);
extern void conn_phase(Conn *conn, Phase phase);
/* Sets the deadline of a stream's part; NEVER: it has none. */
extern void conn_deadline(Conn *conn, uint64_t at);
/* Counts the other connections that have a request of that client. */
extern int	conn_requests_of(const Conn *but, const Address *client);
/* Sums the declared bodies of that client's requests. */
extern uint64_t conn_body_bytes_of(const Address *client);
/* True if some connection has a request. */
extern bool conns_are_busy(void);

#endif
