/*
 * stream.c
 *	  GET stream: server-sent events.
 *
 *	 overview	the body of GET overview, each second for those who may read
 *				all tenants, else every 5 s (feed.c)
 *	 changed	{job_types}: the types whose counters differ between this
 *				overview and the one that the stream had before, those that
 *				came or went included; times and sums do not count
 *	 stale		{since}: there is no newer overview, because the server does
 *				not answer; the next overview says that it does again
 *	 bye		{reason}: signed_out, idle, expired, replaced (the session);
 *				refused (PostgreSQL no longer lets the role in), rights (it
 *				may not read this any more: another stream may get less),
 *				shutdown
 *
 * and a comment every 15 s, in gzip for a client that takes it.  Events have no
 * ids: each overview is whole, so Last-Event-ID means nothing here.
 *
 * A stream has no queue.  When the socket has taken everything, the next event
 * is chosen by what the stream has sent and what its feed has now: a slow
 * client gets the newest overview and never those that it has missed.  It holds
 * one event at most, which it must take within 30 s.  The socket's own buffer
 * is small, or the kernel would keep old overviews.
 *
 *	 ASKING		which kind of feed the person may have; one of its streams asks
 *	 ASKING -> OPEN		(viewer) it is known
 *	 OPEN -> LEAVING	(bye) the session, the right or this program ends
 *	 LEAVING -> closed	bye was sent, or 5 s have passed
 */
#include "stream.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "feed.h"
#include "overview.h"
#include "problem.h"
#include "statement.h"

#define MAX_STREAMS		600
#define HEARTBEAT_MS	(15 * SECOND)
#define EVENT_MS		(30 * SECOND)
#define BYE_MS			(5 * SECOND)
#define SOCKET_BYTES	(32 * 1024)

typedef struct Stream Stream;
struct Stream
{
	Call	   *call;
	const Session *session;		/* NULL: none, or it has ended */
	Viewer	   *viewer;			/* NULL: not open */
	bool		asks;			/* for all of its person that wait */
	bool		refused;		/* it has another reply */
	const char *bye;			/* the reason; NULL: it goes on */
	bool		gone;			/* the client has left */
	bool		packed;			/* its client takes gzip */

	/* what was sent */
	bool		begun;
	bool		greeted;
	bool		said_bye;
	bool		ended;
	GzipSum		sum;			/* of all events */
	bool		stale;			/* since the last overview */
	uint64_t	number;			/* of the last overview, 0: none */
	uint64_t	before;			/* the one before it, until changed was sent; 0: none */
	uint64_t	heartbeat;		/* the time of the next one */
	Frame	   *frame;			/* being sent */
	size_t		at;
	Stream	   *next;
};

static Stream *streams = NULL;
static int	nstreams = 0;
static bool ending = false;
static Frame beginning = {.packed = GZIP_BEGIN,.packed_len = GZIP_BEGIN_LEN,.refs = 1};
static Frame greeting = {.text = "retry: 2000\n\n",.len = 13,.refs = 1};
static Frame heartbeat = {.text = ":\n\n",.len = 3,.refs = 1};
static uint64_t check(uint64_t now);
static Timer timer = {.at = NEVER, .due = check};

/* ---------- the next event ---------- */

static Frame *
bye_event(const char *reason)
{
	Buf			data = {0};
	Frame	   *frame;

	buf_printf(&data, "{\"reason\":\"%s\"}", reason);
	frame = frame_event("bye", data.data);
	buf_free(&data);
	return frame;
}

/* The end of a packed stream. */
static Frame *
end_of(const Stream *s)
{
	Frame	   *frame = mem_zero(sizeof(Frame));

	frame->packed = mem_zero(GZIP_END_LEN);
	frame->packed_len = GZIP_END_LEN;
	gzip_end(s->sum, frame->packed);
	frame->refs = 1;
	return frame;
}

static Frame *
stale_event(const Feed *feed)
{
	char		data[64] = "{\"since\":null}";
	struct tm	tm;

	if (feed->number > 0 && gmtime_r(&feed->read_at, &tm))
		strftime(data, sizeof(data), "{\"since\":\"%Y-%m-%dT%H:%M:%SZ\"}", &tm);
	return frame_event("stale", data);
}

