/*
 * person.h
 *	  Persons: a role of PostgreSQL with the password that was given for it.
 *
 * Requests with the same database, role and password share a person and so
 * its connections, whether they come with a session or with Basic.  A person
 * is unproven until PostgreSQL has let it in, and refused once PostgreSQL no
 * longer does; a refused one is never found again.
 */
#ifndef JOBQ_WEB_PERSON_H
#define JOBQ_WEB_PERSON_H

#include <stdbool.h>
#include <stdint.h>

#define MAX_PERSONS			1200
#define MAX_ROLE			63	/* the server would cut off the rest */
#define CHECK_AGAIN_MS		(5 * 60 * SECOND)	/* a connection is used so long */

typedef enum Verdict
{
	VERDICT_NONE,				/* the server could not be asked */
	VERDICT_LET_IN,
	VERDICT_REFUSED
} Verdict;

/* The requests that may come at once; it fills up with 50 a second. */
typedef struct Allowance
{
	double		left;
	uint64_t	at;
} Allowance;

typedef struct Person Person;
struct Person
{
	char	   *database;		/* NULL: that of dsn */
	char	   *role;			/* NULL: that of dsn */
	char	   *password;		/* secret.h; NULL: from dsn or the passfile */
	char	   *user;			/* named by a proxy: jobq.web_user; NULL: none */
	bool		proven;
	bool		refused;
	uint64_t	let_in;			/* by the server, the last time */
	int			refs;
	int			links;			/* open connections to the server */
	uint64_t	used;
	uint64_t	full_until;		/* the server had no further connection for it */
	uint64_t	looked;			/* claim.c: the last notification without a job for it */
	Allowance	allowance;		/* of its sessions, or of a proxy's user */
	void		(*on_verdict) (Person *person, Verdict verdict);	/* called once */
	int			attempt;		/* of throttle.h, for on_verdict */
	Person	   *next;
};

/*
 * Finds the person or adds it; takes a reference.  NULL: too many persons.  A
 * password of NULL means the passfile.
 */
extern Person *person_of(const char *database, const char *role, const char *password, const char *user);
extern void person_hold(Person *person);
extern void person_release(Person *person);
/* A connection for the person was opened, or was not. */
extern void person_verdict(Person *person, Verdict verdict);
extern Allowance allowance_full(uint64_t now);
/* Takes one; false: there is none. */
extern bool allowance_take(Allowance *allowance, uint64_t now);
/* Forgets persons that nothing uses any more. */
extern void persons_expire(uint64_t now);

#endif
