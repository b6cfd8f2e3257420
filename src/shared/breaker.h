/*
 * breaker.h
 *	  options.breaker: so many failed attempts of a type in a row pause it,
 *	  then one job probes.
 *
 *	 CLOSED		jobs start; failures in a row are counted
 *	 OPEN		none starts until opened_at + pause; from then on
 *				(half-open) one may
 *	 PROBING	that one runs: success closes the breaker, failure opens it
 *				again, any other outcome leaves it half-open
 *
 * The process that settles an attempt fills a note with its outcome, and
 * applies the note once the settlement is committed, before the dispatcher
 * reads it.  The dispatcher lets the probe start.  Executors check again
 * before they begin a job, so that no job starts that was handed out before
 * the breaker opened.
 *
 * A type without a breaker costs the test of JobType.breaker_failures.
 */
#ifndef JOBQ_BREAKER_H
#define JOBQ_BREAKER_H

#include "shared/shmem.h"

/* The outcome of an attempt, until its settlement is committed. */
typedef struct BreakerNote
{
	int32		type_id;		/* 0: nothing to note */
	int			limit;			/* options.breaker of the type */
	int64		pause_us;
	TimestampTz resumed_at;
	bool		succeeded;
	bool		failed;			/* neither: no effect on the breaker */
} BreakerNote;

/*
 * Counts the end of an attempt, after the commit of its settlement; *failures:
 * in a row, when the breaker opens.
 */
extern BreakerNews breaker_apply_note(const BreakerNote *note, const pg_uuid_t *id, int *failures);
/*
 * The same in the callback at COMMIT of a client: a change of the breaker is
 * kept in shared memory for maintenance, which writes its event.
 */
extern void breaker_apply_client_note(const BreakerNote *note, const pg_uuid_t *id);
/* True if such changes are kept; moves them to the array, returns how many. */
extern bool breakers_have_changes(JobqDb *db);
extern int	breakers_take_changes(JobqDb *db, BreakerChange *changes);
/* True if the breaker of the type, which has one, lets this job begin. */
extern bool breaker_admits(int32 type_id, const pg_uuid_t *id);

/*
 * Returns the state of a breaker.  A breaker is closed if its type was resumed
 * after it opened.
 */
extern void breaker_read(JobqDb *db, int32 type_id, TimestampTz resumed_at, Breaker *copy);
extern void breaker_close(JobqDb *db, int32 type_id);
/* Makes this job the probe, if one may run; ends its role as the probe. */
extern void breaker_begin_probe(JobqDb *db, int32 type_id, const pg_uuid_t *id);
extern void breaker_end_probe(JobqDb *db, int32 type_id, const pg_uuid_t *id);
/* Forgets all breakers: another extension's types may have the same ids. */
extern void breakers_forget(JobqDb *db);
/* Copies the breakers that are not closed; returns how many. */
extern int	breakers_open(JobqDb *db, Breaker *copies);

#endif
