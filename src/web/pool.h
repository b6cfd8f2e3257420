/*
 * pool.h
 *	  Transactions for requests, and the connections that run them.
 */
#ifndef JOBQ_WEB_POOL_H
#define JOBQ_WEB_POOL_H

#include "link.h"

#define MAX_LINKS			32	/* connections to PostgreSQL */
#define LINKS_A_PERSON		4
#define MAX_QUEUED			100
#define QUEUED_A_PERSON		64
#define MAX_PARAMS			32

typedef struct Work Work;

/* One statement in a transaction of its own. */
struct Work
{
	Person	   *person;
	Buf			sql;			/* from tables of the program only */
	int			nparams;
	char	   *params[MAX_PARAMS]; /* NULL: NULL */
	bool		read_only;
	bool		fresh;			/* needs a new connection: a sign-in */

	/* Called for each row; false: no more rows are wanted. */
	bool		(*on_row) (Work *work, const PGresult *result, int row);
	/* Called once at the end; error is NULL if it has committed. */
	void		(*on_done) (Work *work, const PgError *error);
	void	   *owner;			/* of the functions; NULL: the result is
								 * dropped */

	/* pool.c */
	int			step;			/* 0: its settings, 1: its statement */
	bool		full;			/* on_row wants no more */
	size_t		dropped;		/* bytes that have come since */
	bool		tried;			/* a connection was lost before its result */
	bool		answered;		/* something of the result has come */
	PgError		error;
	uint64_t	deadline;
	Work	   *next;
};

extern Work *work_new(Person *person);
/* Adds a parameter; NULL is NULL. */
extern void work_param(Work *work, const char *value);

/*
 * Runs the work, at once or when a connection is free, and frees it after
 * on_done.  false: too much is waiting; the work is freed, nothing is called.
 */
extern bool pool_run(Work *work);
/* The work's owner is gone: its functions are not called any more. */
extern void work_abandon(Work *work);

extern void pool_open(void);

#endif
