/*
 * spawn_limit.c
 *	  Counts the jobs that handlers enqueue, so that jobs that enqueue jobs cannot
 *	  run away.
 *
 * Per database and type with the option, in shared memory under JobqDb.mutex:
 * one count for each second of the last minute.  A refused enqueue is not
 * counted, one that is rolled back later is.  Types beyond JOBQ_CHILD_TYPES
 * replace the one that has enqueued nothing for the longest time.
 */
#include "jobq.h"

#include "base/clock.h"
#include "enqueue/spawn_limit.h"
#include "shared/shmem.h"

/* Returns the type's counts; mutex is held. */
static ChildCount *
count_of(JobqDb *db, int32 type_id, int64 second)
{
	ChildCount *oldest = &db->children[0];

	for (int i = 0; i < JOBQ_CHILD_TYPES; i++)
	{
		ChildCount *c = &db->children[i];

		if (c->type_id == type_id)
			return c;
		if (c->second < oldest->second)
			oldest = c;
	}
	memset(oldest, 0, sizeof(*oldest));
	oldest->type_id = type_id;
	oldest->second = second;
	return oldest;
}

/* Forgets the seconds that are over a minute ago. */
static void
advance(ChildCount *c, int64 second)
{
	if (second - c->second >= JOBQ_CHILD_SECONDS)
	{
		memset(c->counts, 0, sizeof(c->counts));
		c->sum = 0;
	}
	for (int64 s = Max(c->second + 1, second - JOBQ_CHILD_SECONDS + 1); s <= second; s++)
	{
		c->sum -= c->counts[s % JOBQ_CHILD_SECONDS];
		c->counts[s % JOBQ_CHILD_SECONDS] = 0;
	}
	c->second = Max(c->second, second);
}

static bool
count_one(JobqDb *db, const JobType *parent)
{
	int64		second = mono_now() / USECS_PER_SEC;
	ChildCount *c;
	bool		ok;

	SpinLockAcquire(&db->mutex);
	c = count_of(db, parent->id, second);
	advance(c, second);
	ok = c->sum < (uint32) parent->max_children;
	if (ok)
	{
		c->sum++;
		c->counts[c->second % JOBQ_CHILD_SECONDS]++;
	}
	SpinLockRelease(&db->mutex);
	return ok;
}

void
children_admit(const JobType *parent)
{
	JobqDb	   *db = my_db();

	if (parent->max_children == 0 || db == NULL || count_one(db, parent))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
			 errmsg("handlers of job type \"%s\" have enqueued %d jobs within a minute",
					parent->name, parent->max_children),
			 errhint("Jobs that enqueue jobs: see options.max_children_per_minute.")));
}
