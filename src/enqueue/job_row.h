/*
 * job_row.h
 *	  The row of an enqueued job: columns, publication, event.  Used by
 *	  insert_job.c for new jobs and by unique_conflict.c for replaced ones.
 */
#ifndef JOBQ_JOB_ROW_H
#define JOBQ_JOB_ROW_H

#include "enqueue/enqueue_request.h"
#include "tables/event_log.h"

/* One call of enqueue, enqueue_many or enqueue_jobs, or a hook. */
typedef struct Enqueuer
{
	Table		queue;
	int32		home_id;
	Table	   *edges;			/* NULL: not opened yet */
	MemoryContext context;
	TimestampTz future;			/* scheduled_for of the last job that is not due yet */
	int64		nfuture;		/* how many before it had the same */
	EventLog	events;
} Enqueuer;

extern void row_set(Datum *values, bool *nulls, int att, Datum value);
/* The same for a pointer; NULL: the column is NULL. */
extern void row_set_pointer(Datum *values, bool *nulls, int att, const void *value);
/*
 * Sets due time, creation and position in the lane.  Jobs of one call that are
 * due at the same later moment are a microsecond apart there, which keeps their
 * order.
 */
extern void row_set_times(Enqueuer *e, Request *request, Datum *values, bool *nulls);
/* Sets the columns of after: to be called when it is known whether the job is blocked. */
extern void row_set_after(Request *request, Datum *values, bool *nulls);
/* Fills the row of a new job.  successor: it waits behind a running job of its unique key. */
extern void row_build(Enqueuer *e, Request *request, bool successor, const pg_uuid_t *id,
					  Datum *values, bool *nulls);
/* Makes the dispatcher read this row's position at the end of the transaction. */
extern void row_publish(Datum *values, bool *nulls);
/*
 * Adds the event of a new job, or of one that replaces a waiting job:
 * with the error that it loses.
 */
extern void row_add_event(Enqueuer *e, Request *request, const Datum *values, const bool *nulls,
						  bool replaces, const char *error);

#endif
