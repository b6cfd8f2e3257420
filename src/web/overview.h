/*
 * overview.h
 *	  The overview: health, and job types with their numbers.
 */
#ifndef JOBQ_WEB_OVERVIEW_H
#define JOBQ_WEB_OVERVIEW_H

#include "route.h"

extern void overview_get(Call *call);

/* Whose overview the role gets: 'all' or 'own'; 42501: none. */
extern const char overview_kind[];

/*
 * Statements of feed.c, for both kinds.  $1 is a JSON array of roles.  Their
 * rows are ('o', the overview), for each type ('t', a hash of its counters and
 * its name as JSON), and for each role that may have it no longer ('r', role).
 */
extern const char overview_feed_all[];
extern const char overview_feed_own[];

#endif
