/*
 * cron_zone.h
 *	  The time zones of cron expressions, as periods of constant offset.
 */
#ifndef JOBQ_CRON_ZONE_H
#define JOBQ_CRON_ZONE_H

#include <stdint.h>

typedef struct CronZone CronZone;

/*
 * Returns the zone's offset at an instant, in seconds east of UTC, and in *until
 * the end of a period with this offset: a later instant, INT64_MAX if the offset
 * never changes again.  The next period may have the same offset.
 */
extern int64_t cron_zone_offset(const CronZone *zone, int64_t at, int64_t *until);

/*
 * Returns the zone of a name of pg_timezone_names, in any case; NULL for other
 * names, for posix/..., right/..., posixrules, Factory and localtime.
 */
extern const CronZone *cron_zone_find(const char *name);

#endif
