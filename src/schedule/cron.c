/*
 * cron.c
 *	  The ticks of cron expressions.
 *
 * next_local() walks the calendar of local times: years, months, then days of a
 * month and the time of day as bitmaps.  It looks at the months of a year once for
 * each kind of year, of which there are 14.  A zone is a sequence of periods
 * with constant offset (cron_zone.h), which turns local times into instants.
 *
 * Rules of two kinds differ where the clock changes:
 *
 * - every_hour: a tick is each instant at which the clock shows a matching time.
 *	 Times in a gap have none; repeated times have two.
 *
 * - other rules: each local time has one tick, the first instant at which the
 *	 clock has reached it.  A time in a gap is reached at the gap's end, a repeated
 *	 time at its first showing.  This function of the local time never decreases, so
 *	 the first matching local time that the clock has not reached at "since" has
 *	 the next tick.  Times of a date that the zone skips as a whole have no tick.
 */
#include "schedule/cron.h"

/* No clock differs from UTC by more; changes of a clock are smaller, too. */
#define MAX_OFFSET	(2 * CRON_DAY)

/* ---------- the calendar ---------- */

static int64_t
floor_div(int64_t a, int64_t b)
{
	return a / b - (a % b < 0);
}

/*
 * Returns the days from 1970-01-01 to a date of the proleptic Gregorian
 * calendar.  Years are counted from March, in eras of 400.
 */
