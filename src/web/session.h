/*
 * session.h
 *	  Sessions of browsers: a cookie for a person that has signed in.
 */
#ifndef JOBQ_WEB_SESSION_H
#define JOBQ_WEB_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "person.h"
#include "secret.h"

#define SESSION_COOKIE		"__Host-jobq"
#define SESSION_IDLE_MS		(30 * 60 * SECOND)
#define SESSION_MAX_MS		(12 * 3600 * SECOND)
#define MAX_SESSIONS		1024

typedef struct Session
{
	char		token[TOKEN_LENGTH + 1];
	char		csrf[TOKEN_LENGTH + 1];
	Person	   *person;			/* NULL: the entry is free */
	uint64_t	began;
	uint64_t	used;
} Session;

/* Begins a session of a person that is let in; NULL: there are too many. */
extern Session *session_begin(Person *person);
/* Returns the live session of a token and marks it as used; NULL: none. */
extern Session *session_of(const char *token, uint64_t now);
/* reason: a word for the streams of the session. */
extern void session_end(Session *session, const char *reason);
/* Calls f before each end of a session. */
extern void sessions_open(void (*f) (const Session *session, const char *reason));

#endif
