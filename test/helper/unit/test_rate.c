/*
 * test_rate.c
 *	  Rate windows and token buckets beside lists of all starts.
 *
 *	  test_rate [CASES [SEED]]
 */
#include "fake_rates.h"

#include <math.h>

#include "shared/rate_pool.h"

#define MAX_STARTS	40000
#define SECOND		INT64CONST(1000000)

/* ---------- lists of starts ---------- */

typedef struct Starts
{
	TimestampTz at[MAX_STARTS];
	int			n;
	int64		window_us;
	int			pending;
	TimestampTz handed[MAX_STARTS];	/* when those that are pending were */
} Starts;

static Starts all[RATES];

static void
add(Starts *s, TimestampTz at)
{
	int			i = s->n++;

	for (; i > 0 && s->at[i - 1] > at; i--)
		s->at[i] = s->at[i - 1];
	s->at[i] = at;
}

/* Starts that the window that ends now has; one at its very beginning counts. */
static int
count_now(const Starts *s)
{
	int			n = 0;

	while (n < s->n && s->at[s->n - 1 - n] + s->window_us >= clock_now)
		n++;
	return n;
}

/* Most starts in any window; some window with the most begins with a start. */
static int
most(const Starts *s)
{
	int			best = 0;

	for (int i = 0, j = 0; i < s->n; i++)
	{
		while (j < s->n && s->at[j] - s->at[i] <= s->window_us)
			j++;
		best = Max(best, j - i);
	}
	return best;
}

/* ---------- windows ---------- */

/* A new dispatcher goes on with the windows of the last one. */
static void
change_dispatcher(const int *limits)
{
	memset(rates, 0, sizeof(rates));
	rate_init(&JobqShmem->dbs[0]);
	for (int i = 0; i < RATES; i++)
		load(i, limits[i], all[i].window_us, 0);
}

/*
 * Jobs start as they are handed out: a rate is closed if and only if its window
 * is full, and next_free is the first moment at which it is not.  Limits change
 * meanwhile.
 */
static bool
exact_case(void)
{
	int			limits[RATES];
	bool		ok = true;

	start_server();
	for (int i = 0; i < RATES; i++)
	{
		limits[i] = 1 + below(below(2) ? 5 : 200);
		all[i].n = 0;
		all[i].window_us = 1 + below(3000);
		load(i, limits[i], all[i].window_us, 0);
	}
	for (int step = 0; ok && step < 600; step++)
	{
		int			r = below(RATES);
		Starts	   *s = &all[r];

		clock_now += below(8) ? below(below(2) ? 20 : 400) : 0;
		if (below(60) == 0)
			change_dispatcher(limits);
		if (below(60) == 0)
		{
			limits[r] = 1 + below(200);
			load(r, limits[r], s->window_us, 0);
		}
		for (int tries = below(40); ok && tries > 0; tries--)
		{
			bool		closed = rate_is_closed(&rates[r], clock_now);

			ok = closed == (count_now(s) >= limits[r]) &&
				(!closed || rates[r].next_free == s->at[s->n - limits[r]] + s->window_us + 1);
			if (closed || !ok)
				break;
			rate_take(&rates[r]);
			rate_note(&rates[r], clock_now);
			add(s, clock_now);
		}
	}
	ok = ok && no_block_is_lost();
	stop_server();
	return ok;
}

/* The start of a job becomes known, or it comes back without one. */
static void
end_pending(int r, int i, bool started)
{
	Starts	   *s = &all[r];
	TimestampTz handed = s->handed[i];

	s->handed[i] = s->handed[--s->pending];
	if (started)
	{
		TimestampTz at = handed + below((int) (clock_now - handed + 1));

		rate_note(&rates[r], at);
		add(s, at);
	}
	else
		rate_refund(&rates[r]);
}

