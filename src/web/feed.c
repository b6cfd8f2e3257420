/*
 * feed.c
 *	  Overviews for streams: one read for all streams that may have it.
 *
 * A feed is read while it has viewers.  There is one for each database that
 * all roles share that may read all tenants: one statement a second, as one of
 * its persons.  The same statement asks whether the roles of all its persons
 * may still sign in and read all, so that a lost right ends streams within a
 * second.  Any other person has a feed of its own, read every 5 s.  A read that
 * takes long makes the rhythm slower: a shared feed uses half of a connection's
 * time at most, one person's a tenth.
 *
 * PostgreSQL checks passwords when a connection is opened.  So the person of
 * the next read is one that was let in more than five minutes ago, if there is
 * one; a person whose read has failed is passed over for 15 s.  An error is
 * that person's only if it says so (28..., 42501).
 *
 *	 state		event						next state
 *	 waiting	next_read					reading
 *	 reading	the overview has come		waiting; published
 *	 reading	no connection				waiting; stale
 *	 reading	another error				waiting
 *	 any		3 s after the overview was due	stale
 */
#include "feed.h"

#include <stdlib.h>
#include <string.h>

#include "overview.h"

#define SHARED_MS		(1 * SECOND)
#define OWN_MS			(5 * SECOND)
#define SHARED_TIME		2		/* a part of the time */
#define OWN_TIME		10
#define MAX_TOOK_MS		(5 * SECOND)	/* statement_timeout: the rest was waiting */
#define RETRY_MS		(1 * SECOND)
#define LATE_MS			(3 * SECOND)
#define FAILED_MS		(15 * SECOND)
#define KEEP_GONE		100		/* overviews: more than a stream may miss */

static Feed *feeds = NULL;
static void (*changed) (Feed *feed);
static void (*ended) (Viewer *viewer);
static uint64_t check(uint64_t now);
static Timer timer = {.at = NEVER, .due = check};

/* ---------- what has changed ---------- */

/* Finds a type; rows come in the order of the read before, but for new types. */
static TypeMark *
find_type(Feed *feed, const char *name)
{
	int			i;

	for (i = 0; i < feed->ntypes; i++)
	{
		int			at = (feed->place + i) % feed->ntypes;

		if (strcmp(feed->types[at].name, name) == 0)
		{
			feed->place = at + 1;
			return &feed->types[at];
		}
	}
	feed->types = mem_grow(feed->types, (size_t) (feed->ntypes + 1) * sizeof(TypeMark));
	feed->types[feed->ntypes] = (TypeMark) {.name = mem_text(name), .gone = true};
	return &feed->types[feed->ntypes++];
}

/* A read that fails later leaves its marks for the next one. */
static void
take_type(Feed *feed, const char *text)
{
	char	   *end;
	uint64_t	hash = (uint64_t) strtoll(text, &end, 10);
	TypeMark   *type = find_type(feed, end + 1);

	if (type->gone || type->hash != hash)
		type->changed = feed->number + 1;
	type->gone = false;
	type->hash = hash;
	type->seen = feed->reads;
}

/* Marks the types that the read had not, and forgets those that are long gone. */
static void
end_types(Feed *feed)
{
	int			i;

	for (i = feed->ntypes - 1; i >= 0; i--)
	{
		TypeMark   *type = &feed->types[i];

		if (type->seen == feed->reads)
			continue;
		if (!type->gone)
			type->changed = feed->number + 1;
		type->gone = true;
		if (type->changed + KEEP_GONE < feed->number)
		{
			free(type->name);
			*type = feed->types[--feed->ntypes];
		}
	}
}

Frame *
feed_changed_since(const Feed *feed, uint64_t number)
{
	Buf			data = {0};
	Frame	   *frame = NULL;
	int			i;

	for (i = 0; i < feed->ntypes; i++)
	{
		if (feed->types[i].changed > number)
			buf_printf(&data, "%s%s", data.len > 0 ? "," : "{\"job_types\":[", feed->types[i].name);
	}
	if (data.len > 0)
	{
		buf_text(&data, "]}");
		frame = frame_event("changed", data.data);
	}
	buf_free(&data);
	return frame;
}

/* ---------- reading ---------- */

static void
end_viewer(Viewer *viewer, const char *reason)
{
	if (viewer->ended)
		return;
	viewer->ended = reason;
	ended(viewer);
}

