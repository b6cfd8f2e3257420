/*
 * maintenance_schedule.h
 *	  When the dispatcher asks maintenance for which task.
 */
#ifndef JOBQ_MAINTENANCE_SCHEDULE_H
#define JOBQ_MAINTENANCE_SCHEDULE_H

#include "shared/shmem.h"

extern void upkeep_init(MemoryContext context, JobqDb *db);
/* Asks for what is due, and starts the process. */
extern void upkeep_turn(MonoTime now);
/* Returns when something is due. */
extern MonoTime upkeep_next_timer(MonoTime now);

/* Makes the tasks of each minute due. */
extern void upkeep_now(void);
/* Makes partitions due. */
extern void upkeep_maintain_now(void);

#endif
