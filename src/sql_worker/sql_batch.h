/*
 * sql_batch.h
 *	  A batch: the jobs that a SQL worker runs in one transaction, each an entry.
 */
#ifndef JOBQ_SQL_BATCH_H
#define JOBQ_SQL_BATCH_H

#include "settle/settle.h"
#include "shared/breaker.h"
#include "sql_worker/handler.h"

#define SQL_BATCH_JOBS	256

typedef struct Entry
{
	int			cell;
	Job			job;
	Run			run;
	CellReport	report;
	bool		settled;		/* settle() has written; true when the commit succeeds */
	JobStatus	status;
	BreakerNote breaker;
} Entry;

typedef struct Batch
{
	int			n;
	Entry		entries[SQL_BATCH_JOBS];
	Ledger		ledger;
	TimestampTz started;
	int			subxids;		/* assigned so far */
	int			most_subxids;	/* that one job has taken */
} Batch;

extern void sql_batch_init(void);
/* Returns the next cell to run, or to give back; -1: none. */
extern int	sql_batch_next(void);

/*
 * Runs that cell and those that may share its commit; reports each to the
 * dispatcher.
 */
extern void sql_batch_run(int cell);

/* ---- sql_job.c ---- */
/*
 * Runs or settles the job of a cell as the batch's next entry; context: of the
 * batch.
 */
extern void sql_entry_run(Batch *batch, int cell, MemoryContext context);
/* Writes how its attempt ended. */
extern void sql_entry_settle(Batch *batch, Entry *e);

#endif
