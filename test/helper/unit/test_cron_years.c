/*
 * test_cron_years.c
 *	  The ticks of cron expressions over five years, beside those of a loop over
 *	  every minute of them.
 *
 *	  test_cron_years [SECONDS [SEED]]
 *
 * Without arguments it tests a few expressions in each zone, always the same ones;
 * with SECONDS it tests further ones for that time.  The five years of a zone have
 * its odd days.  The loop also looks at each second around a change of the clock;
 * for expressions with seconds it looks at these hours alone.
 */
#include "check.h"
#include "cron_model.h"

#define FEW_CASES	12
#define YEARS_5		(1826 * CRON_DAY)
/* Seconds around a change at which the loop looks one by one. */
#define NEAR		(10 * 60)
#define NEAR_DAY	(26 * HOUR)

static const struct
{
	const char *name;
	int			year;			/* the first of the five */
}			zones[] = {
	{"America/New_York", 2024},
	{"Europe/Berlin", 2023},
	{"Australia/Lord_Howe", 2024},	/* half an hour */
	{"Antarctica/Troll", 2024}, /* two hours */
	{"Africa/Casablanca", 2022},	/* around Ramadan */
	{"America/Sao_Paulo", 2015},	/* no midnight */
	{"Europe/Dublin", 2021},	/* winter is the deviation */
	{"Pacific/Apia", 2009},		/* without 2011-12-30 */
	{"Pacific/Kwajalein", 1991},	/* without 1993-08-21 */
	{"America/Havana", 2019},	/* no midnight on a Sunday */
};

static int64_t total;			/* ticks compared */

/* The clock of the C library: an instant and what it shows. */
struct Moment
{
	int64_t		at;
	int64_t		local;
};
struct Moments
{
	struct Moment *list;
	int			count;
};

static void
add_moment(struct Moments *moments, int64_t at)
{
	if (moments->count % 65536 == 0)
		moments->list = realloc(moments->list, (moments->count + 65536) * sizeof(struct Moment));
	moments->list[moments->count++] = (struct Moment) {at, shown_at(at)};
}

/*
 * Returns the seconds from an instant to the nearest change.  *last: the index of
 * the last change up to it, for instants in their order.
 */
static int64_t
distance(int64_t at, int *last)
{
	int64_t		before;
	int64_t		after;

	while (*last + 1 < zone_count && zone_changes[*last + 1].at <= at)
		(*last)++;
	before = *last == 0 ? INT64_MAX : at - zone_changes[*last].at;
	after = *last + 1 == zone_count ? INT64_MAX : zone_changes[*last + 1].at - at;
	return before < after ? before : after;
}

/* ---------- the loop ---------- */

struct Comparison
{
	const struct Expression *e;
	const Cron *cron;
	int64_t		next;			/* the tick of cron_next() after the last one */
	int64_t		last;
	int64_t		date;			/* of matches_today */
	bool		matches_today;
};

/* Like matches(), with the date's result from the last call. */
static bool
matches_at(struct Comparison *c, int64_t local)
{
	int64_t		date = local / CRON_DAY;
	int			second = (int) (local - date * CRON_DAY);

	if (date != c->date)
	{
		struct tm	tm = civil(local);

		c->date = date;
		c->matches_today = matches_date(c->e, &tm);
	}
	return c->matches_today && c->e->hour[second / 3600] && c->e->minute[second / 60 % 60] && c->e->second[second % 60];
}

/*
 * Compares the ticks within moments that follow each other.  The first moments are
 * before the first tick: their clock times were shown already.
 */
