/*
 * executor_pool.h
 *	  An executor as the dispatcher keeps it; for the files of workers/.
 */
#ifndef JOBQ_EXECUTOR_POOL_H
#define JOBQ_EXECUTOR_POOL_H

#include "lanes/queue_scan.h"
#include "limits/type_state.h"
#include "limits/weight.h"
#include "postmaster/bgworker.h"

typedef struct Executor
{
	Slot	   *slot;			/* NULL: not an executor of this database */
	BackgroundWorkerHandle *handle; /* NULL: started by a former dispatcher */
	uint32		generation;		/* the slot's, when this process took it over */
	RoleState  *role;
	bool		exec;
	bool		attached;
	bool		wake;			/* was handed a job since executors_wake */
	int			ncells;
	int			nslow;			/* cells of jobs that are not known to be short */
	double		ahead_us;		/* run time that its cells are expected to take */
	HeldWeight	weight;			/* counted while jobq.max_weight is on */
	int32		types[JOBQ_CELLS];
	float		cost_us[JOBQ_CELLS];	/* a cell's share of ahead_us */
	bool		slow[JOBQ_CELLS];
	bool		used[JOBQ_CELLS];
	bool		ended[JOBQ_CELLS];	/* its tool has ended: the job counts no more */
} Executor;

/* by slot number; from executors_end on there has never been one */
extern Executor executors[JOBQ_MAX_SLOTS];
extern int	executors_end;
#define executor_number(e) ((int) ((e) - executors))

extern void executors_init(MemoryContext context, JobqDb *db);
/* Takes over the slots of a former dispatcher, and the jobs in them. */
extern void executors_recover(void);
/* Returns the executor of a slot of this database. */
extern Executor *executor_of(const Slot *slot);
/* Counts a job that was put into the cell. */
extern void executor_occupy(Executor *e, int cell, TypeState *t, bool slow);
/* Frees the cell; returns the type of its job, with its count lowered. */
extern TypeState *executor_vacate(Executor *e, int cell);
/* Stops counting a job: its tool has ended, its outcome is being written. */
extern void executor_note_end(Executor *e, int cell);
/* True if the start of the cell's job still has to be noted for its rates. */
extern bool executor_will_start(Executor *e, int cell);
/* Forgets an executor that has ended. */
extern void executor_forget(Executor *e);

/*
 * Wakes the worker that will get a job of this type, which has been committed
 * to an idle queue.
 */
extern void executors_wake_early(int32 type_id, int linger_us);
/* Wakes all executors that were handed a job since the last call. */
extern void executors_wake(void);
extern bool executors_any(void);
/* Returns the number of SQL workers with a job and of tools. */
extern int	executors_running(void);
/* Returns the smallest concurrency_per_key of the running jobs of the key. */
extern int	executors_per_key(uint64 key);
/* Finds a running job of the key; false: none. */
extern bool executors_key_holder(uint64 key, pg_uuid_t *id);
/* Notes for the rates of the types which jobs have started. */
extern void executors_note_starts(void);
/* Counts the running jobs of each limit again: the registry has changed. */
extern void executors_recount(void);

/*
 * Counts the running jobs of each limit of a tenant again: these limits have
 * changed.
 */
extern void executors_recount_tenants(QueueScan *scan);

#endif
