/*
 * http.c
 *	  Requests and their replies, over libmicrohttpd.
 *
 * libmicrohttpd runs without threads: its epoll descriptor is a source of our
 * loop, and MHD_run() is called after each turn.  It has no sockets to listen
 * on: connections are accepted here, under our limits, and given to it.
 *
 * A request begins with its target, before libmicrohttpd parses anything
 * (begin_target).  The first call of answer() has the headers and no body: the
 * guard decides there.  The last one has the whole body: the handler is called
 * once, and the connection is suspended until it replies.  Replies to requests
 * with a body, and refusals, close the connection, so that nothing is ever read
 * behind bytes of which two programs may think differently.
 *
 * A reply without an end (request_stream) is read part by part; between two of
 * them the connection is suspended, too.  Its end is ours to find: conn.c shuts
 * a connection down that does not take a part in time, and reports clients that
 * have left.
 */
#include "http.h"

#include <microhttpd.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net.h"
#include "problem.h"

#if MHD_VERSION < 0x00097500
#error "jobq-web needs libmicrohttpd 0.9.75 or newer"
#endif

#define MEMORY_A_CONN	(48 * 1024)
#define PART_BYTES		4096	/* without chunks: to HTTP/1.0 */
#define MAX_LISTENERS	16
#define ACCEPTS_A_TURN	64
#define MAX_BODIES		(64 * 1024 * 1024)	/* read before it is known whose they are */
#define BODIES_AN_ADDRESS	(16 * 1024 * 1024)
#define SMALL_BODY		(64 * 1024)	/* is always read: the number of connections is limited */
#define CSP "default-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

typedef struct Listener
{
	Source		source;
	bool		metrics;
} Listener;

typedef struct Daemon
{
	Source		source;
	struct MHD_Daemon *mhd;
} Daemon;

static const Config *config;
static Handler handle;
static Listener listeners[MAX_LISTENERS];
static int	nlisteners = 0;
static uint64_t body_bytes = 0;	/* of all requests that have a body */
static Daemon main_daemon;
static Daemon metrics_daemon;	/* never with TLS */

/* ---------- replies ---------- */

void
reply_header(Request *request, const char *name, const char *value)
{
	Reply	   *reply = &request->reply;

	if (reply->nheaders == MAX_REPLY_HEADERS)
		return;
	reply->names[reply->nheaders] = name;
	reply->values[reply->nheaders++] = mem_text(value);
}

void
request_reply(Request *request, int status, const char *type)
{
	request->reply.status = status;
	request->reply.type = type;
	request_more(request);
}

void
request_stream(Request *request, const char *type, ReplyPart part)
{
	request->part = part;
	request->reply.close = true;
	request_reply(request, 200, type);
}

void
request_more(Request *request)
{
	if (!request->suspended)
		return;
	request->suspended = false;
	MHD_resume_connection(request->mhd);
}

static void
suspend(Request *request)
{
	request->suspended = true;
	MHD_suspend_connection(request->mhd);
}

static void
log_request(const Request *request)
{
	char		from[ADDRESS_TEXT];
	size_t		path = strcspn(request->target, "?");

	if (!config->log_requests)
		return;
	address_text(&request->client, from);
	log_line("%s %s %.*s %d %llu ms", from, request->method, (int) path, request->target, request->reply.status,
			 (unsigned long long) (now_ms() - request->began));
}

/* The headers of every reply. */
static void
add_headers(const Request *request, struct MHD_Response *response)
{
	const Reply *reply = &request->reply;
	int			i;

	MHD_add_response_header(response, "Content-Type", reply->type);
	MHD_add_response_header(response, "Content-Security-Policy", reply->policy ? reply->policy : CSP);
	MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
	MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
	MHD_add_response_header(response, "Cache-Control", reply->kept ? "no-cache" : "no-store");
	if (strncmp(config->origin, "https:", 6) == 0)
		MHD_add_response_header(response, "Strict-Transport-Security", "max-age=31536000");
	if (reply->close)
		MHD_add_response_header(response, "Connection", "close");
	for (i = 0; i < reply->nheaders; i++)
		MHD_add_response_header(response, reply->names[i], reply->values[i]);
}

