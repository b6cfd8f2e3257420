/*
 * cron_model.h
 *	  Cron expressions by docs/cron-expressions.md, taken literally: random
 *	  expressions, as text and, independently of the parser, as tables of
 *	  matching values.
 */
#ifndef CRON_MODEL_H
#define CRON_MODEL_H

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cron_zones.h"

static uint64_t seed = 1;

static int
below(int n)
{
	seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (int) ((seed >> 33) % (uint64_t) n);
}

/* ---------- random expressions ---------- */

/* The values that a field matches; special terms as documented. */
struct Expression
{
	char		text[400];
	bool		second[60];
	bool		minute[60];
	bool		hour[24];
	bool		day[32];
	bool		month[13];
	bool		weekday[7];
	char		special_day;	/* 'L', 'W' (LW), 'N' (15W), 0 */
	int			special_number;
	char		special_weekday;	/* 'L', '#', 0 */
	int			special_nth;
	bool		has_seconds;
	bool		star_hour;
	bool		star_day;
	bool		star_weekday;
};

static void __attribute__((format(printf, 2, 3)))
add(struct Expression *e, const char *format, ...)
{
	size_t		len = strlen(e->text);
	va_list		args;

	va_start(args, format);
	vsnprintf(e->text + len, sizeof(e->text) - len, format, args);
	va_end(args);
}

/* Adds a term to the text, and its values to the table. */
static void
random_term(struct Expression *e, bool *table, int low, int high, const char *const *names)
{
	int			a = low + below(high - low + 1);
	int			b = low + below(high - low + 1);
	int			step = 1 + below(high - low + 1);
	int			kind = below(5);

	if (kind == 0)
	{
		if (names && below(2))
			add(e, "%s", names[a - low]);
		else
			add(e, "%d", a);
		table[a] = true;
	}
	else if (kind == 1)
	{
		add(e, "%d/%d", a, step);
		for (int v = a; v <= high; v += step)
			table[v] = true;
	}
	else
	{
		int			count = 0;

		if (names && below(2))
			add(e, "%s-%s", names[a - low], names[b - low]);
		else
			add(e, "%d-%d", a, b);
		if (kind == 2)
			add(e, "/%d", step);
		for (int v = a;; v = v == high ? low : v + 1)
		{
			if (kind != 2 || count++ % step == 0)
				table[v] = true;
			if (v == b)
				break;
		}
	}
}

/* Returns true if the field begins with a star. */
static bool
random_field(struct Expression *e, bool *table, int low, int high, int stars, const char *const *names)
{
	bool		star = below(100) < stars;

	if (star)
	{
		int			step = below(3) ? 1 : 1 + below(high - low + 1);

		add(e, step == 1 ? "*" : "*/%d", step);
		for (int v = low; v <= high; v += step)
			table[v] = true;
	}
	for (int terms = star ? below(8) == 0 : 1 + (below(3) == 0); terms > 0; terms--)
	{
		if (e->text[strlen(e->text) - 1] != ' ')
			add(e, ",");
		random_term(e, table, low, high, names);
	}
	add(e, " ");
	return star;
}

static void
random_day(struct Expression *e)
{
	int			kind = below(16);

	e->special_number = kind == 1 ? below(31) : 1 + below(31);
	e->special_day = "LLWN"[kind & 3];
	if (kind == 0)
	{
		e->special_number = 0;
		add(e, below(2) ? "L " : "$ ");
	}
	else if (kind == 1)
		add(e, "L-%d ", e->special_number);
	else if (kind == 2)
		add(e, "LW ");
	else if (kind == 3)
		add(e, "%dw ", e->special_number);
	else
	{
		e->special_day = 0;
		e->star_day = random_field(e, e->day, 1, 31, 70, NULL);
	}
}

