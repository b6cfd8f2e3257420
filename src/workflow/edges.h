/*
 * edges.h
 *	  Ends of parents: what they do to the jobs that wait for them.
 */
#ifndef JOBQ_EDGES_H
#define JOBQ_EDGES_H

#include "settle/ledger.h"
#include "shared/shmem.h"

#define EDGES_AT_ONCE	1000	/* of one transaction */

/* A parent whose edges are to be looked at. */
typedef struct Parent
{
	pg_uuid_t	id;
	int			status;			/* JobStatus as published, END_LOOK: not known */
	int			skip;			/* edges that stay: they come first */
	uint32		tenant;			/* a hash; 0: none, or not known */
	bool		locked;			/* out: all that is left waits for locks of children */
} Parent;

/*
 * Applies the ends of up to n parents, each once, and removes those that are
 * done from the array; returns the number of the others: their children are
 * locked, or they have more than one transaction takes.
 */
extern int	edges_apply(Parent *parents, int n);

/*
 * Calls an SQL function of runs with an array of ids; returns its first result,
 * if that is passed by value.
 */
extern Datum run_sql_for_ids(const char *sql, const pg_uuid_t *ids, int n);

/*
 * Reads the edges of parents behind *from, which it moves; marks the parents
 * as awaited, and returns those that are not in the queue.  false: there are
 * no more.  *any is set when it has found an edge.
 */
extern bool edges_read_part(JobqDb *db, pg_uuid_t *from, Parent **parents, int *n, bool *any);

#endif
