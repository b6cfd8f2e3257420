/*
 * stat_changes.h
 *	  Statistics of the open transaction, counted when it commits.
 *
 * Whatever changes a job calls one of these functions in its transaction.  An
 * abort, also of a subtransaction, drops its part; PREPARE keeps it in shared
 * memory until COMMIT PREPARED.  All memory is allocated here, so that the
 * commit cannot fail.
 */
#ifndef JOBQ_STAT_CHANGES_H
#define JOBQ_STAT_CHANGES_H

#include "access/xact.h"
#include "shared/stat_store.h"

/* Changes of one type's counters by one subtransaction. */
typedef struct StatChanges
{
	StatEntry  *entry;
	int32		type_id;
	SubTransactionId subid;
	bool		reset;			/* first */
	uint64		touched;		/* a bit for each n that is set */
	TimestampTz completed;		/* the last one; 0: none */
	TimestampTz failed;
	int64		n[STAT_COUNTERS];
} StatChanges;

/*
 * Returns the changes of a type in this subtransaction, for stat_add(); NULL:
 * there is no shared memory.
 */
extern StatChanges *stat_changes(int32 type_id);

static inline void
stat_add(StatChanges *changes, int counter, int64 n)
{
	uint64		bit = UINT64CONST(1) << counter;

	if ((changes->touched & bit) == 0)
		changes->n[counter] = 0;
	changes->touched |= bit;
	changes->n[counter] += n;
}

/* Counts a row of the queue that was removed, or has another status. */
extern void stat_row_removed(int32 type_id, JobStatus status);
extern void stat_row_moved(int32 type_id, JobStatus from, JobStatus to);
/* The same for a row that may have another type, too. */
extern void stat_row_changed(int32 old_type, JobStatus from, int32 type_id, JobStatus to);
/* Counts dead letters, or their removal (n < 0). */
extern void stat_dead_letters(int32 type_id, int n);
/* Counts a job that has come into the queue, and its row. */
extern void stat_enqueued(int32 type_id, JobStatus status);
/* Count the start of an attempt that was due at that time. */
extern void stat_add_start(StatChanges *changes, TimestampTz due, TimestampTz started_at);
extern void stat_started(int32 type_id, TimestampTz due, TimestampTz started_at);
/* Counts an alert about a job of the type. */
extern void stat_alert(int32 type_id, bool high);
/*
 * Notes a TRUNCATE or an update of the extension: the commit has all rows
 * counted anew.
 */
extern void stat_recount(void);
/*
 * True after stat_recount() in this transaction: its rollback would undo what
 * a count of it rests on.
 */
extern bool stat_recount_due(void);

/*
 * Notes a reset of a type's counters of events, NULL: of all types and of the
 * database.  The commit does it, and then adds the transaction's own changes.
 */
extern void stat_reset_at_commit(StatEntry *entry);

/* To be called by the callbacks of publish_jobs.c. */
extern void stat_at_end(XactEvent event);
extern void stat_at_sub_end(SubXactEvent event, SubTransactionId subid, SubTransactionId parent);
/*
 * Notes a prepared transaction whose changes of rows are not in shared memory:
 * its end has the rows counted anew.  JobqDb.mutex is held.
 */
extern void stat_note_unknown(DbStats *stats, TransactionId xid);
/* Counts what prepared transactions did that have been committed since. */
extern void stat_prepared_ended(JobqDb *of);

/* Adds to a counter of rows; JobqDb.mutex is held. */
static inline void
stat_add_live(StatEntry *entry, int counter, int64 n)
{
	pg_atomic_write_u64(&entry->n[counter], pg_atomic_read_u64(&entry->n[counter]) + (uint64) n);
}

#endif
