/*
 * conn.c
 *	  Connections of clients: their number, addresses and deadlines.
 *
 * libmicrohttpd's timeout is for silence: a byte a second keeps a connection
 * for ever.  So each phase of a connection has a deadline here, and a late one
 * is shut down; libmicrohttpd sees its end and closes it.  The socket is also
 * in our epoll set, edge-triggered, for two events that libmicrohttpd does not
 * report: the first byte after a pause, which starts the time for the headers,
 * and the client's leaving while a request waits.
 */
#include "conn.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define MAX_FD			8192
#define OTHER_FDS		80		/* connections to PostgreSQL, listeners, and so on */
#define MIN_CONNS		16

static Conn *by_fd[MAX_FD];
static Conn *conns = NULL;
static int	nconns = 0;
static int	max_conns = MAX_CONNS;
static uint64_t check(uint64_t now);
static Timer timer = {.at = NEVER, .due = check};

/* Leaves descriptors for all else: without them, no request could be answered. */
static void
limit_conns(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= MAX_CONNS + OTHER_FDS)
		return;
	max_conns = files.rlim_cur < OTHER_FDS + MIN_CONNS ? MIN_CONNS : (int) files.rlim_cur - OTHER_FDS;
	log_line("the limit of %llu open files allows %d connections", (unsigned long long) files.rlim_cur, max_conns);
}

void
conns_open(void)
{
	limit_conns();
	loop_timer(&timer);
}

static void
conn_ready(Source *source, uint32_t events)
{
	Conn	   *conn = (Conn *) source;

	if ((events & EPOLLIN) && conn->phase == PHASE_IDLE)
		conn_phase(conn, PHASE_HEADERS);
	if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) == 0)
		return;
	conn->left = true;
	if (conn->on_gone)
		conn->on_gone(conn);
}

static bool
same_network(const Address *a, const Address *b)
{
	const Address x = client_network(a);
	const Address y = client_network(b);

	return same_address(&x, &y);
}

static int
count_of(const Address *peer)
{
	Conn	   *c;
	int			n = 0;

	for (c = conns; c; c = c->next)
		n += same_network(&c->peer, peer);
	return n;
}

Conn *
conn_add(int fd, const Address *peer, bool trusted, bool metrics)
{
	Conn	   *conn;

	if (nconns >= max_conns || fd >= MAX_FD || (!trusted && count_of(peer) >= CONNS_AN_ADDRESS))
		return NULL;
	conn = mem_zero(sizeof(Conn));
	conn->source.fd = fd;
	conn->source.ready = conn_ready;
	conn->peer = conn->client = *peer;
	conn->trusted = trusted;
	conn->metrics = metrics;
	conn->next = conns;
	if (conns)
		conns->previous = conn;
	conns = conn;
	nconns++;
	by_fd[fd] = conn;
	conn_phase(conn, PHASE_HEADERS);
	loop_watch(&conn->source, EPOLLIN | EPOLLRDHUP | EPOLLET);
	return conn;
}

Conn *
conn_of(int fd)
{
	return fd >= 0 && fd < MAX_FD ? by_fd[fd] : NULL;
}

void
conn_remove(Conn *conn)
{
	loop_unwatch(&conn->source);
	by_fd[conn->source.fd] = NULL;
	if (conn->previous)
		conn->previous->next = conn->next;
	else
		conns = conn->next;
	if (conn->next)
		conn->next->previous = conn->previous;
	nconns--;
	loop_free(conn);
}

void
conn_phase(Conn *conn, Phase phase)
{
	static const uint64_t times[] = {
		[PHASE_IDLE] = IDLE_CONN_MS,[PHASE_HEADERS] = HEADERS_MS,[PHASE_BODY] = BODY_MS,
		[PHASE_WORKING] = NEVER,[PHASE_SENDING] = SENDING_MS,[PHASE_STREAM] = NEVER,
	};

	conn->phase = phase;
	conn_deadline(conn, times[phase] == NEVER ? NEVER : now_ms() + times[phase]);
}

void
conn_deadline(Conn *conn, uint64_t at)
{
	conn->deadline = at;
	timer_by(&timer, at);
}

int
conn_requests_of(const Conn *but, const Address *client)
{
	Conn	   *c;
	int			n = 0;

	for (c = conns; c; c = c->next)
		n += c != but && c->request && same_network(&c->client, client);
	return n;
}

uint64_t
conn_body_bytes_of(const Address *client)
{
	Conn	   *c;
	uint64_t	n = 0;

	for (c = conns; c; c = c->next)
	{
		if (same_network(&c->client, client))
			n += c->body;
	}
	return n;
}

static uint64_t
check(uint64_t now)
{
	Conn	   *c;
	uint64_t	next = NEVER;

	for (c = conns; c; c = c->next)
	{
		if (c->deadline <= now)
		{
			c->deadline = NEVER;
			shutdown(c->source.fd, SHUT_RDWR);
		}
		next = c->deadline < next ? c->deadline : next;
	}
	/* few looks for many connections: a deadline may be 100 ms late */
	return next == NEVER ? NEVER : next < now + 100 ? now + 100 : next;
}

bool
conns_are_busy(void)
{
	const Conn *c = conns;

	while (c && !c->request)
		c = c->next;
	return c != NULL;
}