static Frame *
overview_event(Stream *s, const Feed *feed)
{
	s->before = s->number;
	s->number = feed->number;
	s->stale = false;
	return frame_hold(feed->overview);
}

/* Returns NULL if nothing has changed. */
static Frame *
changed_event(Stream *s, const Feed *feed)
{
	uint64_t	before = s->before;

	s->before = 0;
	if (before == 0)
		return NULL;
	if (before + 1 == feed->number)
		return feed->changed ? frame_hold(feed->changed) : NULL;
	return feed_changed_since(feed, before);
}

/* Returns NULL if there is none now. */
static Frame *
next_event(Stream *s, uint64_t now)
{
	const Feed *feed = s->viewer->feed;
	Frame	   *frame;

	if (s->packed && !s->begun)
	{
		s->begun = true;
		return frame_hold(&beginning);
	}
	if (!s->greeted)
	{
		s->greeted = true;
		return frame_hold(&greeting);
	}
	if (s->said_bye)
	{
		s->ended = true;
		return end_of(s);
	}
	if (s->bye)
	{
		s->said_bye = true;
		return bye_event(s->bye);
	}
	frame = changed_event(s, feed);
	if (frame)
		return frame;
	if (s->number != feed->number)
		return overview_event(s, feed);
	if (feed->stale && !s->stale)
	{
		s->stale = true;
		return stale_event(feed);
	}
	if (now < s->heartbeat)
		return NULL;
	s->heartbeat = now + HEARTBEAT_MS;
	return frame_hold(&heartbeat);
}

static bool
take_event(Stream *s)
{
	uint64_t	now = now_ms();

	if (s->frame)
		return true;
	if (s->said_bye && (!s->packed || s->ended))
		return false;
	s->frame = next_event(s, now);
	s->at = 0;
	if (s->frame && s->packed)
	{
		frame_pack(s->frame);
		gzip_add(&s->sum, s->frame->sum);
	}
	if (s->frame)
		conn_deadline(s->call->request->conn, now + (s->said_bye ? BYE_MS : EVENT_MS));
	return s->frame != NULL;
}

static long
next_bytes(Request *request, char *to, size_t size)
{
	Call	   *call = request->state;
	Stream	   *s = call->state;
	size_t		n = 0;

	if (s->gone)
		return PART_CUT;
	while (n < size && take_event(s))
	{
		const char *bytes = s->packed ? s->frame->packed : s->frame->text;
		size_t		left = (s->packed ? s->frame->packed_len : s->frame->len) - s->at;
		size_t		some = left < size - n ? left : size - n;

		memcpy(to + n, bytes + s->at, some);
		n += some;
		s->at += some;
		if (some == left)
		{
			frame_release(s->frame);
			s->frame = NULL;
		}
	}
	if (n == 0 && s->said_bye)
		return PART_END;
	if (n == 0)
		conn_deadline(request->conn, NEVER);
	return (long) n;
}

/* ---------- begin and end ---------- */

static void
say_bye(Stream *s, const char *reason)
{
	Conn	   *conn = s->call->request->conn;
	uint64_t	by = now_ms() + BYE_MS;

	if (s->bye)
		return;
	s->bye = reason;
	if (!s->viewer)
		return;					/* it is not open: end_wait() replies */
	if (by < conn->deadline)
		conn_deadline(conn, by);
	request_more(s->call->request);
}

static void
client_left(Conn *conn)
{
	Request    *request = conn->request;
	Call	   *call = request->state;
	Stream	   *s = call->state;

	conn->on_gone = NULL;
	s->gone = true;
	request_more(request);
}

