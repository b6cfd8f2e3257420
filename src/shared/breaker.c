/*
 * breaker.c
 *	  The breakers of job types, in shared memory: they outlive the dispatcher,
 *	  not the server.
 *
 * A type has an entry from its first failure until its next success, under
 * Breakers.mutex.  When all entries are taken, the closed one with the fewest
 * failures is reused, and the count of its type restarts at zero.  While all
 * are open, other types are not paused.
 */
#include "jobq.h"

#include "miscadmin.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "shared/breaker.h"

#define SAME_JOB(a, b)	(memcmp(a, b, sizeof(pg_uuid_t)) == 0)

/* ---------- entries; the mutex is held ---------- */

static Breaker *
find_entry(JobqDb *db, int32 type_id)
{
	for (int i = 0; i < db->breakers.ntypes; i++)
	{
		if (db->breakers.types[i].type_id == type_id)
			return &db->breakers.types[i];
	}
	return NULL;
}

static void
free_entry(JobqDb *db, Breaker *b)
{
	*b = db->breakers.types[--db->breakers.ntypes];
}

/* Returns an entry that may be reused; NULL: all are open. */
static Breaker *
spare_entry(JobqDb *db)
{
	Breaker    *spare = NULL;

	if (db->breakers.ntypes < JOBQ_BREAKERS)
		return &db->breakers.types[db->breakers.ntypes++];
	for (int i = 0; i < db->breakers.ntypes; i++)
	{
		Breaker    *b = &db->breakers.types[i];

		if (b->state == BREAKER_CLOSED && (spare == NULL || b->failures < spare->failures))
			spare = b;
	}
	return spare;
}

static Breaker *
make_entry(JobqDb *db, const BreakerNote *note)
{
	Breaker    *b = find_entry(db, note->type_id);

	if (b == NULL && (b = spare_entry(db)) != NULL)
	{
		memset(b, 0, sizeof(*b));
		b->type_id = note->type_id;
		b->resumed_at = note->resumed_at;
	}
	return b;
}

/* ---------- how attempts end ---------- */

/* Opens a breaker, also one that was half-open. */
static BreakerNews
open_entry(Breaker *b, const BreakerNote *note)
{
	b->state = BREAKER_OPEN;
	b->opened_at = mono_now();
	b->resumed_at = note->resumed_at;
	return BREAKER_OPENED;
}

/*
 * Counts a failure.  An attempt that began before the breaker opened has no
 * effect.
 */
static BreakerNews
note_failure(JobqDb *db, const BreakerNote *note, const pg_uuid_t *id, int *failures)
{
	Breaker    *b = make_entry(db, note);

	if (b == NULL)
		return BREAKER_NO_NEWS;
	*failures = ++b->failures;
	if (b->state == BREAKER_CLOSED ? b->failures >= note->limit :
		b->state == BREAKER_PROBING && SAME_JOB(&b->probe, id))
		return open_entry(b, note);
	return BREAKER_NO_NEWS;
}

static BreakerNews
note_other_end(JobqDb *db, const BreakerNote *note, const pg_uuid_t *id)
{
	Breaker    *b = find_entry(db, note->type_id);
	bool		probed = b != NULL && b->state == BREAKER_PROBING && SAME_JOB(&b->probe, id);

	if (b == NULL || (b->state != BREAKER_CLOSED && !probed))
		return BREAKER_NO_NEWS;
	if (note->succeeded)
	{
		free_entry(db, b);
		return probed ? BREAKER_HAS_CLOSED : BREAKER_NO_NEWS;
	}
	if (probed)
		b->state = BREAKER_OPEN;
	return BREAKER_NO_NEWS;
}

BreakerNews
breaker_apply_note(const BreakerNote *note, const pg_uuid_t *id, int *failures)
{
	JobqDb	   *db = my_db();
	BreakerNews news;

	*failures = 0;
	if (db == NULL || (!note->failed && db->breakers.ntypes == 0))
		return BREAKER_NO_NEWS;
	SpinLockAcquire(&db->breakers.mutex);
	news = note->failed ? note_failure(db, note, id, failures) : note_other_end(db, note, id);
	SpinLockRelease(&db->breakers.mutex);
	return news;
}

/*
 * Keeps a change for maintenance.  Without room the oldest one
 * has no event.
 */
