/*
 * test_cron.c
 *	  The ticks of cron expressions beside those of a loop over every minute.
 *
 *	  test_cron [CASES [SEED]]
 *
 * A case is a random expression, a zone and a window, most often around a change
 * of the clock.  The expression is made as text and, independently of the parser,
 * as tables of matching values.  The loop looks at the clock of the C library each
 * minute, or each second if the expression has seconds or the clock changes, and
 * applies docs/cron-expressions.md literally.
 */
#include "check.h"
#include "cron_model.h"

#define DEFAULT_CASES	1200
#define MAX_TICKS	4000

static const char *const zones[] = {
	"UTC", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Antarctica/Troll",
	"Africa/Casablanca", "America/Sao_Paulo", "Europe/Dublin", "Pacific/Apia", "Pacific/Kwajalein",
	"Asia/Kathmandu", "America/St_Johns", "America/Havana"
};

static int64_t total;			/* ticks compared */

/* ---------- cases ---------- */

/*
 * Adds the ticks after "from" up to "to", at most MAX_TICKS; returns their
 * number.
 */
static int
loop_ticks(const struct Expression *e, int64_t from, int64_t to, int64_t *ticks)
{
	int			count = 0;
	int64_t		highest = INT64_MIN;
	int64_t		step = 1;

	for (int64_t at = from - 25 * HOUR; at <= to; at += step)
	{
		int64_t		local = shown_at(at);
		bool		tick;

		/* each second around a change of the clock, else each minute */
		step = !e->has_seconds && at % 60 == 0 && shown_at(at + 59) - 59 == local && shown_at(at - 1) + 1 == local ? 60 : 1;
		if (at <= from)
			tick = false;
		else if (e->star_hour)
			tick = matches(e, local);
		else
			tick = local > highest && (matches(e, local) || (highest != INT64_MIN && local > highest + 60 && matches_in_gap(e, highest, local)));
		if (local > highest)
			highest = local;
		if (tick && count < MAX_TICKS)
			ticks[count++] = at;
	}
	return count;
}

static int64_t
random_window(void)
{
	if (zone_count > 1 && below(4))
	{
		const struct Change *change = &zone_changes[1 + below(zone_count - 1)];

		if (change->at > 0)
			return below(4) ? change->at + HOUR - below(3 * HOUR) : change->at - below(36 * HOUR);
	}
	return below(2000000000);
}

/* Returns the parsed text in memory of exactly its size, NULL after an error. */
static Cron *
parsed(const char *text)
{
	static Cron *cron;
	CronError	error;

	free(cron);
	cron = malloc(cron_size(text));
	if (cron_parse(text, cron, &error))
		return cron;
	printf("# \"%s\": %s %.*s %s\n", text, error.field, error.len, error.value, error.problem);
	return NULL;
}

/*
 * True if cron_last() and cron_count() have the ticks of the loop between two
 * random instants.
 */
static bool
is_same_between(const struct Expression *e, const Cron *cron, int64_t from, int64_t to, const int64_t *ticks, int count)
{
	int64_t		after = from + below((int) (to - from + 1));
	int64_t		until = below(2) ? after + below((int) (to - after + 1)) : count > 0 ? ticks[below(count)] : to;
	int			max = below(2) ? below(10) : MAX_TICKS;
	int64_t		last = CRON_NEVER;
	int			between = 0;

	for (int i = 0; i < count; i++)
	{
		if (ticks[i] <= after || ticks[i] > until)
			continue;
		last = ticks[i];
		between++;
	}
	if (cron_last(cron, NULL, after, until) == last &&
		cron_count(cron, NULL, after, until, max) == (between < max ? between : max))
		return true;
	printf("# \"%s\": the last one of %d ticks between %lld and %lld is %lld\n", e->text, between,
		   (long long) after, (long long) until, (long long) last);
	return false;
}

/*
 * True if cron_next() has the ticks of the loop after "from" and up to "to", and
 * each is later than the last one.
 */
static bool
is_same(const struct Expression *e, const char *zone, int64_t from, int64_t to, const int64_t *ticks, int count)
{
	const Cron *cron = parsed(e->text);
	int64_t		at = from;

	if (cron == NULL)
		return false;
	for (int i = 0; i <= count && i < MAX_TICKS; i++)
	{
		int64_t		next = cron_next(cron, NULL, at);

		if (i < count ? next == ticks[i] && next > at : next > to)
		{
			at = next;
			total += i < count;
			continue;
		}
		printf("# \"%s\" in %s: after %lld comes %lld, the loop has %lld\n", e->text, zone, (long long) at,
			   (long long) next, i < count ? (long long) ticks[i] : -1);
		return false;
	}
	return is_same_between(e, cron, from, count < MAX_TICKS ? to : ticks[count - 1], ticks, count);
}

/* Compares the dates of years in UTC, day by day. */
static void
check_dates(int cases)
{
	static int64_t ticks[MAX_TICKS];
	bool		ok = true;

	use_zone("UTC");
	for (int i = 0; ok && i < cases; i++)
	{
		struct Expression e;
		int64_t		from = (below(30000) - 5000) * CRON_DAY;
		int64_t		to = from + 1000 * CRON_DAY;
		int			count = 0;

		memset(&e, 0, sizeof(e));
		add(&e, "0 0 ");
		e.second[0] = e.minute[0] = e.hour[0] = true;
		random_dates(&e);
		for (int64_t at = from + CRON_DAY; at <= to; at += CRON_DAY)
		{
			if (matches(&e, at))
				ticks[count++] = at;
		}
		ok = is_same(&e, "UTC", from, to, ticks, count);
	}
	CHECK(ok, "dates");
}