/* Starts become known late and in any order: no window has more than the limit. */
static bool
late_case(void)
{
	int			limit = 1 + below(below(2) ? 6 : 100);
	Starts	   *s = &all[0];
	bool		ok = true;

	start_server();
	s->n = s->pending = 0;
	s->window_us = 1 + below(2000);
	load(0, limit, s->window_us, 0);
	for (int step = 0; ok && step < 600; step++)
	{
		clock_now += below(below(2) ? 5 : 300);
		while (s->pending > 0 && below(3))
			end_pending(0, below(s->pending), below(5) > 0);
		while (below(6) && !rate_is_closed(&rates[0], clock_now))
		{
			ok = ok && !rate_needs_starts(&rates[0], clock_now);
			rate_take(&rates[0]);
			s->handed[s->pending++] = clock_now;
		}
		/* one more may start only if all that are out could start now, too */
		ok = ok && (rate_is_closed(&rates[0], clock_now) || count_now(s) + s->pending < limit);
	}
	while (s->pending > 0)
		end_pending(0, 0, true);
	ok = ok && most(s) <= limit && s->n >= 8;
	rate_refund(&rates[0]);		/* it looks again at once */
	rates[0].pending++;
	ok = ok && rate_is_closed(&rates[0], clock_now) == (count_now(s) >= limit);
	clock_now += s->window_us + 1;
	ok = ok && !rate_is_closed(&rates[0], clock_now);
	stop_server();
	return ok;
}

static void
check_windows(int cases)
{
	bool		ok = true;

	for (int i = 0; ok && i < cases; i++)
		ok = exact_case();
	CHECK(ok, "a window is closed as long as it is full, and no longer, whatever the limits before");
	for (int i = 0; ok && i < cases; i++)
		ok = late_case();
	CHECK(ok, "with starts that are known late no window has more than its limit, wherever it begins");
}

static int
start_all(Rate *rate, int most_wanted)
{
	int			n = 0;

	while (n < most_wanted && !rate_is_closed(rate, clock_now))
	{
		rate_take(rate);
		rate_note(rate, clock_now);
		n++;
	}
	return n;
}

static void
check_edges(void)
{
	start_server();
	load(0, 3, SECOND, 0);
	CHECK(start_all(&rates[0], 100) == 3, "as many start at once as the limit allows");
	clock_now += SECOND;
	CHECK(start_all(&rates[0], 100) == 0, "a start counts for the whole length of the window");
	clock_now++;
	CHECK(start_all(&rates[0], 100) == 3, "and then no more");
	clock_now += 2 * SECOND;
	for (int i = 0; i < 3; i++)
		rate_take(&rates[0]);
	CHECK(rate_needs_starts(&rates[0], clock_now) && rate_is_closed(&rates[0], clock_now),
		  "jobs without a known start fill the window");
	rate_refund(&rates[0]);
	CHECK(!rate_needs_starts(&rates[0], clock_now) && !rate_is_closed(&rates[0], clock_now),
		  "one that comes back makes room at once");
	rate_take(&rates[0]);
	clock_now += 5 * SECOND;
	CHECK(rate_is_closed(&rates[0], clock_now), "they fill it however long they take");
	for (int i = 0; i < 3; i++)
		rate_note(&rates[0], clock_now - 3 * SECOND);
	rates[0].next_free = 0;
	CHECK(!rate_is_closed(&rates[0], clock_now), "late known starts count from when they were");
	CHECK(start_all(&rates[0], 100) == 3, "so all of the window is free");
	load(0, 20000, SECOND, 0);
	CHECK(rates[0].limit == JOBQ_MAX_RATE && start_all(&rates[0], 30000) == JOBQ_MAX_RATE - 3,
		  "a limit above 10,000 is one of 10,000");
	load(0, 0, SECOND, 0);
	CHECK(rates[0].window == NULL && JobqShmem->rates->nfree == BLOCKS, "no limit, no memory");
	stop_server();
}

/* Starts that would lie in the future are forgotten. */
static void
check_clock(void)
{
	start_server();
	load(0, 2, SECOND, 0);
	load(1, 1, SECOND, 4);
	(void) start_all(&rates[0], 2);
	CHECK(start_all(&rates[1], 100) == 4, "a burst");
	clock_now -= 3600 * SECOND;
	CHECK(rate_is_closed(&rates[0], clock_now) && rate_is_closed(&rates[1], clock_now),
		  "after the clock was set back");
	rate_clock_was_set(&rates[0], clock_now);
	rate_clock_was_set(&rates[1], clock_now);
	CHECK(start_all(&rates[0], 100) == 2, "starts in the future do not count");
	CHECK(rate_is_closed(&rates[1], clock_now), "a bucket stays as empty as it was");
	clock_now += SECOND + 1;
	CHECK(start_all(&rates[1], 100) == 1, "and fills by the new time");
	clock_now += SECOND + 1;
	CHECK(start_all(&rates[0], 1) == 1, "one start");
	clock_now -= SECOND / 2;
	load(0, 2, SECOND, 0);
	CHECK(start_all(&rates[0], 100) == 2, "the same when a new dispatcher finds them");
	clock_now += 3600 * SECOND;
	stop_server();
}

