/*
 * type_breaker.h
 *	  The breaker of a job type as the dispatcher keeps it.
 */
#ifndef JOBQ_TYPE_BREAKER_H
#define JOBQ_TYPE_BREAKER_H

#include "shared/shmem.h"

struct JobType;
struct TypeState;

/* The breaker of a type (breaker.h), as last read from shared memory. */
typedef struct TypeBreaker
{
	int			limit;			/* failures; 0: the type has none */
	int64		pause_us;
	TimestampTz resumed_at;
	BreakerState state;
	MonoTime	until;			/* OPEN: half-open from then on */
	MonoTime	look_at;		/* groups that wait for the type are retried then; 0: no timer */
	pg_uuid_t	probe;
} TypeBreaker;

/* Takes over the type's settings from its registry row. */
extern void type_breaker_load(struct TypeState *t, const struct JobType *jt);
/* True if the breaker lets no job start. */
extern bool type_breaker_blocks(const struct TypeState *t);

/*
 * Makes the job the probe of a half-open breaker; called before its hand-out.
 */
extern void type_breaker_start(struct TypeState *t, const pg_uuid_t *id);

/*
 * Notes that the job has left its executor; `ended`: its attempt is over, and
 * settled if that was due.
 */
extern void type_breaker_back(struct TypeState *t, const pg_uuid_t *id, bool ended);
extern void type_breaker_timer(struct TypeState *t, MonoTime now);

#endif
