/*
 * queue_table.h
 *	  The rows of jobq.queue: column numbers, reading, inserting, locking.  No planned SQL touches
 *	  the queue on a hot path; rows are reached by TID or by a direct index scan.
 */
#ifndef JOBQ_QUEUE_TABLE_H
#define JOBQ_QUEUE_TABLE_H

#include "access/htup.h"
#include "nodes/execnodes.h"
#include "shared/slots.h"
#include "utils/relcache.h"
#include "utils/timestamp.h"

/* attribute numbers: src/sql/00_schema.sql */
enum
{
	Q_id = 1, Q_position, Q_scheduled_for, Q_created_at, Q_type_id, Q_rev, Q_home_id, Q_status,
	Q_attempts, Q_max_attempts, Q_runs, Q_crashes, Q_depth, Q_priority, Q_sublane, Q_successor,
	Q_payload, Q_timeout, Q_backoff, Q_unique_key, Q_unique_for, Q_concurrency_key,
	Q_keep_completed, Q_tenant, Q_parent_id, Q_workflow_id, Q_task_key, Q_metadata,
	Q_error_msg, Q_error_code, Q_error_details, Q_started_at, Q_worker, Q_node, Q_lease_token,
	Q_lease_expires_at, Q_progress, Q_progress_data, Q_enqueued_by, Q_key_hash, Q_keep_dead,
	Q_schedule_id, Q_lease, Q_cancel_requested, Q_after, Q_after_rule, Q_waiting_for, Q_after_state,
	Q_keep_until, Q_key_since
};
#define Q_NATTS Q_key_since

/* jobq.history and jobq.dead_letters */
enum
{
	H_id = 1, H_expires_at, H_scheduled_for, H_created_at, H_started_at, H_completed_at, H_type_id,
	H_status, H_attempts, H_max_attempts, H_runs, H_depth, H_priority, H_payload, H_result,
	H_timeout, H_unique_key, H_unique_until, H_concurrency_key, H_tenant, H_parent_id,
	H_workflow_id, H_task_key, H_metadata, H_error_msg, H_error_code, H_error_details, H_worker,
	H_node, H_progress, H_progress_data, H_backoff, H_unique_for, H_keep_completed, H_counted,
	H_enqueued_by, H_keep_dead, H_after, H_after_rule
};
#define H_NATTS H_after_rule

enum
{
	E_id = 1, E_ts, E_job_id, E_job_type, E_tenant, E_attempt, E_type, E_source, E_level,
	E_message, E_data
};
#define E_NATTS E_data

/*
 * error_code of a job whose worker was terminated while its handler ran.  The
 * first time costs no attempt.  The next one does while the row still has this
 * code: the row remembers it beyond the dispatcher's life.
 */
#define CODE_TERMINATED	"57P01"

/* A live job: its row, deformed.  Datums point into tuple. */
typedef struct Job
{
	ItemPointerData tid;
	HeapTuple	tuple;
	Datum		values[Q_NATTS];
	bool		nulls[Q_NATTS];
	JobStatus	status;			/* when it was read */
	JobStatus	counted;		/* in the statistics: as it was written last */
} Job;

#define JOB_ATT(job, att)	((job)->values[(att) - 1])
#define JOB_NULL(job, att)	((job)->nulls[(att) - 1])
#define JOB_ID(job)			(DatumGetUUIDP(JOB_ATT(job, Q_id)))
#define JOB_TENANT(job)		(JOB_NULL(job, Q_tenant) ? NULL : DatumGetTextPP(JOB_ATT(job, Q_tenant)))
#define JOB_INT(job, att)	(DatumGetInt32(JOB_ATT(job, att)))

/*
 * An open table of jobq's with its indexes, for writes past the executor.  No
 * triggers fire.
 */
typedef struct Table
{
	Relation	rel;
	EState	   *estate;
	ResultRelInfo *rri;
	TupleTableSlot *slot;
	BlockNumber nblocks;		/* known to exist: no process truncates while our lock is held */
	List	   *closed;			/* indexes of few rows, opened for the first one */
} Table;

extern void table_open_for_write(Table *t, Oid relid);
extern void table_close_after_write(Table *t);	/* keeps the lock, as the executor does */
extern void table_insert_row(Table *t, Datum *values, bool *nulls);
/* Returns a row for table_insert_tuples, in the current context. */
extern HeapTuple table_form_row(Table *t, Datum *values, bool *nulls);

/*
 * Inserts several rows at once: cheaper, for tables whose rows need no
 * conflict check.  Frees the tuples.
 */
extern void table_insert_tuples(Table *t, HeapTuple *tuples, int n);

/*
 * Inserts a row; false, and no row, when a unique index has the key already.
 */
extern bool table_insert_unless_conflict(Table *t, Datum *values, bool *nulls);
/* Updates the row at *tid, which becomes the new version's. */
extern void table_update_row(Table *t, ItemPointer tid, Datum *values, bool *nulls);
/* The same; these columns of the table have not changed. */
extern void table_update_columns(Table *t, ItemPointer tid, Datum *values, bool *nulls,
								 const AttrNumber *unchanged, int n);
extern void table_delete_row(Table *t, ItemPointer tid);

typedef enum LockResult
{
	LOCK_OK,
	LOCK_GONE,					/* deleted, updated, never there, or a different rev */
	LOCK_BUSY					/* another transaction holds it */
} LockResult;

/*
 * Locks the very version ref names, without waiting; fills job (palloc'd in
 * the current context).
 */
extern LockResult queue_lock(Table *queue, const JobRef *ref, Job *job);
/* Writes a locked job, whose id has not changed; job->tid is the new one. */
extern void queue_update(Table *queue, Job *job);

/*
 * Its steps, for queue_find.c: the version at tid into queue->slot; lock that;
 * copy it out.
 */
extern bool queue_fetch_version(Table *queue, ItemPointer tid);
extern TM_Result queue_lock_version(Table *queue);
extern void job_from_slot(Table *queue, Job *job);

/*
 * The checked columns of jobq.queue, jobq.history, jobq.dead_letters: see
 * table_shape.h.
 */
extern const struct Shape queue_shape;
extern const struct Shape history_shape;
extern const struct Shape dead_letters_shape;

#endif
