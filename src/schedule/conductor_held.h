/*
 * conductor_held.h
 *	  Work of the conductor that has failed alone: its row is locked, or it
 *	  raises an error.  It is put aside and tried again after a pause.
 */
#ifndef JOBQ_CONDUCTOR_HELD_H
#define JOBQ_CONDUCTOR_HELD_H

#include "shared/shmem.h"
#include "utils/hsearch.h"

/* The first member of an entry; the list's owner adds others. */
typedef struct Held
{
	pg_uuid_t	id;
	MonoTime	since;			/* when it is to be tried again; DT_NOEND: it is being tried */
	MonoTime	tried;
	int64		pause;			/* 0: it raised an error */
} Held;

typedef struct HeldList
{
	HTAB	   *table;
	MonoTime	rest;			/* no single try before that */
} HeldList;

/* entry: the size of an entry; context lives as long as the list. */
extern void held_init(HeldList *list, MemoryContext context, const char *name, Size entry);
extern bool held_is_empty(const HeldList *list);
/* Puts aside what has just failed; returns its entry. */
extern void *held_put(HeldList *list, const pg_uuid_t *id, bool transient);
/* True if it is put aside: news of it make it be tried soon. */
extern bool held_news(HeldList *list, const pg_uuid_t *id);
/* Removes what has been done, if it was put aside: the others are tried at once. */
extern void held_done(HeldList *list, const pg_uuid_t *id);
/* Returns the entry that is to be tried now, the one due first; NULL: none. */
extern void *held_due(HeldList *list);
/* Returns when the next one is to be tried; DT_NOEND: never. */
extern MonoTime held_next(HeldList *list);

#endif