static void
random_weekday(struct Expression *e)
{
	static const char *const names[] = {"sun", "Mon", "TUE", "wed", "thu", "fri", "sat"};
	int			kind = below(16);
	int			weekday = below(8);

	e->special_nth = 1 + below(5);
	if (kind == 0)
		add(e, "%dL ", weekday);
	else if (kind == 1)
		add(e, "%d#%d ", weekday, e->special_nth);
	else
	{
		e->star_weekday = random_field(e, e->weekday, 0, 6, 70, names);
		return;
	}
	e->special_weekday = kind == 0 ? 'L' : '#';
	e->weekday[weekday % 7] = true;
}

static void
random_dates(struct Expression *e)
{
	static const char *const names[] = {"jan", "Feb", "MAR", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"};

	random_day(e);
	random_field(e, e->month, 1, 12, 85, names);
	random_weekday(e);
}

static void
random_expression(struct Expression *e)
{
	memset(e, 0, sizeof(*e));
	add(e, " ");
	e->has_seconds = below(8) == 0;
	if (e->has_seconds)
		random_field(e, e->second, 0, 59, 10, NULL);
	else
		e->second[0] = true;
	random_field(e, e->minute, 0, 59, 20, NULL);
	e->star_hour = random_field(e, e->hour, 0, 23, 40, NULL);
	random_dates(e);
}

/* ---------- the documented rules, one time after the other ---------- */

static struct tm
civil(int64_t local)
{
	time_t		t = (time_t) local;
	struct tm	tm;

	gmtime_r(&t, &tm);
	return tm;
}

static int
length_of_month(const struct tm *tm)
{
	int			year = tm->tm_year + 1900;

	if (tm->tm_mon == 1)
		return 28 + ((year % 4 == 0 && year % 100 != 0) || year % 400 == 0);
	return tm->tm_mon == 3 || tm->tm_mon == 5 || tm->tm_mon == 8 || tm->tm_mon == 10 ? 30 : 31;
}

static int
weekday_of(const struct tm *tm, int day)
{
	return ((tm->tm_wday + day - tm->tm_mday) % 7 + 7) % 7;
}

/* True if the day is the workday nearest to another one of its month. */
static bool
is_near(const struct tm *tm, int wanted)
{
	int			length = length_of_month(tm);

	for (int distance = 0; wanted <= length; distance++)
	{
		for (int day = wanted - distance; day <= wanted + distance; day += distance ? 2 * distance : 1)
		{
			int			weekday = weekday_of(tm, day);

			if (day >= 1 && day <= length && weekday != 0 && weekday != 6)
				return day == tm->tm_mday;
		}
	}
	return false;
}

static bool
matches_date(const struct Expression *e, const struct tm *tm)
{
	int			length = length_of_month(tm);
	bool		day = e->day[tm->tm_mday];
	bool		weekday = e->weekday[tm->tm_wday];

	if (e->special_day == 'L')
		day = tm->tm_mday == length - e->special_number;
	else if (e->special_day == 'W')
		day = is_near(tm, length);
	else if (e->special_day == 'N')
		day = is_near(tm, e->special_number);
	if (e->special_weekday == 'L')
		weekday = weekday && tm->tm_mday + 7 > length;
	else if (e->special_weekday == '#')
		weekday = weekday && (tm->tm_mday + 6) / 7 == e->special_nth;
	return e->month[tm->tm_mon + 1] && (e->star_day || e->star_weekday ? day && weekday : day || weekday);
}

static bool
matches(const struct Expression *e, int64_t local)
{
	struct tm	tm = civil(local);

	return e->second[tm.tm_sec] && e->minute[tm.tm_min] && e->hour[tm.tm_hour] && matches_date(e, &tm);
}

/*
 * True if one of the local times between two that follow each other on the clock
 * matches and lies on a date that the clock shows.
 */
static bool
matches_in_gap(const struct Expression *e, int64_t before, int64_t after)
{
	for (int64_t local = before + 1; local < after; local++)
	{
		int64_t		date = local - ((local % CRON_DAY) + CRON_DAY) % CRON_DAY;
		bool		is_skipped = date > before && date + CRON_DAY <= after;

		if (!is_skipped && matches(e, local))
			return true;
	}
	return false;
}

#endif
