/*
 * maintenance_tasks.h
 *	  What maintenance does, and when.
 */
#ifndef JOBQ_MAINTENANCE_TASKS_H
#define JOBQ_MAINTENANCE_TASKS_H

#include "shared/shmem.h"

typedef struct Task
{
	const char *name;
	int64		(*every) (void);	/* us between two runs, at least */
	bool		(*wanted) (JobqDb *db);	/* NULL: by the clock alone */
	void		(*run) (JobqDb *db);	/* in the process */
} Task;

/* By MaintenanceTask. */
extern const Task maintenance_tasks[MAINTENANCE_TASKS];

#endif
