/*
 * executor_pool.h
 *	  An executor as the dispatcher sees it; shared by executor_pool.c (handing over), executor_results.c (hearing) and worker_pool.c (starting).
 */
#ifndef JOBQ_EXECUTOR_POOL_H
#define JOBQ_EXECUTOR_POOL_H

#include "dispatch/dispatcher.h"
#include "postmaster/bgworker.h"

typedef struct Executor
{
	Slot	   *slot;			/* NULL: not one of ours */
	BackgroundWorkerHandle *handle; /* NULL: started by a former dispatcher */
	uint32		generation;		/* the slot's, when it became ours */
	RoleState  *role;
	bool		exec;
	bool		attached;
	bool		wake;			/* was handed something since executors_wake */
	int			ncells;
	int			nslow;			/* cells of jobs that are not known to be short */
	double		ahead_us;		/* run time that its cells are expected to take */
	int			weight;			/* of what it runs; counted while jobq.max_weight is on */
	int32		types[JOBQ_CELLS];
	int			weights[JOBQ_CELLS];
	float		cost_us[JOBQ_CELLS];	/* a cell's share of ahead_us */
	bool		slow[JOBQ_CELLS];
	bool		used[JOBQ_CELLS];
	bool		ended[JOBQ_CELLS];	/* its tool has ended: it counts no more */
} Executor;

/* by slot number; from executors_end on there has never been one */
extern Executor executors[JOBQ_MAX_SLOTS];
extern int	executors_end;
#define executor_number(e) ((int) ((e) - executors))

/* The executor that goes with a slot of ours. */
extern Executor *executor_of(const Slot *slot);

#define START_RETRY_US		INT64CONST(1000000)
#define MAX_RETRY_US		INT64CONST(60000000)

/* A cell is free again: its type, whose count has been lowered. */
extern TypeState *executor_vacate(Executor *e, int cell);
/* Its tool has ended; how, is being written. */
extern void executor_note_end(Executor *e, int cell);
/* It is no executor of ours any more. */
extern void executor_forget(Executor *e);
/* Takes back what it was handed and has not begun; jobs that it is to settle as cancelled only with `cancels`. */
extern void executor_take_back(Executor *e, bool cancels);
/* Forgets a job and reads it again under its key: an executor may have rewritten the row. */
extern void reread_job(const JobRef *ref);

/* May one more worker of the role be started now, or is one on its way? */
extern bool worker_may_come(RoleState *role);

extern void workers_init(MemoryContext context, JobqDb *db);

#endif
