/*
 * rate_pool.c
 *	  The memory of rate windows: see rate_pool.h.
 */
#include "jobq.h"

#include "shared/rate_pool.h"
#include "shared/shmem.h"

int32
rate_blocks_take(int n)
{
	RatePool   *pool = JobqShmem->rates;
	int32		first = pool->free;
	int32		last = first;

	Assert(n > 0 && n <= pool->nfree);
	for (int i = 1; i < n; i++)
		last = pool->next[last];
	pool->free = pool->next[last];
	pool->next[last] = 0;
	pool->nfree -= n;
	return first;
}

void
rate_blocks_give(int32 first)
{
	RatePool   *pool = JobqShmem->rates;

	while (first != 0)
	{
		int32		next = pool->next[first];

		pool->next[first] = pool->free;
		pool->free = first;
		pool->nfree++;
		first = next;
	}
}
