/*
 * maintenance_schedule.h
 *	  When the dispatcher asks maintenance for which task.
 */
#ifndef JOBQ_MAINTENANCE_SCHEDULE_H
#define JOBQ_MAINTENANCE_SCHEDULE_H

#include "shared/shmem.h"

extern void maintenance_schedule_init(MemoryContext context, JobqDb *db);
/* Asks for what is due, and starts the process. */
extern void maintenance_schedule_turn(MonoTime now);
/* Returns when something is due. */
extern MonoTime maintenance_schedule_next_timer(MonoTime now);

/* Makes the tasks of each minute due. */
extern void maintenance_soon(void);
/* Makes partitions due. */
extern void maintenance_partitions_soon(void);

#endif
