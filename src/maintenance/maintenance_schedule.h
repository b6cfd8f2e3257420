/*
 * maintenance_schedule.h
 *	  When the dispatcher starts maintenance and housekeeping.
 */
#ifndef JOBQ_MAINTENANCE_SCHEDULE_H
#define JOBQ_MAINTENANCE_SCHEDULE_H

#include "shared/shmem.h"

extern void upkeep_init(MemoryContext context, JobqDb *db);
/* Starts the processes that are due. */
extern void upkeep_turn(MonoTime now);
/* Returns when the next one is due. */
extern MonoTime upkeep_next_timer(MonoTime now);

/* Makes the next turn start housekeeping. */
extern void upkeep_now(void);
/* Makes the next turn start maintenance. */
extern void upkeep_maintain_now(void);

#endif
