/*
 * executor_pool.h
 *	  An executor as the dispatcher sees it; shared by executor_pool.c (handing over), executor_results.c (hearing) and worker_pool.c (starting).
 */
#ifndef JOBQ_EXECUTOR_POOL_H
#define JOBQ_EXECUTOR_POOL_H

#include "lanes/queue_scan.h"
#include "limits/type_state.h"
#include "limits/weight.h"
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
	HeldWeight	weight;			/* counted while jobq.max_weight is on */
	int32		types[JOBQ_CELLS];
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

typedef enum HandOut
{
	HANDED_OUT,
	NO_CAPACITY,				/* nobody of this role can take it now */
	LIMIT_FULL,					/* a limit of the type has no room: t->closed */
	TOO_HEAVY,					/* jobq.max_weight has no room */
	TENANT_FULL					/* its tenant runs as many as it may */
} HandOut;

extern void executors_init(MemoryContext context, JobqDb *db);
/* Finds what is in flight in the slots that a former dispatcher handed out. */
extern void executors_recover(void);
extern HandOut hand_out(TypeState *t, const JobRef *ref, const char *cancel_reason, MonoTime now);
/* A job of this type has been committed to an idle queue: who will get it may wake up. */
extern void executors_alert(int32 type_id, int linger_us);
/* Wakes everybody who was handed something since. */
extern void executors_wake(void);
/* Hears verdicts, buries dead executors; true: something changed. */
extern bool executors_collect(MonoTime now);
/* worker_pool.c: starts workers that are waited for; makes room between roles. */
extern void executors_balance(MonoTime now);
extern int	executors_running(void);
/* The smallest concurrency_per_key of those that run of a key. */
extern int	executors_per_key(uint64 key);
/* Tells the rates of the types what has started since. */
extern void executors_note_starts(void);
/* The registry has changed: counts anew what runs under each limit. */
extern void executors_recount(void);
/* The limits of tenants have changed: counts anew what runs under each. */
extern void executors_recount_tenants(QueueScan *scan);
extern MonoTime executors_next_timer(void);
/* Hand-out has stopped: takes back what nobody has begun. */
extern void executors_take_back(bool cancels);
extern void executors_dismiss(void);
extern bool executors_cancel(const pg_uuid_t *id, CancelKind kind, const char *reason);
extern bool executors_any(void);

#endif