static bool
compare(struct Comparison *c, const struct Moment *moments, int count, int64_t since)
{
	int64_t		highest = moments[0].local;

	c->next = cron_next(c->cron, NULL, since);
	c->last = CRON_NEVER;
	for (int i = 1; i < count; i++)
	{
		int64_t		at = moments[i].at;
		int64_t		local = moments[i].local;
		bool		tick = false;

		if (at > since && c->e->star_hour)
			tick = matches_at(c, local);
		else if (at > since && local > highest)
			tick = matches_at(c, local) ||
				(local - highest > at - moments[i - 1].at && matches_in_gap(c->e, highest, local));
		if (local > highest)
			highest = local;
		if (tick != (at == c->next) || at > c->next)
			return false;
		if (!tick)
			continue;
		total++;
		c->last = at;
		c->next = cron_next(c->cron, NULL, at);
		if (c->next <= at)
			return false;
	}
	return c->next > moments[count - 1].at && cron_last(c->cron, NULL, since, moments[count - 1].at) == c->last;
}

/* ---------- zones ---------- */

/* Fills the minutes of five years, and the seconds around each change. */
static void
look_at_clock(int64_t from, struct Moments *minutes, struct Moments *seconds)
{
	int			last = 0;

	for (int64_t at = from; at < from + YEARS_5; at += 60)
	{
		int64_t		seconds_away = distance(at, &last);

		for (int i = 0; i < (seconds_away < NEAR ? 60 : 1); i++)
			add_moment(minutes, at + i);
		for (int i = 0; seconds_away < NEAR_DAY && i < 60; i++)
			add_moment(seconds, at + i);
	}
}

/* True if a random expression has the ticks of the loop. */
static bool
check_case(const char *zone, const struct Moments *minutes, const struct Moments *seconds)
{
	struct Expression e;
	CronError	error;
	struct Comparison c = {.e = &e, .date = INT64_MIN};
	bool		ok;

	random_expression(&e);
	c.cron = malloc(cron_size(e.text));
	ok = cron_parse(e.text, (Cron *) c.cron, &error);
	if (ok && !e.has_seconds)
		ok = compare(&c, minutes->list, minutes->count, minutes->list[1500].at);
	for (int from = 0, to; ok && e.has_seconds && from < seconds->count; from = to)
	{
		to = from + 1;
		while (to < seconds->count && seconds->list[to].at == seconds->list[to - 1].at + 1)
			to++;
		/* the time before the change by more than an hour */
		ok = compare(&c, seconds->list + from, to - from, seconds->list[from].at + 24 * HOUR);
	}
	if (!ok)
		printf("# \"%s\" in %s: a tick after %lld differs from %lld\n", e.text, zone, (long long) c.last, (long long) c.next);
	free((Cron *) c.cron);
	return ok;
}

/* Tests expressions until a time of the monotonic clock, and at least a few. */
static void
check_zone(int zone, double until)
{
	struct tm	start = {.tm_year = zones[zone].year - 1900,.tm_mday = 1};
	struct Moments minutes = {0};
	struct Moments seconds = {0};
	struct timespec now;
	int			cases = 0;
	bool		ok;

	use_zone(zones[zone].name);
	look_at_clock(timegm(&start), &minutes, &seconds);
	CHECK(seconds.count > NEAR_DAY, "the clock changes in the five years");
	do
	{
		ok = check_case(zones[zone].name, &minutes, &seconds);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (ok && (++cases < FEW_CASES || now.tv_sec + now.tv_nsec / 1e9 < until));
	CHECK(ok, zones[zone].name);
	printf("# %d expressions\n", cases);
	free(minutes.list);
	free(seconds.list);
}

int
main(int argc, char **argv)
{
	double		duration = argc > 1 ? atof(argv[1]) : 0;
	int			count = (int) (sizeof(zones) / sizeof(zones[0]));
	struct timespec start;

	clock_gettime(CLOCK_MONOTONIC, &start);
	if (argc > 1)
		seed = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t) start.tv_nsec;
	printf("# seed %llu\n", (unsigned long long) seed);
	for (int i = 0; i < count; i++)
		check_zone(i, start.tv_sec + start.tv_nsec / 1e9 + duration * (i + 1) / count);
	CHECK(total > 1000, "cases have ticks");
	printf("# %lld ticks\n", (long long) total);
	return done();
}