/* ---------- token buckets ---------- */

/* Starts since a full bucket: never more than its burst and what has flowed in since. */
static bool
bucket_case(void)
{
	int			limit = 1 + below(50);
	int			burst = 1 + below(60);
	int64		window = 1 + below(5000);
	double		per_us = (double) limit / window;
	TimestampTz begin = clock_now;
	bool		eager = below(2);
	bool		ok = true;
	double		level = burst;	/* what the bucket should have */
	TimestampTz last = clock_now;

	start_server();
	load(0, limit, window, burst);
	for (int step = 0; ok && step < 400; step++)
	{
		int			refunds = below(4) == 0 ? below(3) : 0;

		clock_now += eager ? below(3) : below(500);
		if (below(50) == 0)
		{
			memset(rates, 0, sizeof(rates));
			rate_init(&JobqShmem->dbs[0]);
			load(0, limit, window, burst);
		}
		level = Min(level + (clock_now - last) * per_us, burst);
		last = clock_now;
		while (ok)
		{
			bool		closed = rate_is_closed(&rates[0], clock_now);

			if (level > 0.999999 && level < 1.000001)
				break;			/* rounded either way */
			ok = closed == (level < 1);
			if (closed)
			{
				TimestampTz next = rates[0].next_free;

				ok = ok && next > clock_now &&
					fabs(level + (next - clock_now) * per_us - 1) <= 1.000001 * per_us + 0.000001 &&
					!rate_needs_starts(&rates[0], clock_now);
				break;
			}
			rate_take(&rates[0]);
			level--;
			if (refunds-- > 0)
			{
				rate_refund(&rates[0]);
				level++;
			}
		}
	}
	ok = ok && clock_now > begin;
	stop_server();
	return ok;
}

static void
check_buckets(int cases)
{
	bool		ok = true;

	for (int i = 0; ok && i < cases; i++)
		ok = bucket_case();
	CHECK(ok, "a bucket lets start what it holds, and opens when it holds one");

	start_server();
	JobqShmem->started_at = clock_now - SECOND;
	load(0, 10, 10 * SECOND, 5);
	CHECK(start_all(&rates[0], 100) == 0,
		  "a bucket is empty as long as its window contains the server's start");
	clock_now += SECOND + 1;
	CHECK(start_all(&rates[0], 100) == 1, "and fills");
	stop_server();
}

/* ---------- the server's start ---------- */

static void
check_past(void)
{
	start_server();
	JobqShmem->started_at = clock_now - SECOND;
	for (int i = 0; i < 7; i++)
		past_starts[npast++] = clock_now - (i * 5 % 7 + 2) * SECOND;	/* 2 s to 8 s ago, in any order */
	load(0, 5, 5 * SECOND, 0);
	CHECK(start_all(&rates[0], 100) == 1, "starts before the server's start count: 4 within 5 s");
	clock_now++;
	CHECK(start_all(&rates[0], 100) == 1, "the oldest of them is longer ago now");
	stop_server();

	start_server();
	JobqShmem->started_at = clock_now - SECOND;
	read_fails = true;
	load(0, 5, 5 * SECOND, 0);
	CHECK(start_all(&rates[0], 100) == 0, "a window begins full if they cannot be read");
	clock_now += 4 * SECOND + 1;
	CHECK(start_all(&rates[0], 100) == 5, "as if all had started with the server");
	stop_server();

	start_server();
	JobqShmem->started_at = clock_now - SECOND;
	tables_locked = true;
	load(0, 5, 5 * SECOND, 0);
	CHECK(rates[0].no_window != NULL && start_all(&rates[0], 100) == 0 &&
		  !rate_needs_starts(&rates[0], clock_now), "no job starts while their tables are locked");
	tables_locked = false;
	load(0, 5, 5 * SECOND, 0);
	CHECK(rates[0].no_window == NULL && start_all(&rates[0], 100) == 5, "then the window is made");
	stop_server();

	start_server();
	for (int i = 0; i < 3; i++)
		rate_take(&rates[0]);
	for (int i = 0; i < 3; i++)
		rate_note(&rates[0], clock_now);
	load(0, 4, SECOND, 0);
	CHECK(start_all(&rates[0], 100) == 1, "jobs that were handed out before there was a limit count");
	stop_server();
}

