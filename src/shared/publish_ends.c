/*
 * publish_ends.c
 *	  From a committed transaction to the conductor: ended jobs that others
 *	  wait for, and new jobs that wait.
 *
 * A transaction keeps the ids of all jobs that it has ended, because a job may
 * begin to wait for one of them until the commit.  After it, when the ends are
 * visible, the ids are tested against AwaitedJobs: an enqueue that has still
 * seen the job alive has set its bit before.  All memory is allocated before
 * the commit.
 *
 * A transaction that has released all children of a job (release_children.c)
 * need not publish its end, if it has missed no edge.  An edge that its
 * snapshot does not see belongs to a transaction that was open then
 * (AwaitedJobs.open), or began to wait later (AwaitedJobs.begun).  One that
 * begins after the test at the end sees that the job has ended.
 */
#include "jobq.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "shared/publish_ends.h"
#include "shared/publish_schedules.h"

#define FIRST_SIZE		256
#define MAX_KEPT		JOBQ_ENDS	/* beyond: all edges are read */

typedef struct UnpublishedEnd
{
	JobEnd		end;
	SubTransactionId subid;		/* that ended the job */
	bool		always;			/* also if no bit is set */
	bool		done;			/* while AwaitedJobs.begun is mark */
	uint32		mark;
} UnpublishedEnd;

static UnpublishedEnd *ends = NULL;
static int	nends = 0;
static int	ends_size = 0;
static bool lost = false;		/* more than MAX_KEPT: matters if a job is awaited */
static bool look_at_all = false;
static JobqDb *my = NULL;
static JobqDb *awaits_in = NULL;	/* where this transaction counts as open */

/* ---------- the set ---------- */

static uint32
bit_of(const pg_uuid_t *id, uint32 *word)
{
	uint32		hash = hash_bytes(id->data, UUID_LEN);

	*word = (hash / 32) % JOBQ_AWAITED_WORDS;
	return (uint32) 1 << (hash % 32);
}

/* Starts the conductor when the set has enough bits to be changed. */
static void
note_added(JobqDb *db)
{
	if ((pg_atomic_fetch_add_u32(&db->awaited.added, 1) + 1) % JOBQ_AWAITED_FULL != 0)
		return;
	SpinLockAcquire(&db->mutex);
	db->schedule_news.wanted = true;
	SpinLockRelease(&db->mutex);
	wake_conductor(db);
}

void
job_mark_awaited(JobqDb *db, const pg_uuid_t *id)
{
	AwaitedJobs *set = &db->awaited;
	uint32		word;
	uint32		bit = bit_of(id, &word);

	pg_atomic_write_u32(&set->in_use, 1);
	pg_memory_barrier();
	if ((pg_atomic_fetch_or_u32(&set->words[pg_atomic_read_u32(&set->current)][word], bit) & bit) == 0)
		note_added(db);
}

void
job_await(JobqDb *db, const pg_uuid_t *id)
{
	/* awaited_jobs.c waits for all transactions with an xid */
	(void) GetCurrentTransactionId();
	if (awaits_in == NULL)
	{
		awaits_in = db;
		pg_atomic_fetch_add_u32(&db->awaited.open, 1);
		pg_atomic_fetch_add_u32(&db->awaited.begun, 1);
	}
	job_mark_awaited(db, id);
}

bool
job_is_awaited(JobqDb *db, const pg_uuid_t *id)
{
	AwaitedJobs *set = &db->awaited;
	uint32		word;
	uint32		bit;

	if (pg_atomic_read_u32(&set->complete) == 0)
		return true;
	if (pg_atomic_read_u32(&set->in_use) == 0)
		return false;
	bit = bit_of(id, &word);
	return ((pg_atomic_read_u32(&set->words[0][word]) | pg_atomic_read_u32(&set->words[1][word])) & bit) != 0;
}

bool
edges_are_visible(JobqDb *db, uint32 *mark)
{
	*mark = pg_atomic_read_u32(&db->awaited.begun);
	pg_memory_barrier();		/* what begins after the first look is missed by no later one */
	if (pg_atomic_read_u32(&db->awaited.open) != 0)
		return false;
	pg_memory_barrier();
	return true;
}

/* ---------- the open transaction ---------- */