/* libmicrohttpd calls this when the socket has taken the part before. */
static ssize_t
next_part(void *arg, uint64_t at, char *to, size_t size)
{
	Request    *request = arg;
	long		n = request->part(request, to, size);

	(void) at;
	if (n == 0)
		suspend(request);
	return n >= 0 ? n : n == PART_END ? MHD_CONTENT_READER_END_OF_STREAM : MHD_CONTENT_READER_END_WITH_ERROR;
}

static enum MHD_Result
send_reply(Request *request)
{
	Reply	   *reply = &request->reply;
	struct MHD_Response *response;
	enum MHD_Result rc;

	if (request->part)
		response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, PART_BYTES, next_part, request, NULL);
	else
		response = MHD_create_response_from_buffer(reply->body.len, reply->body.data, MHD_RESPMEM_MUST_FREE);
	if (!response)
		return MHD_NO;
	if (!request->part)
		reply->body = (Buf) {0};
	add_headers(request, response);
	conn_phase(request->conn, request->part ? PHASE_STREAM : PHASE_SENDING);
	rc = MHD_queue_response(request->mhd, (unsigned) reply->status, response);
	MHD_destroy_response(response);
	log_request(request);
	return rc;
}

/* ---------- requests ---------- */

/* libmicrohttpd calls this with the target before it parses it. */
static void *
begin_target(void *arg, const char *target, struct MHD_Connection *mhd)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
	Conn	   *conn = info ? conn_of(info->connect_fd) : NULL;
	Request    *request;

	(void) arg;
	if (!conn)
		return NULL;
	request = mem_zero(sizeof(Request));
	request->mhd = mhd;
	request->conn = conn;
	request->client = conn->peer;
	request->target = mem_text(target);
	request->began = now_ms();
	conn->request = request;
	if (conn->phase == PHASE_IDLE)
		conn_phase(conn, PHASE_HEADERS);
	return request;
}

static enum MHD_Result
take_header(void *arg, enum MHD_ValueKind kind, const char *name, size_t name_len, const char *value, size_t value_len)
{
	Head	   *head = arg;

	(void) kind;
	if (head->nheaders < MAX_HEADERS)
		head->headers[head->nheaders] = (Header) {name, name_len, value ? value : "", value_len};
	head->nheaders++;
	return head->nheaders > MAX_HEADERS ? MHD_NO : MHD_YES;
}

/* Judges the headers; a refusal is a reply that closes the connection. */
static void
judge(Request *request, const char *method, const char *version)
{
	static Head head;
	const char *reason;
	int			status;

	head.method = method;
	head.target = request->target;
	head.version = version;
	head.nheaders = 0;
	head.user_header = config->proxy_user_header;
	request->method = mem_text(method);
	MHD_get_connection_values_n(request->mhd, MHD_HEADER_KIND, take_header, &head);
	status = guard_head(&head, &request->facts, &reason);
	if (status != 0)
	{
		request->facts.body = 0;
		request->reply.close = true;
		problem_reply(request, status, reason);
		return;
	}
	request->reply.close = request->facts.body > 0;
	body_bytes += request->facts.body;
	request->conn->body = request->facts.body;
	if (request->conn->trusted)
	{
		request->client = forwarded_address(&config->trusted, &request->conn->peer, request->facts.forwarded_for);
		request->conn->client = request->client;
		if (conn_requests_of(request->conn, &request->client) >= CONNS_AN_ADDRESS)
		{
			problem_reply(request, 429, "there are too many requests at once from this address");
			return;
		}
	}
	if (request->facts.body > SMALL_BODY &&
		(body_bytes > MAX_BODIES || conn_body_bytes_of(&request->client) > BODIES_AN_ADDRESS))
		problem_reply(request, 503, "too many large requests at once");
}

