/*
 * next_tick.c
 *	  The time to find the next tick of a cron expression.
 *
 *	  next_tick --calls N [--seed S]
 *
 * `latency` is of N searches, each with a random expression and a random
 * instant from 2000 to 2040, in each zone in turn. `worst` is the slowest
 * search of expressions of up to 1,024 bytes that are made to be slow, the
 * fastest of five tries each, so that other processes of the machine do not
 * count. Code and parser are those of src/schedule; the time zones are the C
 * library's, as tables of changes that are searched like the server's.
 */
#include "common.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cron_zones.h"

#define FROM	INT64_C(946684800)	/* 2000 */
#define YEARS	40
#define TRIES	5
#define STEPS	500				/* instants of a slow expression */
#define lengthof(array) (sizeof(array) / sizeof((array)[0]))

static const char *const zone_names[] = {"UTC", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kolkata"};

static const char *const usual[] = {
	"* * * * *", "* * * * * *", "*/15 * * * *", "0 */15 * * * *", "0 3 * * *", "30 8 * * mon-fri", "0 0 1 * *",
	"0 0 L * *", "0 9 LW * *", "0 12 15W * *", "0 12 * * 5#2", "0 22 * * 5L", "@hourly", "@yearly", "every 90s",
	"0 9 * * 1-5; 0 12 * * 0,6", "0 0 29 2 *"
};

/* Rules that are repeated up to the longest expression, and the last rule, which has ticks. */
static const char *const slow[][2] = {
	{"0 0 30 2 *", "@yearly"},	/* no tick in 100 years */
	{"* * 30 2 ?", "@yearly"},
	{"0 0 31 2,4,6,9,11 *", "0 0 */28 2 1#5"},
	{"0 0 */28 2 1#5", "0 0 */28 2 1#5"},	/* each 28 years, once 40 */
	{"* * */28 2 1#5", "* * */28 2 1#5"},
	{"59 59 23 29 2 *", "59 59 23 29 2 *"},
	{"0 0 31W 2 *", "0 0 31W 12 *"},
	{"1s", "1s"},
};

typedef struct Expression
{
	char		text[CRON_MAX_BYTES + 1];
	Cron	   *cron;
} Expression;

static uint64_t state;

/* Returns a number below n: splitmix64. */
static uint64_t
random_below(uint64_t n)
{
	uint64_t	z = (state += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return (z ^ (z >> 31)) % n;
}

static int64_t
random_instant(void)
{
	return FROM + (int64_t) random_below(YEARS * 366 * CRON_DAY);
}

static double
monotonic_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return epoch_of(now);
}

static void
parse(Expression *e)
{
	CronError	error;

	e->cron = allocate(cron_size(e->text));
	if (!cron_parse(e->text, e->cron, &error))
		die("%s: %s %.*s %s", e->text, error.field, error.len, error.value, error.problem);
}

/* Returns the seconds of one search. */
static double
search(const Expression *e, int64_t since)
{
	double		began = monotonic_now();
	int64_t		tick = cron_next(e->cron, NULL, since);
	double		seconds = monotonic_now() - began;

	if (tick <= since || tick == CRON_NEVER)
		die("%s has no tick after %" PRId64, e->text, since);
	return seconds;
}

static void
search_usual(double *seconds, int64_t calls)
{
	Expression	expressions[lengthof(usual)];

	for (size_t i = 0; i < lengthof(usual); i++)
	{
		strcpy(expressions[i].text, usual[i]);
		parse(&expressions[i]);
	}
	for (int64_t i = 0; i < calls; i++)
		seconds[i] = search(&expressions[random_below(lengthof(usual))], random_instant());
}

static void
make_slow(Expression *e, const char *const *rules)
{
	size_t		rule = strlen(rules[0]) + 1;
	size_t		last = strlen(rules[1]);
	size_t		length = 0;

	for (; length + rule + last <= CRON_MAX_BYTES; length += rule)
		sprintf(e->text + length, "%s;", rules[0]);
	strcpy(e->text + length, rules[1]);
	parse(e);
}

/* Returns the seconds of the slowest of some searches, each the fastest of its tries. */
static double
slowest(const Expression *e)
{
	double		worst = 0;

	for (int i = 0; i < STEPS; i++)
	{
		int64_t		since = random_instant();
		double		best = search(e, since);

		for (int try = 1; try < TRIES; try++)
		{
			double		again = search(e, since);

			best = again < best ? again : best;
		}
		worst = best > worst ? best : worst;
	}
	return worst;
}

int
main(int argc, char **argv)
{
	int64_t		calls = 0;
	int64_t		seed = 1;
	const Option options[] = {{"calls", OPT_COUNT, &calls}, {"seed", OPT_COUNT, &seed}, {NULL}};
	double	   *seconds;
	double		worst = 0;
	const char *worst_rule = "";

	set_program_name("next_tick");
	if (parse_options(argc, argv, 1, options) != argc || calls < (int64_t) lengthof(zone_names))
		die("usage: next_tick --calls N [--seed S]");
	state = (uint64_t) seed;
	calls -= calls % (int64_t) lengthof(zone_names);
	seconds = allocate(sizeof(double) * calls);
	for (size_t zone = 0; zone < lengthof(zone_names); zone++)
	{
		int64_t		share = calls / (int64_t) lengthof(zone_names);

		use_zone(zone_names[zone]);
		search_usual(seconds + share * zone, share);
		for (size_t i = 0; i < lengthof(slow); i++)
		{
			Expression	e;
			double		found;

			make_slow(&e, slow[i]);
			found = slowest(&e);
			if (found > worst)
			{
				worst = found;
				worst_rule = slow[i][0];
			}
		}
	}
	sort_doubles(seconds, calls);
	printf("{\"jobs\": %" PRId64 ", \"latency\": {\"p50\": %.9f, \"p95\": %.9f, \"p99\": %.9f, \"max\": %.9f}, \"worst\": %.9f, \"rule\": \"%s\"}\n",
		   calls, percentile(seconds, calls, 0.5), percentile(seconds, calls, 0.95), percentile(seconds, calls, 0.99), seconds[calls - 1], worst, worst_rule);
	return 0;
}
