/*
 * rate_pool.h
 *	  The memory of rate windows: one pool of blocks for all databases.
 *
 * shmem.c makes it at server start, with a fixed size.  JobqShmem->lock protects the chains of
 * blocks.
 */
#ifndef JOBQ_RATE_POOL_H
#define JOBQ_RATE_POOL_H

#include "datatype/timestamp.h"

#define BLOCK_STARTS	64

typedef struct RateBlock
{
	TimestampTz starts[BLOCK_STARTS];
} RateBlock;

/* Blocks are numbered from 1; 0: none. */
typedef struct RatePool
{
	int			nblocks;
	int			nfree;
	int32		free;			/* the first; its chain */
	RateBlock  *blocks;			/* block number 1 is the first */
	int32		next[FLEXIBLE_ARRAY_MEMBER];	/* in the chain of each block, by number */
} RatePool;

/*
 * Takes a chain of n blocks, which are free, and returns the first; the lock
 * is held.
 */
extern int32 rate_blocks_take(int n);
/* Frees a chain of blocks; the lock is held. */
extern void rate_blocks_give(int32 first);

#endif
