/*
 * breaker.h
 *	  options.breaker: so many failed attempts of a type in a row pause it, then one job probes.
 *
 *	 CLOSED		jobs start; failures in a row are counted
 *	 OPEN		none starts until opened_at + pause; from then on (half-open) one may
 *	 PROBING	that one runs: success closes the breaker, failure opens it again, any other end leaves it half-open
 *
 * The process that settles an attempt takes down how it ended, and notes that once the settlement is committed,
 * before the dispatcher reads it.  The dispatcher lets the probe start; executors ask again before they begin a
 * job, so that none starts of those that were handed out before the breaker opened.
 *
 * A type without a breaker costs the test of JobType.breaker_failures.
 */
#ifndef JOBQ_BREAKER_H
#define JOBQ_BREAKER_H

#include "settle/settle.h"
#include "shared/shmem.h"

/* How an attempt ended, until its settlement is committed. */
typedef struct BreakerNote
{
	int32		type_id;		/* 0: nothing to note */
	int			limit;			/* options.breaker of the type */
	int64		pause_us;
	TimestampTz resumed_at;
	bool		succeeded;
	bool		failed;			/* neither: it says nothing of the type */
} BreakerNote;

extern void breaker_fill_note(BreakerNote *note, const JobType *type, const Outcome *o);
extern void breaker_apply_note(const BreakerNote *note, const pg_uuid_t *id);

/* Takes down how an attempt ended that has been settled; the note was zeroed. */
static inline void
breaker_take_down(BreakerNote *note, const JobType *type, const Outcome *o)
{
	if (type != NULL && type->breaker_failures > 0)
		breaker_fill_note(note, type, o);
}

/* Notes it, after the commit. */
static inline void
breaker_note(const BreakerNote *note, const pg_uuid_t *id)
{
	if (note->type_id != 0)
		breaker_apply_note(note, id);
}

/* Writes events and log lines of the breakers that this process has opened or closed, in a transaction of its own. */
extern void breaker_tell(void);
/* True if the breaker of the type lets this job begin. */
extern bool breaker_admits(const JobType *type, const pg_uuid_t *id);

/* The state of a breaker; one that was resumed after it opened is closed. */
extern void breaker_read(JobqDb *db, int32 type_id, TimestampTz resumed_at, Breaker *copy);
extern void breaker_close(JobqDb *db, int32 type_id);
/* This job probes, if one may; it probes no longer. */
extern void breaker_begin_probe(JobqDb *db, int32 type_id, const pg_uuid_t *id);
extern void breaker_end_probe(JobqDb *db, int32 type_id, const pg_uuid_t *id);
/* Forgets all: another extension's types may have the same ids. */
extern void breakers_forget(JobqDb *db);
/* breaker_health.c: a JSON array of the open breakers, and a sentence that names them; NULL: there are none. */
extern char *breakers_health(JobqDb *db, char **message);
/* Copies the breakers that are not closed; returns how many. */
extern int	breakers_open(JobqDb *db, Breaker *copies);

#endif
