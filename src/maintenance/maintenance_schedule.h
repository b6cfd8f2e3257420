/*
 * maintenance_schedule.h
 *	  When the dispatcher starts maintenance and housekeeping.
 */
#ifndef JOBQ_MAINTENANCE_SCHEDULE_H
#define JOBQ_MAINTENANCE_SCHEDULE_H

#include "shared/shmem.h"

extern void maintenance_schedule_init(MemoryContext context, JobqDb *db);
/* Starts the processes that are due. */
extern void maintenance_schedule_turn(MonoTime now);
/* Returns when the next one is due. */
extern MonoTime maintenance_schedule_next_timer(MonoTime now);

/*
 * Requests a partition that takes a history row of that time: the next turn
 * starts maintenance.
 */
extern void request_partition(TimestampTz need);
/* Makes the next turn start housekeeping. */
extern void maintenance_soon(void);

/*
 * Makes the next turn start maintenance, which updates the names of renamed
 * roles.
 */
extern void maintenance_refresh_names(void);
/* True if maintenance has succeeded since the last call. */
extern bool maintenance_is_done(void);
/* True if it was started once more because the run before has not succeeded. */
extern bool maintenance_fails(void);

#endif
