/*
 * cron_arguments.h
 *	  Arguments "cron" and "timezone" of SQL functions, with their errors; ticks as
 *	  timestamptz.
 */
#ifndef JOBQ_CRON_ARGUMENTS_H
#define JOBQ_CRON_ARGUMENTS_H

#include "datatype/timestamp.h"

#include "schedule/cron.h"

/*
 * Returns the parsed expression, palloc'd in its size.  Raises 22023, and 54000
 * for a text over CRON_MAX_BYTES.
 */
extern Cron *cron_argument(const char *text);

/* Returns the time zone, which is never freed.  Raises 22023. */
extern const CronZone *zone_argument(const char *name);

/* Raises 22023: the expression has no tick within 100 years. */
pg_noreturn extern void cron_without_tick(const char *text);

/* Returns a finite time in whole seconds from 1970, rounded down. */
extern int64 tick_seconds(TimestampTz time);

/* Returns infinity for CRON_NEVER and outside the range of timestamptz. */
extern TimestampTz tick_time(int64 second);

#endif
