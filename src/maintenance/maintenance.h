/*
 * maintenance.h
 *	  The short-lived process for work that the dispatcher must not wait for.
 */
#ifndef JOBQ_MAINTENANCE_H
#define JOBQ_MAINTENANCE_H

#include "shared/shmem.h"

/* ---------- maintenance_tasks.c: what it does, and when ---------- */

typedef struct Task
{
	const char *name;
	int64		(*every) (void);	/* us between two runs, at least */
	bool		(*wanted) (JobqDb *db);	/* NULL: by the clock alone */
	void		(*run) (JobqDb *db);	/* in the process */
} Task;

/* By MaintenanceTask. */
extern const Task maintenance_tasks[MAINTENANCE_TASKS];

/* ---------- maintenance_schedule.c: when the dispatcher asks for which task ---------- */

extern void maintenance_schedule_init(MemoryContext context, JobqDb *db);
/* Asks for what is due, and starts the process. */
extern void maintenance_schedule_turn(MonoTime now);
/* Returns when something is due. */
extern MonoTime maintenance_schedule_next_timer(MonoTime now);

/* Makes the tasks of each minute due. */
extern void maintenance_soon(void);
/* Makes partitions due. */
extern void maintenance_partitions_soon(void);

/* ---------- maintenance.c: the process ---------- */

/*
 * Starts the process; false if one runs, which takes what is asked meanwhile,
 * or if none can be started now.
 */
extern bool maintenance_start(JobqDb *db);

/* Returns a task whose last run has failed, and copies its error; NULL: none has. */
extern const char *maintenance_trouble(JobqDb *db, char *error, size_t size);

/* Returns for how many seconds the process has been at one task; 0: none runs. */
extern int64 maintenance_task_seconds(JobqDb *db);

/* In the process: true if a long task is to let others go first, or to end. */
extern bool maintenance_is_awaited(JobqDb *db);

#endif
