/*
 * rate_pool.c
 *	  The memory of rate windows: see rate_pool.h.
 */
#include "jobq.h"

#include "shared/rate_pool.h"
#include "shared/shmem.h"

#define BLOCKS_PER_DB	512		/* of each of jobq.max_databases, for any of them */

static int
pool_blocks(void)
{
	return jobq_max_databases * BLOCKS_PER_DB;
}

static Size
pool_head_size(void)
{
	return MAXALIGN(offsetof(RatePool, next) + sizeof(int32) * (pool_blocks() + 1));
}

Size
rates_size(void)
{
	return add_size(pool_head_size(), mul_size(pool_blocks(), sizeof(RateBlock)));
}

void
rates_init(void *memory)
{
	RatePool   *pool = memory;

	pool->nblocks = pool->nfree = pool_blocks();
	pool->blocks = (RateBlock *) ((char *) memory + pool_head_size());
	pool->free = 1;
	for (int i = 1; i <= pool->nblocks; i++)
		pool->next[i] = i < pool->nblocks ? i + 1 : 0;
	JobqShmem->rates = pool;
}

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