static int64_t
days_of_date(int64_t year, int month, int day)
{
	int64_t		y = year - (month <= 2);
	int64_t		era = floor_div(y, 400);
	int64_t		of_era = y - era * 400;
	int64_t		of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;

	return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static void
date_of_days(int64_t days, int64_t *year, int *month, int *day)
{
	int64_t		era = floor_div(days + 719468, 146097);
	int64_t		of_era = days + 719468 - era * 146097;
	int64_t		y = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
	int64_t		of_year = of_era - (365 * y + y / 4 - y / 100);
	int64_t		m = (5 * of_year + 2) / 153;

	*day = (int) (of_year - (153 * m + 2) / 5 + 1);
	*month = (int) (m < 10 ? m + 3 : m - 9);
	*year = era * 400 + y + (*month <= 2);
}

static bool
is_leap_year(int64_t year)
{
	return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

/* days: since 1970-01-01, a Thursday */
static int
weekday_of(int64_t days)
{
	return (int) (days + 4 - floor_div(days + 4, 7) * 7);
}

/* Returns the lowest bit from a position on, -1 if there is none. */
static int
next_bit(uint64_t bits, int from)
{
	bits = from > 63 ? 0 : bits >> from << from;
	return bits == 0 ? -1 : __builtin_ctzll(bits);
}

/* Returns the workday nearest to a day within its month. */
static int
near_workday(int day, int weekday, int length)
{
	if (weekday == 6)
		return day > 1 ? day - 1 : day + 2;
	if (weekday == 0)
		return day < length ? day + 1 : day - 2;
	return day;
}

/* first: the weekday of the month's first day */
static uint32_t
days_by_day_field(const CronRule *rule, int first, int length)
{
	int			day;

	switch (rule->day_kind)
	{
		case DAY_SET:
			return rule->days;
		case DAY_BEFORE_LAST:
			day = length - rule->day_arg;
			break;
		case DAY_LAST_WORKDAY:
			day = near_workday(length, (first + length - 1) % 7, length);
			break;
		default:
			day = rule->day_arg > length ? 0 : near_workday(rule->day_arg, (first + rule->day_arg - 1) % 7, length);
	}
	return day < 1 ? 0 : (uint32_t) 1 << day;
}

static uint32_t
days_by_weekday_field(const CronRule *rule, int first, int length)
{
	/* bit n of a week is day n + 1 of the month */
	uint64_t	week = (rule->weekdays >> first | rule->weekdays << (7 - first)) & 0x7f;
	uint32_t	days = (uint32_t) ((week | week << 7 | week << 14 | week << 21 | week << 28) << 1);

	if (rule->weekday_kind == WEEKDAY_LAST)
		return days & ~(((uint32_t) 1 << (length - 6)) - 1);
	if (rule->weekday_kind == WEEKDAY_NTH)
		return days & ((uint32_t) 0xfe << (7 * (rule->weekday_arg - 1)));
	return days;
}

/* Returns the days of a month on which a rule has ticks. */
static uint32_t
days_of_month(const CronRule *rule, int first, int length)
{
	uint32_t	by_day = days_by_day_field(rule, first, length);
	uint32_t	by_weekday = days_by_weekday_field(rule, first, length);
	uint32_t	existing = (uint32_t) (((uint64_t) 2 << length) - 2);

	return (rule->either_day ? by_day | by_weekday : by_day & by_weekday) & existing;
}

/*
 * Returns the first matching day from a date on within its year, counted from
 * January 1st as 0; -1 if there is none.  first: the weekday of January 1st.
 */
static int
next_day_of_year(const CronRule *rule, int first, bool is_leap, int month, int day)
{
	static const int before[] = {0, 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365};

	for (int m = next_bit(rule->months, month); m >= 0; m = next_bit(rule->months, m + 1))
	{
		int			start = before[m] + (is_leap && m > 2);
		int			length = before[m + 1] - before[m] + (is_leap && m == 2);
		int			found = next_bit(days_of_month(rule, (first + start) % 7, length), m == month ? day : 1);

		if (found >= 0)
			return start + found - 1;
	}
	return -1;
}

/* Returns the first matching time of day from a time on, -1 if there is none. */
static int
next_time(const CronRule *rule, int from)
{
	int			hour = from / 3600;
	int			minute = from / 60 % 60;
	int			second = from % 60;

	if (next_bit(rule->hours, hour) == hour)
	{
		if (next_bit(rule->minutes, minute) == minute && (second = next_bit(rule->seconds, second)) >= 0)
			return hour * 3600 + minute * 60 + second;
		minute = next_bit(rule->minutes, minute + 1);
		if (minute >= 0)
			return hour * 3600 + minute * 60 + next_bit(rule->seconds, 0);
	}
	hour = next_bit(rule->hours, hour + 1);
	return hour < 0 ? -1 : hour * 3600 + next_bit(rule->minutes, 0) * 60 + next_bit(rule->seconds, 0);
}

/*
 * Returns the first matching local time from a local time on, CRON_NEVER if
 * there is none up to the limit.
 */
static int64_t
next_local(const CronRule *rule, int64_t from, int64_t limit)
{
	int64_t		start = floor_div(from, CRON_DAY);
	int			time = next_time(rule, (int) (from - start * CRON_DAY));
	uint32_t	empty = 0;		/* kinds of years without a matching day: January 1st's weekday, leap */
	int64_t		year;
	int			month;
	int			day;

	if (time < 0)
	{
		start++;
		time = next_time(rule, 0);
	}
	date_of_days(start, &year, &month, &day);
	for (;; year++, month = day = 1)
	{
		int64_t		new_year = days_of_date(year, 1, 1);
		int			first = weekday_of(new_year);
		bool		is_leap = is_leap_year(year);
		uint32_t	kind = UINT32_C(1) << (2 * first + is_leap);
		int			found;
		int64_t		local;

		if (new_year * CRON_DAY > limit)
			return CRON_NEVER;
		if (empty & kind)
			continue;
		found = next_day_of_year(rule, first, is_leap, month, day);
		if (found >= 0)
		{
			local = (new_year + found) * CRON_DAY + (new_year + found == start ? time : next_time(rule, 0));
			return local <= limit ? local : CRON_NEVER;
		}
		if (month == 1 && day == 1)
			empty |= kind;
	}
}

/* ---------- changes of the clock ---------- */

/* Returns the next tick of a rule whose ticks follow the clock. */
static int64_t
next_shown(const CronRule *rule, const CronZone *zone, int64_t since, int64_t limit)
{
	int64_t		at = since + 1;

	while (at <= limit)
	{
		int64_t		until;
		int64_t		offset = cron_zone_offset(zone, at, &until);
		int64_t		local = next_local(rule, at + offset, limit + MAX_OFFSET);

		if (local != CRON_NEVER && local - offset < until)
			return local - offset <= limit ? local - offset : CRON_NEVER;
		if (until > limit)
			return CRON_NEVER;
		/* the clock can go back to times before "at" */
		if (until - MAX_OFFSET < at + offset)
			local = next_local(rule, until - MAX_OFFSET, limit + MAX_OFFSET);
		if (local == CRON_NEVER)
			return CRON_NEVER;
		/* skip periods in which the clock shows no matching time */
		at = local - MAX_OFFSET > until ? local - MAX_OFFSET : until;
	}
	return CRON_NEVER;
}

/* Returns the latest local time that the clock has shown up to an instant. */
static int64_t
latest_shown(const CronZone *zone, int64_t at)
{
	int64_t		latest = INT64_MIN;
	int64_t		until;

	for (int64_t t = at - MAX_OFFSET; t <= at; t = until)
	{
		int64_t		offset = cron_zone_offset(zone, t, &until);
		int64_t		last = (until <= at ? until - 1 : at) + offset;

		if (last > latest)
			latest = last;
		if (until == INT64_MAX)
			break;
	}
	return latest;
}

/*
 * Returns the first instant after "since" at which the clock has reached a local
 * time that it had not reached at "since"; CRON_NEVER if the zone skips the date
 * of this time.
 */
static int64_t
reached(const CronZone *zone, int64_t since, int64_t local)
{
	int64_t		at = local - MAX_OFFSET > since ? local - MAX_OFFSET : since;
	int64_t		shown = INT64_MIN;	/* before "at", as far as it matters */

	for (;;)
	{
		int64_t		until;
		int64_t		offset = cron_zone_offset(zone, at, &until);
		int64_t		date = floor_div(local, CRON_DAY) * CRON_DAY;

		if (at + offset > local)	/* in the gap before "at" */
			return date > shown && date + CRON_DAY <= at + offset ? CRON_NEVER : at;
		if (local - offset < until)
			return local - offset;
		if (until - 1 + offset > shown)
			shown = until - 1 + offset;
		at = until;
	}
}

/* Returns the next tick of a rule with one tick for each local time. */
static int64_t
next_once(const CronRule *rule, const CronZone *zone, int64_t since, int64_t limit)
{
	int64_t		local = latest_shown(zone, since);

	for (;;)
	{
		int64_t		tick;

		local = next_local(rule, local + 1, limit + MAX_OFFSET);
		if (local == CRON_NEVER)
			return CRON_NEVER;
		tick = reached(zone, since, local);
		if (tick != CRON_NEVER)
			return tick <= limit ? tick : CRON_NEVER;
		local = floor_div(local, CRON_DAY) * CRON_DAY + CRON_DAY - 1;
	}
}

static int64_t
next_of_rule(const CronRule *rule, int64_t origin, const CronZone *zone, int64_t since, int64_t limit)
{
	int64_t		tick = CRON_NEVER;

	if (rule->kind == CRON_CALENDAR)
		return rule->every_hour ? next_shown(rule, zone, since, limit) : next_once(rule, zone, since, limit);
	if (rule->kind == CRON_EVERY)
		tick = origin + (floor_div(since - origin, rule->interval) + 1) * rule->interval;
	return tick <= limit ? tick : CRON_NEVER;
}

/* ---------- ticks of expressions ---------- */

/* Returns the first tick after "since" and up to the limit. */
static int64_t
next_tick(const Cron *cron, const CronZone *zone, int64_t since, int64_t limit)
{
	int64_t		first = CRON_NEVER;

	for (int i = 0; i < cron->count; i++)
	{
		int64_t		tick = next_of_rule(&cron->rules[i], cron->origin, zone, since, limit);

		if (tick != CRON_NEVER)
			first = limit = tick;
	}
	return first;
}

int64_t
cron_next(const Cron *cron, const CronZone *zone, int64_t since)
{
	return next_tick(cron, zone, since, since + CRON_HORIZON);
}

int64_t
cron_last(const Cron *cron, const CronZone *zone, int64_t after, int64_t until)
{
	int64_t		low = until;
	int64_t		high = until;	/* no tick is after it */
	int64_t		last = CRON_NEVER;

	/* windows of growing width before "until", up to one with a tick */
	for (int64_t width = 1; last == CRON_NEVER; width *= 2)
	{
		if (low <= after)
			return CRON_NEVER;
		high = low;
		low = width < until - after ? until - width : after;
		last = next_tick(cron, zone, low, high);
	}
	while (last < high)
	{
		int64_t		middle = last + (high - last) / 2;
		int64_t		tick = next_tick(cron, zone, middle, high);

		if (tick == CRON_NEVER)
			high = middle;
		else
			last = tick;
	}
	return last;
}

int64_t
cron_count(const Cron *cron, const CronZone *zone, int64_t after, int64_t until, int64_t max)
{
	int64_t		count = 0;

	if (cron_is_every(cron) && after < until)
	{
		int64_t		interval = cron->rules[0].interval;

		count = floor_div(until - cron->origin, interval) - floor_div(after - cron->origin, interval);
		return count < max ? count : max;
	}
	while (count < max && (after = next_tick(cron, zone, after, until)) != CRON_NEVER)
		count++;
	return count;
}