static void
end_role(Feed *feed, const char *role)
{
	Viewer	   *v;

	for (v = feed->viewers; v; v = v->next)
	{
		if (strcmp(v->person->role, role) == 0)
			end_viewer(v, "rights");
	}
}

static bool
take_row(Work *work, const PGresult *result, int row)
{
	Feed	   *feed = work->owner;
	const char *text = PQgetvalue(result, row, 1);

	switch (*PQgetvalue(result, row, 0))
	{
		case 'o':
			frame_release(feed->reading);
			feed->reading = frame_event("overview", text);
			break;
		case 't':
			take_type(feed, text);
			break;
		default:
			end_role(feed, text);
	}
	return true;
}

static void
publish(Feed *feed)
{
	end_types(feed);
	frame_release(feed->overview);
	frame_release(feed->changed);
	feed->overview = feed->reading;
	feed->reading = NULL;
	feed->number++;
	feed->changed = feed_changed_since(feed, feed->number - 1);
	feed->read_at = time(NULL);
	feed->stale = false;
	changed(feed);
}

static void
make_stale(Feed *feed)
{
	if (feed->stale)
		return;
	feed->stale = true;
	changed(feed);
}

/* True if the server was not reached, or is about to stop. */
static bool
is_lost(const PgError *error)
{
	return error->sqlstate[0] == '\0' || strncmp(error->sqlstate, "08", 2) == 0 || strncmp(error->sqlstate, "57P", 3) == 0;
}

static void
read_failed(Feed *feed, const PgError *error)
{
	Viewer	   *reader = feed->reader;

	feed->next_read = now_ms() + RETRY_MS;
	if (is_lost(error))
		make_stale(feed);
	if (!reader)
		return;
	reader->failed = now_ms();
	if (is_refusal(error))
		end_viewer(reader, "refused");
	else if (strcmp(error->sqlstate, "42501") == 0)
		end_viewer(reader, "rights");
	if (reader->ended)
		feed->next_read = 0;	/* as another one, at once */
}

static void
read_done(Work *work, const PgError *error)
{
	Feed	   *feed = work->owner;
	uint64_t	now = now_ms();
	uint64_t	took = now - feed->began < MAX_TOOK_MS ? now - feed->began : MAX_TOOK_MS;
	uint64_t	period = feed->shared ? SHARED_MS : OWN_MS;
	uint64_t	rest = took * (feed->shared ? SHARED_TIME - 1 : OWN_TIME - 1);

	feed->work = NULL;
	if (error)
		read_failed(feed, error);
	else
	{
		feed->next_read = feed->due = took + rest > period ? now + rest : feed->began + period;
		publish(feed);
	}
	timer_by(&timer, feed->next_read);
}

/* The lower, the sooner the person reads. */
static int
rank(const Feed *feed, const Viewer *viewer, uint64_t now)
{
	if (viewer->failed != 0 && now - viewer->failed < FAILED_MS)
		return 3;
	if (now - viewer->person->let_in >= CHECK_AGAIN_MS)
		return 0;
	return viewer == feed->reader ? 1 : 2;
}

/* Chooses the person of the next read; NULL: there is none. */
static Viewer *
next_reader(const Feed *feed, uint64_t now)
{
	Viewer	   *best = NULL;
	Viewer	   *v;

	for (v = feed->viewers; v; v = v->next)
	{
		if (v->ended)
			continue;
		if (!best || rank(feed, v, now) < rank(feed, best, now) ||
			(rank(feed, v, now) == 3 && rank(feed, best, now) == 3 && v->failed < best->failed))
			best = v;
	}
	return best;
}

static void
add_roles(const Feed *feed, Work *work)
{
	Buf			roles = {0};
	const Viewer *v;

	for (v = feed->viewers; v; v = v->next)
	{
		if (v->ended)
			continue;
		buf_text(&roles, roles.len > 0 ? "," : "[");
		buf_json(&roles, v->person->role, strlen(v->person->role));
	}
	buf_text(&roles, "]");
	work_param(work, roles.data);
	buf_free(&roles);
}

