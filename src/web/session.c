/*
 * session.c
 *	  Sessions of browsers: a cookie for a person that has signed in.
 *
 * A session ends after 30 minutes without a request, after 12 hours, by
 * DELETE, or when PostgreSQL no longer lets the person in.  A person has 32 at
 * most: the next one ends that which was not used for longest.  Where all
 * entries are taken, a sign-in is refused, and no other person's session is
 * ended for it.  Its streams end with a session, and do not keep it from being
 * idle: only requests do.
 */
#include "session.h"

#include <string.h>

#include "buf.h"
#include "loop.h"

#define LOOK_MS (30 * SECOND)
#define SESSIONS_A_PERSON 32

static Session sessions[MAX_SESSIONS];
static void (*on_end) (const Session *session, const char *reason);

/* Returns why the session is over; NULL: it is not. */
static const char *
end_of(const Session *s, uint64_t now)
{
	if (s->person->refused)
		return "refused";
	if (now - s->used >= SESSION_IDLE_MS)
		return "idle";
	return now - s->began >= SESSION_MAX_MS ? "expired" : NULL;
}

/* Makes room for another session of the person. */
static void
end_surplus(const Person *person)
{
	Session    *oldest = NULL;
	int			n = 0;
	int			i;

	for (i = 0; i < MAX_SESSIONS; i++)
	{
		Session    *s = &sessions[i];

		if (s->person != person)
			continue;
		n++;
		if (!oldest || s->used < oldest->used)
			oldest = s;
	}
	if (n >= SESSIONS_A_PERSON)
		session_end(oldest, "replaced");
}

Session *
session_begin(Person *person)
{
	int			i;

	end_surplus(person);
	for (i = 0; i < MAX_SESSIONS; i++)
	{
		Session    *s = &sessions[i];

		if (s->person)
			continue;
		token_make(s->token);
		token_make(s->csrf);
		s->person = person;
		s->began = s->used = now_ms();
		person_hold(person);
		return s;
	}
	return NULL;
}

/* Looks at all entries, so that the time tells nothing about the token. */
Session *
session_of(const char *token, uint64_t now)
{
	Session    *found = NULL;
	int			i;

	for (i = 0; i < MAX_SESSIONS; i++)
	{
		Session    *s = &sessions[i];

		if (s->person && same_secret(token, s->token))
			found = s;
	}
	if (found && end_of(found, now))
	{
		session_end(found, end_of(found, now));
		return NULL;
	}
	if (found)
		found->used = now;
	return found;
}

void
session_end(Session *session, const char *reason)
{
	on_end(session, reason);
	person_release(session->person);
	explicit_bzero(session, sizeof(*session));
}

static uint64_t
end_old_sessions(uint64_t now)
{
	int			i;

	for (i = 0; i < MAX_SESSIONS; i++)
	{
		Session    *s = &sessions[i];

		if (s->person && end_of(s, now))
			session_end(s, end_of(s, now));
	}
	return now + LOOK_MS;
}

void
sessions_open(void (*f) (const Session *session, const char *reason))
{
	static Timer timer = {.at = 0, .due = end_old_sessions};

	on_end = f;
	loop_timer(&timer);
}