static enum MHD_Result
answer(void *arg, struct MHD_Connection *mhd, const char *url, const char *method, const char *version,
	   const char *data, size_t *size, void **place)
{
	Request    *request = *place;

	(void) arg;
	(void) mhd;
	(void) url;
	if (!request)
		return MHD_NO;
	if (!request->seen)
	{
		request->seen = true;
		judge(request, method, version);
		if (request->reply.status != 0)
			return send_reply(request);
		if (request->facts.body > 0)
			conn_phase(request->conn, PHASE_BODY);
		return MHD_YES;
	}
	if (*size > 0)
	{
		if (request->body.len + *size > MAX_BODY)
			return MHD_NO;
		buf_add(&request->body, data, *size);
		*size = 0;
		return MHD_YES;
	}
	if (!request->handled)
	{
		request->handled = true;
		conn_phase(request->conn, PHASE_WORKING);
		handle(request);
	}
	if (request->reply.status != 0)
		return send_reply(request);
	suspend(request);
	return MHD_YES;
}

/* The reply was sent, or the connection is gone. */
static void
completed(void *arg, struct MHD_Connection *mhd, void **place, enum MHD_RequestTerminationCode how)
{
	Request    *request = *place;
	int			i;

	(void) arg;
	(void) mhd;
	(void) how;
	if (!request)
		return;
	*place = NULL;
	body_bytes -= request->facts.body;
	request->conn->body = 0;
	if (request->free_state)
		request->free_state(request);
	request->conn->request = NULL;
	request->conn->on_gone = NULL;
	request->conn->client = request->conn->peer;
	conn_phase(request->conn, PHASE_IDLE);
	for (i = 0; i < request->reply.nheaders; i++)
		free(request->reply.values[i]);
	buf_wipe(&request->body);
	buf_wipe(&request->reply.body);
	free(request->target);
	free(request->method);
	free(request);
}

static void
connection_changed(void *arg, struct MHD_Connection *mhd, void **context, enum MHD_ConnectionNotificationCode what)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
	Conn	   *conn = info ? conn_of(info->connect_fd) : NULL;

	(void) arg;
	(void) context;
	if (conn && what == MHD_CONNECTION_NOTIFY_CLOSED)
		conn_remove(conn);
}

/* ---------- daemons and sockets ---------- */

/* Targets are decoded by query.c, from the copy of begin_target(). */
static size_t
keep_escapes(void *arg, struct MHD_Connection *mhd, char *s)
{
	(void) arg;
	(void) mhd;
	return strlen(s);
}

static void
log_daemon(void *arg, const char *format, va_list args)
{
	(void) arg;
	(void) format;
	(void) args;				/* about single clients; nothing to act on */
}

static void
daemon_ready(Source *source, uint32_t events)
{
	(void) source;
	(void) events;				/* run_daemons() comes after each turn */
}

/* cert and key: contents of the files; NULL: no TLS. */
static bool
start_daemon(Daemon *daemon, const char *cert, const char *key)
{
	unsigned	flags = MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
	struct MHD_OptionItem tls[] = {
		{MHD_OPTION_HTTPS_MEM_CERT, 0, (void *) cert}, {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *) key},
		{MHD_OPTION_END, 0, NULL}
	};
	const union MHD_DaemonInfo *info;

	daemon->mhd = MHD_start_daemon(flags | (cert ? MHD_USE_TLS : 0), 0, NULL, NULL, answer, NULL,
								   MHD_OPTION_EXTERNAL_LOGGER, log_daemon, NULL,
								   MHD_OPTION_CONNECTION_LIMIT, (unsigned) MAX_CONNS + 16,
								   MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t) MEMORY_A_CONN,
								   MHD_OPTION_URI_LOG_CALLBACK, begin_target, NULL,
								   MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL,
								   MHD_OPTION_NOTIFY_COMPLETED, completed, NULL,
								   MHD_OPTION_NOTIFY_CONNECTION, connection_changed, NULL,
								   MHD_OPTION_STRICT_FOR_CLIENT, 1,
								   MHD_OPTION_ARRAY, cert ? tls : tls + 2,
								   MHD_OPTION_END);
	info = daemon->mhd ? MHD_get_daemon_info(daemon->mhd, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
	if (!info)
	{
		log_line(cert ? "could not start with this certificate and key" : "could not start libmicrohttpd");
		return false;
	}
	daemon->source = (Source) {info->epoll_fd, daemon_ready};
	return loop_watch(&daemon->source, EPOLLIN);
}