static void
check_zone(const char *zone, int cases)
{
	static int64_t ticks[MAX_TICKS];
	bool		ok = true;

	use_zone(zone);
	for (int i = 0; ok && i < cases; i++)
	{
		struct Expression e;
		int64_t		from = random_window();
		int64_t		to;

		random_expression(&e);
		to = from + (e.has_seconds ? 4 : 30) * HOUR;
		ok = is_same(&e, zone, from, to, ticks, loop_ticks(&e, from, to, ticks));
	}
	CHECK(ok, zone);
}

/* ---------- joined rules, intervals, speed ---------- */

static int64_t
next_of(const char *text, int64_t since)
{
	return cron_next(parsed(text), NULL, since);
}

static int64_t
last_of(const char *text, int64_t after, int64_t until)
{
	return cron_last(parsed(text), NULL, after, until);
}

static void
check_others(void)
{
	use_zone("UTC");
	CHECK(next_of("every 3000000000s", 0) == INT64_C(3000000000), "a long interval");
	CHECK(next_of("every 90s", 89) == 90 && next_of("@every 90s", 90) == 180 && next_of("90 seconds", -1) == 0,
		  "intervals count from 1970");
	CHECK(next_of("1h30m", 0) == 5400 && next_of("1 day 02:00", 0) == 93600 && next_of("1.5 hours", 0) == 5400,
		  "units and clock times of intervals");
	CHECK(next_of("0 0 * * *;30 0 * * *;every 1h", 0) == 1800 && next_of("0 0 * * *;30 0 * * *;every 1h", 1800) == 3600,
		  "joined rules");
	CHECK(next_of("0 0 30 2 *", 0) == CRON_NEVER && next_of("0 * 30 2 *", 0) == CRON_NEVER, "no tick within 100 years");
	CHECK(next_of("0 0 */28 2 1#5", 1456704000) == INT64_C(2340316800) && next_of("0 0 */28 2 1#5", 1456704000 - 1) == 1456704000,
		  "a Monday, February 29th, 28 years after the last one");
	use_zone("CST5CDT,M3.2.0/0,M11.1.0/1"); /* Havana's rules until 2025, on any machine */
	CHECK(cron_count(parsed("30 */24 ? 3 0#2"), NULL, 1700000000, 3700000000, 1) == 0 && next_of("30 0 ? 3 0#2", 1700000000) == 1710046800,
		  "a time that is in a gap each year");
	CHECK(next_of("after 90s", 0) == CRON_NEVER && last_of("after 90s", 0, 1000) == CRON_NEVER && cron_is_after(parsed("after 90s")) &&
		  !cron_is_after(parsed("every 90s; 0 0 * * *")), "\"after\" has no ticks of its own");
}

/* Every origin, since and interval of some, beside a loop over the seconds. */
static void
check_origins(void)
{
	bool		ok = true;

	for (int interval = 1; interval <= 7; interval++)
	{
		char		text[40];

		snprintf(text, sizeof(text), "every %ds", interval);
		for (int origin = -20; origin <= 20; origin++)
		{
			Cron	   *cron = parsed(text);

			cron->origin = origin;
			for (int since = -20; since <= 20; since++)
			{
				int			expected = since + 1;

				while ((expected - origin) % interval != 0)
					expected++;
				ok = ok && cron_next(cron, NULL, since) == expected && cron_last(cron, NULL, -21 - interval, expected) == expected &&
					cron_last(cron, NULL, since, expected - 1) == CRON_NEVER;
			}
		}
	}
	CHECK(ok, "multiples of an interval count from its origin, before it, too");
}

static void
check_last(void)
{
	int64_t		year = 366 * CRON_DAY;
	int64_t		century = 36500 * CRON_DAY;
	Cron	   *cron;

	use_zone("Europe/Berlin");
	CHECK(last_of("* * * * * *", 0, year) == year && last_of("* * * * * *", year - 1, year) == year, "the last of a tick each second");
	CHECK(last_of("* * * * * *", year, year) == CRON_NEVER && last_of("* * * * * *", year, 0) == CRON_NEVER, "none in an empty window");
	CHECK(last_of("0 0 30 2 *", 0, century) == CRON_NEVER && last_of("0 * */28 2 1#5", 0, century) == INT64_C(2340396000),
		  "the last of few ticks in 100 years");
	CHECK(last_of("0 0 30 2 *; every 1 day", 0, century + 5) == century && last_of("every 36500 days", 0, century) == century &&
		  last_of("every 36500 days", 0, century - 1) == CRON_NEVER, "the last of joined rules, of long intervals");
	CHECK(cron_count(parsed("0 * * * *"), NULL, 1774742400, 1774746000, 10) == 1, "a tick at a change of the clock, which ends the window");
	/* 02:30 is 03:00 of summer time on 2026-03-29, when the second rule has the same tick */
	cron = parsed("30 2 * * *; 0 3 * * *; 0 3 * * *");
	CHECK(cron_count(cron, NULL, 1774738800, 1774825200, 100) == 1 && cron_last(cron, NULL, 1774738800, 1774825200) == 1774746000,
		  "ticks that meet count once");
	CHECK(cron_count(cron, NULL, 0, century, 10) == 10 && cron_count(cron, NULL, 0, century, 0) == 0, "a count has a limit");
}

int
main(int argc, char **argv)
{
	int			cases = argc > 1 ? atoi(argv[1]) : DEFAULT_CASES;
	int			count = (int) (sizeof(zones) / sizeof(zones[0]));

	seed = argc > 2 ? strtoull(argv[2], NULL, 10) : seed;
	check_others();
	check_origins();
	check_last();
	check_dates(cases);
	for (int i = 0; i < count; i++)
		check_zone(zones[i], cases / count);
	CHECK(total > 10 * cases, "cases have ticks");
	return done();
}
