/*
 * ending.c
 *	  How the last jobs ended that were not kept, for jobq.wait_for.
 *
 * A job whose type keeps nothing leaves no row, and may have ended before anybody waits for it.  Who
 * settles it notes its end here; at commit the notes go to the database's ring in shared memory, which
 * forgets the oldest.  Like all our callbacks it takes a spinlock only and can't fail.
 */
#include "jobq.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "ending.h"

static JobqDb *noted_db = NULL;
static Ending *notes = NULL;	/* of more than the ring holds, the last */
static uint32 nnotes = 0;

static void
write_notes(JobqDb *db)
{
	uint32		first = nnotes > JOBQ_ENDINGS ? nnotes - JOBQ_ENDINGS : 0;

	SpinLockAcquire(&db->mutex);
	for (uint32 i = first; i < nnotes; i++)
		db->endings[db->nendings++ % JOBQ_ENDINGS] = notes[i % JOBQ_ENDINGS];
	SpinLockRelease(&db->mutex);
}

static void
ending_xact_callback(XactEvent event, void *arg)
{
	if (nnotes == 0)
		return;
	if (event == XACT_EVENT_COMMIT && noted_db->dboid == MyDatabaseId)
		write_notes(noted_db);
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
		nnotes = 0;
}

void
remember_ending(const pg_uuid_t *id, int32 type_id, JobStatus status)
{
	Ending	   *note;

	noted_db = my_db();
	if (noted_db == NULL)
		return;
	if (notes == NULL)
	{
		notes = MemoryContextAlloc(TopMemoryContext, JOBQ_ENDINGS * sizeof(Ending));
		RegisterXactCallback(ending_xact_callback, NULL);
	}
	note = &notes[nnotes++ % JOBQ_ENDINGS];
	note->id = *id;
	note->type_id = type_id;
	note->status = (int) status;
}

bool
recall_ending(JobqDb *db, const pg_uuid_t *id, Ending *ending)
{
	bool		found = false;

	if (db == NULL)
		return false;
	SpinLockAcquire(&db->mutex);
	for (uint32 i = 0; i < Min(db->nendings, JOBQ_ENDINGS) && !found; i++)
	{
		Ending	   *e = &db->endings[i];

		found = memcmp(&e->id, id, sizeof(pg_uuid_t)) == 0;
		if (found)
			*ending = *e;
	}
	SpinLockRelease(&db->mutex);
	return found;
}
