/*
 * recent_ends.c
 *	  Results of the last jobs that were not kept, for jobq.wait_for.
 *
 * A job whose type keeps nothing leaves no row, and may have ended before a
 * session waits for it.  The transaction that settles the job notes its end.
 * Before it commits, the notes go to the database's ring in shared memory with
 * its xid, so that a session that finds no row finds the note.  The ring
 * forgets the oldest.  Like all callbacks of jobq this takes a spinlock only
 * and can't fail.
 */
#include "jobq.h"

#include "access/transam.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "storage/procarray.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "settle/recent_ends.h"

static JobqDb *noted_db = NULL;
static RecentEnd *notes = NULL;	/* of more than the ring holds, the last */
static SubTransactionId *note_subids = NULL;
static uint32 nnotes = 0;
static uint32 first_written = 0;	/* in the ring, while we commit */
static uint32 nwritten = 0;

/*
 * Writes the notes before any session can see that the transaction has
 * committed.
 */
static void
write_notes(JobqDb *db, TransactionId xid)
{
	uint32		first = nnotes > JOBQ_RECENT_ENDS ? nnotes - JOBQ_RECENT_ENDS : 0;

	SpinLockAcquire(&db->mutex);
	first_written = db->recent_ends.count;
	for (uint32 i = first; i < nnotes; i++)
	{
		if (notes[i % JOBQ_RECENT_ENDS].type_id == 0)
			continue;
		notes[i % JOBQ_RECENT_ENDS].xid = xid;
		db->recent_ends.ends[db->recent_ends.count++ % JOBQ_RECENT_ENDS] = notes[i % JOBQ_RECENT_ENDS];
	}
	nwritten = db->recent_ends.count - first_written;
	SpinLockRelease(&db->mutex);
}

/*
 * Validates, or voids after an abort, our notes that other sessions have not
 * overwritten.
 */
static void
settle_notes(JobqDb *db, bool committed)
{
	SpinLockAcquire(&db->mutex);
	for (uint32 i = first_written; i != first_written + nwritten; i++)
	{
		RecentEnd *e = &db->recent_ends.ends[i % JOBQ_RECENT_ENDS];

		if (db->recent_ends.count - i > JOBQ_RECENT_ENDS)
			continue;
		e->xid = InvalidTransactionId;
		if (!committed)
			memset(&e->id, 0, sizeof(e->id));
	}
	SpinLockRelease(&db->mutex);
	nwritten = 0;
}

static void
ending_xact_callback(XactEvent event, void *arg)
{
	if (nnotes == 0)
		return;
	if (event == XACT_EVENT_PRE_COMMIT && noted_db->dboid == MyDatabaseId)
		write_notes(noted_db, GetTopTransactionIdIfAny());
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE)
		return;
	if (nwritten > 0)
		settle_notes(noted_db, event == XACT_EVENT_COMMIT);
	nnotes = 0;
}

/*
 * Drops the notes of an aborted subtransaction and of those that began later:
 * ids rise.
 */
static void
ending_subxact_callback(SubXactEvent event, SubTransactionId subid, SubTransactionId parent, void *arg)
{
	if (event != SUBXACT_EVENT_ABORT_SUB)
		return;
	for (uint32 i = 0; i < Min(nnotes, JOBQ_RECENT_ENDS); i++)
	{
		if (note_subids[i] >= subid)
			notes[i].type_id = 0;
	}
}

/*
 * Copies a text; one that is too long becomes a value that matches no other.
 */
static void
note_text(char *to, Size size, Job *job, int att)
{
	text	   *value = JOB_NULL(job, att) ? NULL : DatumGetTextPP(JOB_ATT(job, att));

	to[0] = '\0';
	if (value != NULL && (Size) VARSIZE_ANY_EXHDR(value) >= size)
		strlcpy(to, "\001", size);
	else if (value != NULL)
		text_to_cstring_buffer(value, to, size);
}

void
remember_end(Job *job, JobStatus status)
{
	RecentEnd *note;

	noted_db = my_db();
	if (noted_db == NULL)
		return;
	if (notes == NULL)
	{
		note_subids = MemoryContextAlloc(TopMemoryContext, JOBQ_RECENT_ENDS * sizeof(SubTransactionId));
		notes = MemoryContextAlloc(TopMemoryContext, JOBQ_RECENT_ENDS * sizeof(RecentEnd));
		RegisterXactCallback(ending_xact_callback, NULL);
		RegisterSubXactCallback(ending_subxact_callback, NULL);
	}
	note_subids[nnotes % JOBQ_RECENT_ENDS] = GetCurrentSubTransactionId();
	note = &notes[nnotes++ % JOBQ_RECENT_ENDS];
	note->id = *JOB_ID(job);
	note->type_id = JOB_INT(job, Q_type_id);
	note->status = (int) status;
	note_text(note->tenant, sizeof(note->tenant), job, Q_tenant);
	note_text(note->enqueued_by, sizeof(note->enqueued_by), job, Q_enqueued_by);
}

static bool
find_ending(JobqDb *db, const pg_uuid_t *id, RecentEnd *ending)
{
	bool		found = false;

	SpinLockAcquire(&db->mutex);
	for (uint32 i = 1; i <= Min(db->recent_ends.count, JOBQ_RECENT_ENDS) && !found; i++)
	{
		/* the newest first */
		RecentEnd *e = &db->recent_ends.ends[(db->recent_ends.count - i) % JOBQ_RECENT_ENDS];

		found = memcmp(&e->id, id, sizeof(pg_uuid_t)) == 0;
		if (found)
			*ending = *e;
	}
	SpinLockRelease(&db->mutex);
	return found;
}

/*
 * Finds a note.  One with an xid is of a transaction that commits now: it
 * counts if others see that commit.
 */
bool
recall_end(JobqDb *db, const pg_uuid_t *id, RecentEnd *ending)
{
	return db != NULL && find_ending(db, id, ending) &&
		(!TransactionIdIsValid(ending->xid) ||
		 (!TransactionIdIsInProgress(ending->xid) && TransactionIdDidCommit(ending->xid)));
}
