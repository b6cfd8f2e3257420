/*
 * tenants_in_turn.c
 *	  The order of the conductor's work: see tenants_in_turn.h.
 *
 * A tenant with much work waiting delays another one by one piece of work,
 * which may take a transaction of 50 ms.  Tenants whose hashes have the same
 * remainder share a turn.
 */
#include "jobq.h"

#include "schedule/tenants_in_turn.h"

#define TENANTS	1024

/* Sets places to the first max pieces in their order; returns true if it is another one. */
static bool
order(const char *work, Size size, Size tenant_at, int n, int max, int *places)
{
	int		   *waiting = palloc0(sizeof(int) * TENANTS);	/* of each tenant so far */
	int		   *turn = palloc(sizeof(int) * n);
	int		   *place = palloc0(sizeof(int) * (max + 1));	/* of the next piece of a turn */
	bool		other = false;

	for (int i = 0; i < n; i++)
	{
		turn[i] = waiting[*(const uint32 *) (work + i * size + tenant_at) % TENANTS]++;
		if (turn[i] < max)
			place[turn[i] + 1]++;
	}
	for (int t = 1; t <= max; t++)
		place[t] += place[t - 1];
	for (int i = 0; i < n; i++)
	{
		int			to = turn[i] < max ? place[turn[i]]++ : max;

		if (to >= max)
			continue;
		places[to] = i;
		other |= to != i;
	}
	pfree(waiting);
	pfree(turn);
	pfree(place);
	return other;
}

void
put_tenants_in_turn(void *work, Size size, Size tenant_at, int n, int max)
{
	char	   *all = work;
	int		   *places;
	bool	   *taken;
	char	   *first;
	int			left = n;

	max = Min(n, max);
	places = palloc(sizeof(int) * Max(max, 1));
	if (max == 0 || !order(all, size, tenant_at, n, max, places))
		return;
	first = palloc(size * max);
	taken = palloc0(sizeof(bool) * n);
	for (int i = 0; i < max; i++)
	{
		memcpy(first + i * size, all + places[i] * size, size);
		taken[places[i]] = true;
	}
	for (int i = n - 1; i >= 0; i--)	/* the others move up, the last one first */
	{
		if (!taken[i])
			memmove(all + --left * size, all + i * size, size);
	}
	memcpy(all, first, size * max);
}