/* ---------- the pool ---------- */

static bool
is_first(int32 type_id, const char *name)
{
	return strcmp(name, rate_names[0]) == 0;
}

/* Windows of random sizes come and go: each keeps its starts, no block is lost. */
static bool
pool_case(void)
{
	int			known[RATES] = {0};
	int			limits[RATES] = {0};
	bool		ok = true;

	start_server();
	for (int step = 0; ok && step < 60; step++)
	{
		int			r = below(RATES);

		limits[r] = below(3) ? below(10001) : 0;
		if (limits[r] == 0)
			known[r] = 0;
		load(r, limits[r], 3600 * SECOND, 0);
		if (rates[r].no_window != NULL)
		{
			ok = rate_is_closed(&rates[r], clock_now);
			load(r, limits[r] = 0, SECOND, 0);
			known[r] = 0;
			continue;
		}
		if (limits[r] > 0)
		{
			int			wanted = below(400);

			ok = start_all(&rates[r], wanted) == Min(wanted, Max(limits[r] - known[r], 0));
			known[r] += Min(wanted, Max(limits[r] - known[r], 0));
		}
		ok = ok && no_block_is_lost();
	}
	stop_server();
	return ok;
}

static void
check_pool(int cases)
{
	JobqDb	   *other;
	bool		ok = true;

	for (int i = 0; ok && i < cases; i++)
		ok = pool_case();
	CHECK(ok, "windows grow and shrink, and no block of the pool is lost");

	start_server();
	load(0, 10000, SECOND, 0);
	CHECK(start_all(&rates[0], 5) == 5, "a window of 157 blocks");
	load(1, 10000, SECOND, 0);
	CHECK(rates[1].no_window != NULL && start_all(&rates[1], 1) == 0,
		  "no job starts by a limit without a window: the pool is used up");
	load(1, 100, SECOND, 0);
	CHECK(rates[1].no_window == NULL && start_all(&rates[1], 1000) == 100, "a smaller one has room");
	load(1, 10000, SECOND, 0);
	CHECK(rates[1].no_window != NULL && start_all(&rates[1], 1) == 0,
		  "it can't grow, and never counts by a window that is too small");
	load(2, 10000, SECOND, 20);
	CHECK(rates[2].no_window == NULL && start_all(&rates[2], 100) == 20, "a bucket needs one block");
	rate_take(&rates[2]);
	load(2, 10000, SECOND, 0);
	rate_note(&rates[2], clock_now);
	CHECK(rates[2].no_window != NULL && rates[2].missed == 1 && no_block_is_lost(), "a start of a bucket that can't become a window");
	rates_drop_unused(is_first);
	CHECK(no_block_is_lost() && blocks_of(&JobqShmem->dbs[0]) == 157, "windows that nothing uses are freed");
	CHECK(start_all(&rates[0], 20000) == 10000 - 5, "the other one has its starts");
	stop_server();

	start_server();
	load(0, 10000, SECOND, 0);
	other = &JobqShmem->dbs[0];
	rate_init(&JobqShmem->dbs[1]);
	memset(rates, 0, sizeof(rates));
	load(0, 10000, SECOND, 0);
	CHECK(rates[0].no_window != NULL, "the windows of a database in use stay");
	other->dboid = InvalidOid;
	load(0, 10000, SECOND, 0);
	CHECK(rates[0].no_window == NULL && blocks_of(other) == 0 && no_block_is_lost(),
		  "those of one that is gone are freed when they are needed");
	JobqShmem->dbs[1].dboid = 200;
	rate_init(&JobqShmem->dbs[1]);
	CHECK(JobqShmem->rates->nfree == BLOCKS && JobqShmem->dbs[1].rates.dboid == 200,
		  "or when another database takes the entry");
	stop_server();
}

int
main(int argc, char **argv)
{
	int			cases = random_start(argc, argv, 200);

	check_edges();
	check_clock();
	check_windows(cases);
	check_buckets(cases);
	check_past();
	check_pool(cases);
	return done();
}
