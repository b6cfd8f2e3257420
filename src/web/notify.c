/*
 * notify.c
 *	  Listens on channels of PostgreSQL, with one connection a database.
 *
 * Any role may listen on any channel and jobq's notifications have no payload,
 * so it does not matter whose connection it is: that of the person that asked
 * first.  It takes no place in the pool.  When it is lost, or its person is
 * refused, the next call opens another one for its caller; listeners look
 * themselves from time to time, so that nothing waits for a lost notification.
 *
 * LISTEN takes no parameter: the channel's name, which the server has made, is
 * quoted as an identifier.
 */
#include "notify.h"

#include <stdlib.h>
#include <string.h>

#define MAX_LISTENERS	8		/* databases */
#define MAX_CHANNELS	1000

typedef struct Channels
{
	char	   *database;
	Link	   *link;			/* NULL: none */
	char	   *names[MAX_CHANNELS];
	int			count;
	int			sent;			/* of these, LISTEN was sent */
	int			listening;		/* of these, it was answered */
} Channels;

static Channels *all[MAX_LISTENERS];
static Heard heard;

static bool
same_database(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

/* Finds the channels of a database; NULL: too many databases. */
static Channels *
channels_of(const char *database)
{
	int			i;

	for (i = 0; i < MAX_LISTENERS && all[i]; i++)
	{
		if (same_database(all[i]->database, database))
			return all[i];
	}
	if (i == MAX_LISTENERS)
		return NULL;
	all[i] = mem_zero(sizeof(Channels));
	all[i]->database = database ? mem_text(database) : NULL;
	return all[i];
}

static void
stop(Channels *c)
{
	int			i;

	if (c->link)
		link_close(c->link);
	c->link = NULL;
	for (i = 0; i < c->count; i++)
		free(c->names[i]);
	c->count = c->sent = c->listening = 0;
}

/* Sends LISTEN for the channels that were added; false: the connection is lost. */
static bool
send_listen(Channels *c)
{
	Buf			sql = {0};
	bool		sent;

	if (c->sent == c->count || c->sent > c->listening)
		return true;
	for (; c->sent < c->count; c->sent++)
	{
		char	   *name = PQescapeIdentifier(c->link->pg, c->names[c->sent], strlen(c->names[c->sent]));

		buf_printf(&sql, "LISTEN %s;", name ? name : "jobq");
		PQfreemem(name);
	}
	sent = PQsendQuery(c->link->pg, sql.data) && link_flush(c->link);
	buf_free(&sql);
	return sent;
}

static void
lost(Link *link, const PgError *error)
{
	Channels   *c = link->owner;

	log_line("the connection that listens is lost: %s", error->message.data ? error->message.data : "");
	stop(c);
	heard(c->database, NULL, true);
}

static void
opened(Link *link)
{
	if (!send_listen(link->owner))
		link_lost(link);
}

static void
take_results(Channels *c)
{
	PGresult   *result;

	while (c->link && !PQisBusy(c->link->pg))
	{
		result = PQgetResult(c->link->pg);
		if (!result)
			break;
		PQclear(result);
	}
	if (c->sent > c->listening && !PQisBusy(c->link->pg))
	{
		c->listening = c->sent;
		heard(c->database, NULL, false);
	}
}

static void
take_input(Link *link)
{
	Channels   *c = link->owner;
	PGnotify   *n;

	take_results(c);
	while (c->link == link && (n = PQnotifies(link->pg)) != NULL)
	{
		heard(c->database, n->relname, false);
		PQfreemem(n);
	}
	if (c->link == link && !send_listen(c))
		link_lost(link);
}

/* Reports connections that could not be opened in time. */
static uint64_t
check(uint64_t now)
{
	bool		some = false;
	int			i;

	for (i = 0; i < MAX_LISTENERS && all[i]; i++)
	{
		if (all[i]->link)
			link_check(all[i]->link, now);
		some |= all[i]->link != NULL;
	}
	return some ? now + SECOND : NEVER;
}

static Timer timer = {.at = NEVER, .due = check};

void
notify_open(Heard the_heard)
{
	heard = the_heard;
	loop_timer(&timer);
}

bool
notify_listen(Person *person, const char *channel)
{
	Channels   *c = channels_of(person->database);
	int			i;

	if (!c)
		return false;
	if (c->link && c->link->person->refused)
		stop(c);
	for (i = 0; i < c->count; i++)
	{
		if (strcmp(c->names[i], channel) == 0)
			break;
	}
	if (i == MAX_CHANNELS)
		return false;
	if (i == c->count)
		c->names[c->count++] = mem_text(channel);
	if (!c->link)
	{
		c->link = link_open(person);
		c->link->owner = c;
		c->link->on_open = opened;
		c->link->on_lost = lost;
		c->link->on_input = take_input;
		timer_by(&timer, now_ms() + SECOND);
	}
	else if (c->link->open && !send_listen(c))
		c->link->deadline = 0;	/* check() reports it */
	return i < c->listening;
}

void
notify_idle(const char *database)
{
	Channels   *c = channels_of(database);

	if (c)
		stop(c);
}
