/*
 * link.h
 *	  Connections to PostgreSQL, opened without waiting.
 */
#ifndef JOBQ_WEB_LINK_H
#define JOBQ_WEB_LINK_H

#include <libpq-fe.h>

#include "buf.h"
#include "loop.h"
#include "person.h"

/* An error of the server, or of the connection: then sqlstate is "". */
typedef struct PgError
{
	char		sqlstate[6];
	Buf			message;
	Buf			detail;
	Buf			hint;
	int			parameter;		/* of the statement, whose value is refused;
								 * 0: none */
} PgError;

typedef struct Link Link;
struct Link
{
	Source		source;
	PGconn	   *pg;
	Person	   *person;
	bool		open;			/* settings are made */
	bool		setting_up;
	uint64_t	opened;
	uint64_t	deadline;		/* NEVER: none */
	void		(*on_open) (Link *link);
	void		(*on_lost) (Link *link, const PgError *error);	/* the owner closes the link */
	void		(*on_input) (Link *link);
	void	   *owner;			/* of the functions above */
};

/* Reads dsn; false: the log says what is wrong. */
extern bool links_open(const char *dsn);

/*
 * Begins to connect the person.  on_open or on_lost is called later, never
 * from within.
 */
extern Link *link_open(Person *person);
/* Closes and frees it; may be called by its own functions. */
extern void link_close(Link *link);
/* Sends what libpq has buffered; false: the connection is lost. */
extern bool link_flush(Link *link);
/* Calls on_lost with the connection's own error. */
extern void link_lost(Link *link);
/* Calls on_lost if its deadline has passed. */
extern void link_check(Link *link, uint64_t now);

extern void pg_error_of(PgError *error, const PGresult *result);
extern void pg_error_free(PgError *error);
/* True for an error that says the role may not sign in. */
extern bool is_refusal(const PgError *error);

#endif
