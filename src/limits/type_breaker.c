/*
 * type_breaker.c
 *	  The breakers of job types as the dispatcher has read them.
 *
 * The state is in shared memory (breaker.h) and changes there before the
 * dispatcher reads the report of the attempt that changed it.  So the
 * dispatcher reads it whenever a job of the type comes back, and when the
 * registry is read.
 */
#include "jobq.h"

#include "limits/type_breaker.h"
#include "limits/type_state.h"
#include "registry/job_types.h"
#include "shared/breaker.h"

static void
type_breaker_look(TypeState *t)
{
	TypeBreaker *own = &t->breaker;
	Breaker		b;

	if (own->limit == 0)
		return;
	breaker_read(my_db(), t->id, own->resumed_at, &b);
	if (own->state != BREAKER_CLOSED && b.state != BREAKER_PROBING)
		own->look_at = mono_now();	/* groups that are parked are retried */
	own->state = b.state;
	own->probe = b.probe;
	own->until = b.state == BREAKER_OPEN ? b.opened_at + own->pause_us : 0;
	if (own->until > mono_now())
		own->look_at = own->until;
}

void
type_breaker_load(TypeState *t, const JobType *jt)
{
	TypeBreaker *own = &t->breaker;

	own->limit = jt->dropped ? 0 : jt->breaker_failures;
	own->pause_us = jt->breaker_pause_us;
	own->resumed_at = jt->resumed_at;
	if (own->limit > 0)
		type_breaker_look(t);
	else
	{
		breaker_close(my_db(), t->id);
		memset(own, 0, sizeof(*own));
	}
}

bool
type_breaker_blocks(const TypeState *t)
{
	return t->breaker.state == BREAKER_PROBING || (t->breaker.state == BREAKER_OPEN && t->breaker.until > mono_now());
}

/*
 * Makes the job the probe if the breaker is half-open; called just before its
 * hand-out.
 */
void
type_breaker_start(TypeState *t, const pg_uuid_t *id)
{
	if (t->breaker.state != BREAKER_OPEN)
		return;
	breaker_begin_probe(my_db(), t->id, id);
	type_breaker_look(t);
}

void
type_breaker_back(TypeState *t, const pg_uuid_t *id, bool ended)
{
	if (t->breaker.limit == 0)
		return;
	if (ended)
		breaker_end_probe(my_db(), t->id, id);
	type_breaker_look(t);
}

/* Ends a probe that is no longer known (its row was deleted, say). */
void
type_breaker_timer(TypeState *t, MonoTime now)
{
	TypeBreaker *own = &t->breaker;

	if (own->state == BREAKER_PROBING && known_lookup(known_jobs, own->probe) == NULL)
		type_breaker_back(t, &own->probe, true);
	if (own->look_at != 0 && own->look_at <= now)
		own->look_at = 0;		/* no timer of a type that waits for another reason */
}