static void
add(const pg_uuid_t *id, uint32 tenant, int status, bool always)
{
	if (my == NULL)
		my = my_db();
	if (my == NULL)
		return;
	if (nends == MAX_KEPT)
	{
		lost = true;
		look_at_all |= always;
		return;
	}
	if (ends == NULL)
	{
		ends_size = FIRST_SIZE;
		ends = MemoryContextAlloc(TopMemoryContext, sizeof(UnpublishedEnd) * ends_size);
	}
	else if (nends == ends_size)
	{
		ends_size *= 2;
		ends = repalloc(ends, sizeof(UnpublishedEnd) * ends_size);
	}
	ends[nends++] = (UnpublishedEnd) {.end = {*id, status, tenant}, .subid = GetCurrentSubTransactionId(), .always = always};
}

void
note_end_done(const pg_uuid_t *id, uint32 mark, int *place)
{
	for (int i = 0; i < nends; i++)
	{
		UnpublishedEnd *end = &ends[(*place)++ % nends];

		if (end->end.status < JOB_COMPLETED || memcmp(&end->end.id, id, UUID_LEN) != 0)
			continue;
		end->done = true;
		end->mark = mark;
		return;
	}
}

void
note_end(const pg_uuid_t *id, uint32 tenant, int status, bool is_task)
{
	add(id, tenant, status, is_task);
}

void
note_look(const pg_uuid_t *id, uint32 tenant, int what)
{
	for (int i = nends - 1; i >= 0 && i >= nends - 8; i--)
	{
		if (ends[i].end.status == what && memcmp(&ends[i].end.id, id, UUID_LEN) == 0)
			return;
	}
	add(id, tenant, what, true);
}

void
note_removal(const pg_uuid_t *id)
{
	add(id, 0, END_LOOK, false);
}

void
note_look_at_all(void)
{
	my = my_db();
	look_at_all = true;
}

void
note_unknown_edges(void)
{
	note_look_at_all();
	if (my != NULL)
		pg_atomic_write_u32(&my->awaited.complete, 0);
}

/* ---------- its end ---------- */

static bool
is_needed(const UnpublishedEnd *end)
{
	if (end->always)
		return true;
	return job_is_awaited(my, &end->end.id) && !(end->done && pg_atomic_read_u32(&my->awaited.begun) == end->mark);
}

/* Moves the ends that are to be published to the front; returns their number. */
static int
sift(void)
{
	int			n = 0;

	for (int i = 0; i < nends; i++)
	{
		if (is_needed(&ends[i]))
			ends[n++] = ends[i];
	}
	return n;
}

static void
push(EndNews *news, int n)
{
	int			room = JOBQ_ENDS - news->n;

	news->lost |= n > room;
	for (int i = 0; i < Min(n, room); i++)
		news->ends[news->n++] = ends[i].end;
}

void
ends_publish(void)
{
	bool		all = look_at_all;
	int			n;

	if (my == NULL || my->dboid != MyDatabaseId)
		return;
	pg_memory_barrier();		/* test the bits after the commit is visible */
	all |= lost && (pg_atomic_read_u32(&my->awaited.in_use) != 0 || pg_atomic_read_u32(&my->awaited.complete) == 0);
	n = sift();
	if (n == 0 && !all)
		return;
	SpinLockAcquire(&my->mutex);
	my->schedule_news.wanted = true;
	my->ends.lost |= all;
	push(&my->ends, n);
	SpinLockRelease(&my->mutex);
	wake_conductor(my);
}

void
ends_prepare(void)
{
	if (my == NULL || (nends == 0 && !look_at_all && !lost))
		return;
	SpinLockAcquire(&my->mutex);
	my->ends.prepared = true;
	SpinLockRelease(&my->mutex);
}

/* Ids of ends rise; younger savepoints are part of the one that ends. */
void
ends_abort_sub(SubTransactionId subid)
{
	while (nends > 0 && ends[nends - 1].subid >= subid)
		nends--;
}

void
ends_forget(void)
{
	if (awaits_in != NULL)
		pg_atomic_fetch_sub_u32(&awaits_in->awaited.open, 1);
	awaits_in = NULL;
	nends = 0;
	lost = look_at_all = false;
	my = NULL;
	if (ends_size > MAX_KEPT / 2)
	{
		pfree(ends);
		ends = NULL;
		ends_size = 0;
	}
}

void
ends_prepared_ended(JobqDb *db)
{
	bool		wake;

	/* its edges were in no snapshot before, and it was not open */
	pg_atomic_fetch_add_u32(&db->awaited.begun, 1);
	SpinLockAcquire(&db->mutex);
	wake = db->ends.prepared;
	if (wake)
		db->ends.lost = db->schedule_news.wanted = true;
	SpinLockRelease(&db->mutex);
	if (wake)
		wake_conductor(db);
}