static void
open_stream(Stream *s, bool shared)
{
	Request    *request = s->call->request;
	int			bytes = SOCKET_BYTES;

	setsockopt(request->conn->source.fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
	request->conn->on_gone = client_left;
	s->gone = request->conn->left;
	s->viewer = feed_join(s->call->person, shared);
	s->heartbeat = now_ms() + HEARTBEAT_MS;
	timer_by(&timer, s->heartbeat);
	reply_header(request, "X-Accel-Buffering", "no");	/* of nginx */
	reply_header(request, "Vary", "Accept-Encoding");
	s->packed = gzip_is_taken(request);
	if (s->packed)
		reply_header(request, "Content-Encoding", "gzip");
	request_stream(request, EVENTS_TYPE, next_bytes);
}

/* Replies to a stream that has waited. */
static void
end_wait(Stream *s, const char *kind, const PgError *error)
{
	s->asks = false;
	s->refused = error || s->bye;
	if (error)
		problem_server(s->call->request, error);
	else if (s->bye)
		problem_reply(s->call->request, ending ? 503 : 401, ending ? "jobq-web is about to end" : "sign in first");
	else
		open_stream(s, strcmp(kind, "all") == 0);
}

/* Finds a stream of the person that waits, the one that asks or any; NULL: none. */
static Stream *
waiting(const Person *person, bool asks)
{
	Stream	   *s = streams;

	while (s && (s->viewer || s->refused || s->call->person != person || (asks && !s->asks)))
		s = s->next;
	return s;
}

static void
kind_known(Call *call, const PgError *error)
{
	const Person *person = call->person;
	const char *kind = call->rows > 0 ? call->items.data : "";
	Stream	   *s;

	while ((s = waiting(person, false)) != NULL)
		end_wait(s, kind, error);
}

static void
ask(Stream *s)
{
	s->asks = true;
	s->call->finished = kind_known;
	call_run_sql(s->call, overview_kind, true);
	if (s->call->work)
		return;
	s->asks = false;			/* the pool has no place, and has replied */
	s->refused = true;
}

static void
free_stream(Call *call)
{
	Stream	   *s = call->state;
	Stream	  **place = &streams;
	Stream	   *heir;

	while (*place != s)
		place = &(*place)->next;
	*place = s->next;
	nstreams--;
	while (s->asks && !waiting(call->person, true) && (heir = waiting(call->person, false)) != NULL)
		ask(heir);
	frame_release(s->frame);
	if (s->viewer)
		feed_leave(s->viewer);
	free(s);
}

static void
add_stream(Call *call)
{
	Stream	   *s = mem_zero(sizeof(Stream));
	const Viewer *viewer = feed_viewer_of(call->person);
	bool		asked = waiting(call->person, true) != NULL;

	s->call = call;
	s->session = call->session;
	s->heartbeat = NEVER;
	s->next = streams;
	streams = s;
	nstreams++;
	call->state = s;
	call->free_state = free_stream;
	if (viewer)
		open_stream(s, viewer->feed->shared);
	else if (!asked)
		ask(s);
}

void
stream_get(Call *call)
{
	if (strcmp(call->request->method, "GET") != 0)
	{
		reply_header(call->request, "Allow", "GET");
		problem_reply(call->request, 405, "a stream has no head alone");
	}
	else if (ending || nstreams >= MAX_STREAMS)
		problem_reply(call->request, 503, ending ? "jobq-web is about to end" : "there are 600 streams already");
	else
		add_stream(call);
}

void
stream_session_ended(const Session *session, const char *reason)
{
	Stream	   *s;

	for (s = streams; s; s = s->next)
	{
		if (s->session != session)
			continue;
		s->session = NULL;
		say_bye(s, reason);
	}
}

void
streams_end(void)
{
	Stream	   *s;

	ending = true;
	for (s = streams; s; s = s->next)
		say_bye(s, "shutdown");
}

/* ---------- news ---------- */

static void
feed_changed(Feed *feed)
{
	Stream	   *s;

	for (s = streams; s; s = s->next)
	{
		if (s->viewer && s->viewer->feed == feed)
			request_more(s->call->request);
	}
}

static void
viewer_ended(Viewer *viewer)
{
	Stream	   *s;

	for (s = streams; s; s = s->next)
	{
		if (s->viewer == viewer)
			say_bye(s, viewer->ended);
	}
}

/* Wakes streams whose heartbeat is due. */
static uint64_t
check(uint64_t now)
{
	uint64_t	next = NEVER;
	Stream	   *s;

	for (s = streams; s; s = s->next)
	{
		if (s->heartbeat <= now)
			request_more(s->call->request);
		else if (s->heartbeat < next)
			next = s->heartbeat;
	}
	return !streams ? NEVER : next < now + SECOND ? next : now + SECOND;
}

void
streams_open(void)
{
	feeds_open(feed_changed, viewer_ended);
	loop_timer(&timer);
}