static int
run_daemon(Daemon *daemon)
{
	MHD_UNSIGNED_LONG_LONG wait;

	if (!daemon->mhd)
		return -1;
	MHD_run(daemon->mhd);
	if (MHD_get_timeout(daemon->mhd, &wait) != MHD_YES)
		return -1;
	return wait > 1000 ? 1000 : (int) wait;
}

static int
run_daemons(void)
{
	int			a = run_daemon(&main_daemon);
	int			b = run_daemon(&metrics_daemon);

	return a < 0 || (b >= 0 && b < a) ? b : a;
}

static void
refuse_connection(int fd, bool tls)
{
	Buf			body = {0};
	Buf			reply = {0};

	problem_body(&body, 503, "there are too many connections", NULL, NULL);
	buf_printf(&reply, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: " PROBLEM_TYPE "\r\nRetry-After: 1\r\n"
			   "Content-Length: %zu\r\nConnection: close\r\n\r\n%s", body.len, body.data);
	if (!tls && send(fd, reply.data, reply.len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		errno = 0;				/* the client gets no answer */
	buf_free(&body);
	buf_free(&reply);
	close(fd);
}

/* Without TLS only this machine and trusted proxies may send passwords. */
static bool
may_connect(const Address *peer)
{
	return config->tls || is_loopback(peer) || networks_have(&config->trusted, peer);
}

static void
accept_one(const Listener *listener, int fd, const struct sockaddr *from, socklen_t len)
{
	Daemon	   *daemon = listener->metrics ? &metrics_daemon : &main_daemon;
	Address		peer = address_of(from);
	bool		trusted = !listener->metrics && networks_have(&config->trusted, &peer);
	Conn	   *conn;

	if (!listener->metrics && !may_connect(&peer))
	{
		close(fd);
		return;
	}
	conn = conn_add(fd, &peer, trusted, listener->metrics);
	if (!conn)
		refuse_connection(fd, config->tls && !listener->metrics);
	else if (MHD_add_connection(daemon->mhd, fd, from, len) != MHD_YES && conn_of(fd) == conn)
		conn_remove(conn);		/* libmicrohttpd has closed it */
}

static void
listener_ready(Source *source, uint32_t events)
{
	int			i;

	(void) events;
	for (i = 0; i < ACCEPTS_A_TURN; i++)
	{
		struct sockaddr_storage from = {0};
		socklen_t	len = sizeof(from);
		int			fd = accept4(source->fd, (struct sockaddr *) &from, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0)
			return;
		accept_one((const Listener *) source, fd, (const struct sockaddr *) &from, len);
	}
}

static void
found_listener(int fd, bool local, void *arg)
{
	Listener   *listener;

	if (nlisteners == MAX_LISTENERS)
	{
		close(fd);
		return;
	}
	listener = &listeners[nlisteners++];
	listener->source = (Source) {fd, listener_ready};
	listener->metrics = arg != NULL;
	if (!local && !config->tls && config->trusted.count == 0)
		log_line("a socket is not on loopback, and there is no TLS: it serves this machine only");
	loop_watch(&listener->source, EPOLLIN);
}

bool
http_open(const Config *the_config, Handler handler)
{
	char	   *cert = the_config->tls ? config_file(the_config->tls_cert) : NULL;
	char	   *key = cert ? config_file(the_config->tls_key) : NULL;
	int			i;

	config = the_config;
	handle = handler;
	conns_open();
	if ((config->tls && !key) || !start_daemon(&main_daemon, cert, key))
		return false;
	if (key)
		explicit_bzero(key, strlen(key));
	if (config->metrics_listen.count > 0 && !start_daemon(&metrics_daemon, NULL, NULL))
		return false;
	loop_after_turn(run_daemons);
	for (i = 0; i < config->listen.count; i++)
	{
		if (!net_listen(config->listen.items[i].name, found_listener, NULL))
			return false;
	}
	for (i = 0; i < config->metrics_listen.count; i++)
	{
		if (!net_listen(config->metrics_listen.items[i].name, found_listener, &metrics_daemon))
			return false;
	}
	return true;
}

void
http_stop(void)
{
	while (nlisteners > 0)
	{
		Listener   *listener = &listeners[--nlisteners];

		loop_unwatch(&listener->source);
		close(listener->source.fd);
	}
}
