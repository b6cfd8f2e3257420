/*
 * feed.h
 *	  Overviews for streams: one read for all streams that may have it.
 */
#ifndef JOBQ_WEB_FEED_H
#define JOBQ_WEB_FEED_H

#include <time.h>

#include "buf.h"
#include "frame.h"
#include "person.h"
#include "pool.h"

typedef struct Feed Feed;

/* A person with open streams of a feed. */
typedef struct Viewer Viewer;
struct Viewer
{
	Feed	   *feed;
	Person	   *person;
	int			streams;
	uint64_t	failed;			/* when a read as this person failed; 0: never */
	const char *ended;			/* why the person may have the feed no longer;
								 * NULL: it may */
	Viewer	   *next;
};

typedef struct TypeMark
{
	char	   *name;			/* as JSON */
	uint64_t	hash;			/* of its counters */
	uint64_t	seen;			/* in this read */
	uint64_t	changed;		/* the number of the overview that showed it */
	bool		gone;
} TypeMark;

struct Feed
{
	/* for streams */
	uint64_t	number;			/* of overviews so far */
	Frame	   *overview;		/* the newest; NULL: none yet */
	Frame	   *changed;		/* what differs from the one before; NULL: nothing */
	time_t		read_at;		/* the newest */
	bool		stale;

	/* feed.c */
	char	   *database;
	bool		shared;
	Viewer	   *viewers;
	Viewer	   *reader;			/* as whom it was read the last time */
	Work	   *work;			/* NULL: it is not being read */
	uint64_t	began;			/* of the read */
	uint64_t	reads;
	uint64_t	next_read;
	uint64_t	due;			/* of the next overview */
	Frame	   *reading;
	TypeMark   *types;
	int			ntypes;
	int			place;			/* in types, of the next row */
	Feed	   *next;
};

/*
 * changed: there is a new overview, or the newest one is stale.  ended: a
 * viewer's streams must end.  Neither may free a stream at once.
 */
extern void feeds_open(void (*changed) (Feed *feed), void (*ended) (Viewer *viewer));
/* The person's viewer, if it has streams that may go on; NULL: none. */
extern Viewer *feed_viewer_of(const Person *person);
/* Adds a stream of the person; shared: the person may read all. */
extern Viewer *feed_join(Person *person, bool shared);
/* Removes one. */
extern void feed_leave(Viewer *viewer);

/* Makes the event of the types that differ from an earlier overview; NULL: none does. */
extern Frame *feed_changed_since(const Feed *feed, uint64_t number);

#endif
