/*
 * cron_zones.h
 *	  src/schedule/cron_zone.h over the time zones of the C library, for one zone at
 *	  a time.
 */
#ifndef CRON_ZONES_H
#define CRON_ZONES_H

#include <stdlib.h>
#include <time.h>

#include "schedule/cron.h"

#define HOUR	3600
/* 1960 to 2100; before and after it the offset of the end counts */
#define ZONE_FROM	INT64_C(-315619200)
#define ZONE_TO		INT64_C(4102444800)

/* A change of the offset; the first one is the offset at ZONE_FROM. */
struct Change
{
	int64_t		at;
	int64_t		offset;
};
static struct Change zone_changes[2000];
static int	zone_count;

/* Returns the local time that the C library shows at an instant. */
static int64_t
shown_at(int64_t at)
{
	time_t		t = (time_t) at;
	struct tm	tm;

	localtime_r(&t, &tm);
	return at + tm.tm_gmtoff;
}

/* Finds a change between two instants by bisection. */
static int64_t
change_between(int64_t before, int64_t after)
{
	int64_t		offset = shown_at(before) - before;

	while (after - before > 1)
	{
		int64_t		middle = before + (after - before) / 2;

		if (shown_at(middle) - middle == offset)
			before = middle;
		else
			after = middle;
	}
	return after;
}

static void
use_zone(const char *name)
{
	int64_t		offset;

	setenv("TZ", name, 1);
	tzset();
	offset = shown_at(ZONE_FROM) - ZONE_FROM;
	zone_changes[0] = (struct Change) {INT64_MIN, offset};
	zone_count = 1;
	for (int64_t at = ZONE_FROM; at < ZONE_TO; at += 12 * HOUR)
	{
		int64_t		next = at + 12 * HOUR;

		if (shown_at(next) - next == offset)
			continue;
		offset = shown_at(next) - next;
		zone_changes[zone_count++] = (struct Change) {change_between(at, next), offset};
	}
}

int64_t
cron_zone_offset(const CronZone *zone, int64_t at, int64_t *until)
{
	int			low = 0;
	int			high = zone_count;

	(void) zone;
	while (high - low > 1)
	{
		int			middle = (low + high) / 2;

		if (zone_changes[middle].at <= at)
			low = middle;
		else
			high = middle;
	}
	*until = high < zone_count ? zone_changes[high].at : INT64_MAX;
	return zone_changes[low].offset;
}

#endif
