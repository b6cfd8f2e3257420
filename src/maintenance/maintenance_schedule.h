/*
 * maintenance_schedule.h
 *	  When the dispatcher starts maintenance and chores.
 */
#ifndef JOBQ_MAINTENANCE_SCHEDULE_H
#define JOBQ_MAINTENANCE_SCHEDULE_H

#include "shared/shmem.h"

extern void upkeep_init(JobqDb *db);
extern void upkeep_turn(MonoTime now);
extern MonoTime upkeep_next_timer(void);
/* Asks for a partition that takes a history row of that time: the next turn starts maintenance. */
extern void request_partition(TimestampTz need);
/* The next turn starts the chores. */
extern void upkeep_now(void);
/* The next turn starts maintenance, which brings the names of renamed roles up to date. */
extern void upkeep_refresh_names(void);
/* Has maintenance succeeded since the last call? */
extern bool maintenance_is_done(void);

#endif
