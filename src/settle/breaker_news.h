/*
 * breaker_news.h
 *	  Notes of attempts for the breakers, and events and log lines of breakers
 *	  that have opened or closed.
 */
#ifndef JOBQ_BREAKER_NEWS_H
#define JOBQ_BREAKER_NEWS_H

#include "settle/settle.h"
#include "shared/breaker.h"

extern void breaker_fill_note(BreakerNote *note, const JobType *type, const Outcome *o);

/* Keeps the end of an attempt that has been settled; the note was zeroed. */
static inline void
breaker_take_down(BreakerNote *note, const JobType *type, const Outcome *o)
{
	if (type != NULL && type->breaker_failures > 0)
		breaker_fill_note(note, type, o);
}

/*
 * Counts that end, after the commit; allocates when the breaker opens or
 * closes.
 */
extern void breaker_note(const BreakerNote *note, const pg_uuid_t *id);

/*
 * Writes events and log lines of the breakers that this process has opened or
 * closed, in a transaction of its own.
 */
extern void breaker_tell(void);
/* Writes those of breakers that clients have opened or closed. */
extern void breaker_tell_for_clients(JobqDb *db);

#endif
