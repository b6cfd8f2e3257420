/*
 * admission.h
 *	  Applies changes of types, limits and signals to all groups that wait.
 */
#ifndef JOBQ_ADMISSION_H
#define JOBQ_ADMISSION_H

#include "shared/shmem.h"

extern void admission_init(MemoryContext context, JobqDb *db);
/* Forgets the groups that wait: their lanes are about to be forgotten. */
extern void admission_forget_lanes(void);

/*
 * Reads the registry again for all types seen so far, and retries all groups
 * that wait.
 */
extern void admission_reload(TimestampTz now);
/* Applies changed signals or rules. */
extern void admission_press(TimestampTz now);
/* Retries groups that wait for a rate: the wall clock was set. */
extern void admission_clock_was_set(TimestampTz now);

/*
 * Returns the smallest time at which a wait ends by itself (a pause, say);
 * DT_NOEND: none does.
 */
extern MonoTime admission_next_timer(MonoTime now);
extern void admission_timers(TimestampTz now);
/* Writes for health() why jobs of known types do not run; '' when all may. */
extern void admission_trouble(char *buf, int size);

#endif
