/*
 * cron.h
 *	  Cron expressions: the parser, and the ticks of an expression in a time zone.
 *
 * Pure functions without server calls: tests and fuzzers link them with an
 * implementation of cron_zone.h over the C library.  Times are whole seconds.
 * An instant counts from 1970-01-01 UTC; a local time is what the clock of the
 * zone shows, counted in the same way as if the clock showed UTC.
 */
#ifndef JOBQ_CRON_H
#define JOBQ_CRON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "schedule/cron_zone.h"

#define CRON_MAX_BYTES	1024
/* The shortest rule and its semicolon are "1s;".  The last rule may be bad. */
#define CRON_MAX_RULES	(CRON_MAX_BYTES / 3 + 1)
#define CRON_NEVER		INT64_MAX
#define CRON_DAY		INT64_C(86400)
/* A search ends this long after its beginning: 100 years. */
#define CRON_HORIZON	(36525 * CRON_DAY)

typedef enum CronKind
{
	CRON_CALENDAR,				/* five or six fields */
	CRON_EVERY,					/* multiples of an interval */
	CRON_AFTER					/* an interval after the last job's end; has no ticks of its own */
} CronKind;

typedef enum CronDay
{
	DAY_SET,					/* days of the bitmap */
	DAY_BEFORE_LAST,			/* L, $, L-3: day_arg days before the last */
	DAY_LAST_WORKDAY,			/* LW */
	DAY_NEAR_WORKDAY			/* 15W: the workday nearest to day_arg */
} CronDay;

typedef enum CronWeekday
{
	WEEKDAY_SET,				/* weekdays of the bitmap */
	WEEKDAY_LAST,				/* 5L: the last one of the month */
	WEEKDAY_NTH					/* 5#2: the weekday_arg-th one */
} CronWeekday;

typedef struct CronRule
{
	CronKind	kind;
	int64_t		interval;		/* CRON_EVERY, CRON_AFTER: seconds */
	/* CRON_CALENDAR: bit n is value n; Sunday is 0 */
	uint64_t	seconds;
	uint64_t	minutes;
	uint32_t	hours;
	uint32_t	days;
	uint32_t	months;
	uint32_t	weekdays;
	CronDay		day_kind;
	int			day_arg;
	CronWeekday weekday_kind;
	int			weekday_arg;
	bool		either_day;		/* day or weekday must match, not both */
	bool		every_hour;		/* the hour field begins with "*": ticks follow the changed clock */
} CronRule;

typedef struct Cron
{
	int64_t		origin;			/* multiples of CRON_EVERY count from this instant, in both directions */
	int			count;
	CronRule	rules[];		/* joined by ";" */
} Cron;

/* An error of the parser: FIELD "VALUE" PROBLEM. */
typedef struct CronError
{
	const char *field;			/* "hour", "expression", "interval" */
	const char *value;			/* in the parsed text, not terminated */
	int			len;
	const char *problem;		/* "is outside 0..23" */
	const char *hint;			/* a sentence, or NULL */
} CronError;

/*
 * Returns the bytes of the Cron that cron_parse() makes of a text of at most
 * CRON_MAX_BYTES: 88 for one rule.
 */
extern size_t cron_size(const char *text);

/*
 * Parses the text that cron_size() measured; the origin becomes 0, which is 1970.
 * Returns false with *error set when the text is no expression.
 */
extern bool cron_parse(const char *text, Cron *cron, CronError *error);

/* True for "every 90s", whose ticks need not be counted one by one. */
static inline bool
cron_is_every(const Cron *cron)
{
	return cron->count == 1 && cron->rules[0].kind == CRON_EVERY;
}

/*
 * True for "after 90s", whose interval is that of its only rule.  The functions
 * below find no tick for it.
 */
static inline bool
cron_is_after(const Cron *cron)
{
	return cron->rules[0].kind == CRON_AFTER;
}

/*
 * Returns the first tick after an instant, CRON_NEVER if there is none within
 * 100 years.
 */
extern int64_t cron_next(const Cron *cron, const CronZone *zone, int64_t since);

/*
 * Returns the last tick that is later than "after" and not later than "until",
 * CRON_NEVER if there is none.  Costs about two searches like cron_next() for each
 * doubling of the time from one second to "until" - "after": 64 for 100 years,
 * however many ticks they have.
 */
extern int64_t cron_last(const Cron *cron, const CronZone *zone, int64_t after, int64_t until);

/*
 * Returns the number of ticks later than "after" and not later than "until", at
 * most max.  Costs a cron_next() for each of them, unless the expression is one
 * interval.
 */
extern int64_t cron_count(const Cron *cron, const CronZone *zone, int64_t after, int64_t until, int64_t max);

#endif