static void
keep_change(JobqDb *db, const BreakerChange *change)
{
	SpinLockAcquire(&db->breakers.mutex);
	if (db->breakers.nchanges == JOBQ_BREAKER_CHANGES)
	{
		db->breakers.nchanges--;
		memmove(db->breakers.changes, db->breakers.changes + 1, sizeof(BreakerChange) * db->breakers.nchanges);
	}
	db->breakers.changes[db->breakers.nchanges++] = *change;
	SpinLockRelease(&db->breakers.mutex);
}

void
breaker_apply_client_note(const BreakerNote *note, const pg_uuid_t *id)
{
	BreakerChange change = {note->type_id, *id, .pause_us = note->pause_us};

	change.news = breaker_apply_note(note, id, &change.failures);
	if (change.news == BREAKER_NO_NEWS)
		return;
	change.at = GetCurrentTimestamp();
	keep_change(my_db(), &change);
}

bool
breakers_have_changes(JobqDb *db)
{
	return db->breakers.nchanges > 0;
}

int
breakers_take_changes(JobqDb *db, BreakerChange *changes)
{
	int			n;

	SpinLockAcquire(&db->breakers.mutex);
	n = db->breakers.nchanges;
	memcpy(changes, db->breakers.changes, sizeof(BreakerChange) * n);
	db->breakers.nchanges = 0;
	SpinLockRelease(&db->breakers.mutex);
	return n;
}

/* ---------- which jobs may begin ---------- */

bool
breaker_admits(int32 type_id, const pg_uuid_t *id)
{
	JobqDb	   *db = my_db();
	Breaker    *b;
	bool		admits;

	if (db == NULL || db->breakers.ntypes == 0)
		return true;
	SpinLockAcquire(&db->breakers.mutex);
	b = find_entry(db, type_id);
	admits = b == NULL || b->state == BREAKER_CLOSED || (b->state == BREAKER_PROBING && SAME_JOB(&b->probe, id));
	SpinLockRelease(&db->breakers.mutex);
	return admits;
}

void
breaker_read(JobqDb *db, int32 type_id, TimestampTz resumed_at, Breaker *copy)
{
	Breaker    *b;

	memset(copy, 0, sizeof(*copy));
	SpinLockAcquire(&db->breakers.mutex);
	b = find_entry(db, type_id);
	if (b != NULL && b->resumed_at < resumed_at)
	{
		free_entry(db, b);
		b = NULL;
	}
	if (b != NULL)
		*copy = *b;
	SpinLockRelease(&db->breakers.mutex);
}

void
breaker_close(JobqDb *db, int32 type_id)
{
	Breaker    *b;

	if (db->breakers.ntypes == 0)
		return;
	SpinLockAcquire(&db->breakers.mutex);
	b = find_entry(db, type_id);
	if (b != NULL)
		free_entry(db, b);
	SpinLockRelease(&db->breakers.mutex);
}

void
breaker_begin_probe(JobqDb *db, int32 type_id, const pg_uuid_t *id)
{
	Breaker    *b;

	SpinLockAcquire(&db->breakers.mutex);
	b = find_entry(db, type_id);
	if (b != NULL && b->state == BREAKER_OPEN)
	{
		b->state = BREAKER_PROBING;
		b->probe = *id;
	}
	SpinLockRelease(&db->breakers.mutex);
}

void
breaker_end_probe(JobqDb *db, int32 type_id, const pg_uuid_t *id)
{
	Breaker    *b;

	SpinLockAcquire(&db->breakers.mutex);
	b = find_entry(db, type_id);
	if (b != NULL && b->state == BREAKER_PROBING && SAME_JOB(&b->probe, id))
		b->state = BREAKER_OPEN;
	SpinLockRelease(&db->breakers.mutex);
}

void
breakers_forget(JobqDb *db)
{
	SpinLockAcquire(&db->breakers.mutex);
	db->breakers.ntypes = 0;
	db->breakers.nchanges = 0;
	SpinLockRelease(&db->breakers.mutex);
}

int
breakers_open(JobqDb *db, Breaker *copies)
{
	int			n = 0;

	if (db->breakers.ntypes == 0)
		return 0;
	SpinLockAcquire(&db->breakers.mutex);
	for (int i = 0; i < db->breakers.ntypes; i++)
	{
		if (db->breakers.types[i].state != BREAKER_CLOSED)
			copies[n++] = db->breakers.types[i];
	}
	SpinLockRelease(&db->breakers.mutex);
	return n;
}