static void
begin_read(Feed *feed, uint64_t now)
{
	Viewer	   *reader = next_reader(feed, now);
	Work	   *work;

	if (!reader)
	{
		feed->next_read = feed->due = NEVER;
		return;
	}
	work = work_new(reader->person);
	buf_text(&work->sql, feed->shared ? overview_feed_all : overview_feed_own);
	add_roles(feed, work);
	work->read_only = true;
	work->owner = feed;
	work->on_row = take_row;
	work->on_done = read_done;
	feed->reader = reader;
	feed->work = work;
	feed->began = now;
	feed->reads++;
	feed->place = 0;
	feed->next_read = NEVER;
	if (pool_run(work))
		return;
	feed->work = NULL;
	reader->failed = now;		/* another one may have room */
	feed->next_read = now + RETRY_MS;
}

/* Begins reads that are due; ends viewers that the server has refused elsewhere. */
static uint64_t
check(uint64_t now)
{
	uint64_t	next = feeds ? now + SECOND : NEVER;
	Feed	   *feed;
	Viewer	   *v;

	for (feed = feeds; feed; feed = feed->next)
	{
		for (v = feed->viewers; v; v = v->next)
		{
			if (v->person->refused)
				end_viewer(v, "refused");
		}
		if (!feed->work && feed->next_read <= now)
			begin_read(feed, now);
		if (feed->due != NEVER && now >= feed->due + LATE_MS)
			make_stale(feed);
		next = feed->next_read < next ? feed->next_read : next;
	}
	return next;
}

void
feeds_open(void (*on_change) (Feed *feed), void (*on_end) (Viewer *viewer))
{
	changed = on_change;
	ended = on_end;
	loop_timer(&timer);
}

/* ---------- viewers ---------- */

static bool
fits(const Feed *feed, const Person *person, bool shared)
{
	if (feed->shared != shared)
		return false;
	if (!shared)
		return feed->viewers->person == person && !feed->viewers->ended;
	return feed->database == person->database ||
		(feed->database && person->database && strcmp(feed->database, person->database) == 0);
}

static Feed *
feed_of(const Person *person, bool shared)
{
	Feed	   *feed = feeds;

	while (feed && !fits(feed, person, shared))
		feed = feed->next;
	if (feed)
		return feed;
	feed = mem_zero(sizeof(Feed));
	feed->database = person->database ? mem_text(person->database) : NULL;
	feed->shared = shared;
	feed->next = feeds;
	feeds = feed;
	return feed;
}

static Viewer *
viewer_in(const Feed *feed, const Person *person)
{
	Viewer	   *v = feed->viewers;

	while (v && (v->person != person || v->ended))
		v = v->next;
	return v;
}

Viewer *
feed_viewer_of(const Person *person)
{
	const Feed *feed;
	Viewer	   *v = NULL;

	for (feed = feeds; feed && !v; feed = feed->next)
		v = viewer_in(feed, person);
	return v;
}

Viewer *
feed_join(Person *person, bool shared)
{
	Feed	   *feed = feed_of(person, shared);
	Viewer	   *v = viewer_in(feed, person);

	if (!v)
	{
		v = mem_zero(sizeof(Viewer));
		v->feed = feed;
		v->person = person;
		person_hold(person);
		v->next = feed->viewers;
		feed->viewers = v;
	}
	v->streams++;
	/* a new feed, or one whose viewers had all been ended */
	if (!feed->work && (feed->next_read == 0 || feed->next_read == NEVER))
	{
		feed->next_read = 0;
		feed->due = now_ms();
	}
	timer_by(&timer, feed->next_read);
	return v;
}

static void
free_feed(Feed *feed)
{
	Feed	  **place = &feeds;

	while (*place != feed)
		place = &(*place)->next;
	*place = feed->next;
	if (feed->work)
		work_abandon(feed->work);
	frame_release(feed->overview);
	frame_release(feed->changed);
	frame_release(feed->reading);
	while (feed->ntypes > 0)
		free(feed->types[--feed->ntypes].name);
	free(feed->types);
	free(feed->database);
	free(feed);
}

void
feed_leave(Viewer *viewer)
{
	Feed	   *feed = viewer->feed;
	Viewer	  **place = &feed->viewers;

	if (--viewer->streams > 0)
		return;
	while (*place != viewer)
		place = &(*place)->next;
	*place = viewer->next;
	if (feed->reader == viewer)
		feed->reader = NULL;
	person_release(viewer->person);
	free(viewer);
	if (!feed->viewers)
		free_feed(feed);
}
