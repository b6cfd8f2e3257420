/*
 * wakeups.h
 *	  Wake-ups of jobq's own processes.
 *
 * The latch alone is not enough: a wait inside a turn, for a lock, for a page
 * that another process reads, or for a standby, resets it.  So the sender also
 * sets a flag in shared memory.  The process clears the flag before it looks
 * for work, and looks at it once more before it sleeps.
 */
#ifndef JOBQ_WAKEUPS_H
#define JOBQ_WAKEUPS_H

#include "port/atomics.h"
#include "postmaster/interrupt.h"
#include "storage/latch.h"

/* After the sender has written what the process is to see. */
static inline void
wake_process(pg_atomic_uint32 *woken, Latch *latch)
{
	pg_memory_barrier();
	if (pg_atomic_read_u32(woken) == 0)
		pg_atomic_write_u32(woken, 1);
	SetLatch(latch);
}

/* Before the process looks for work. */
static inline void
wakeups_taken(pg_atomic_uint32 *woken)
{
	(void) pg_atomic_exchange_u32(woken, 0);
}

/* True if the process must not sleep. */
static inline bool
wakeup_is_due(pg_atomic_uint32 *woken)
{
	return pg_atomic_read_u32(woken) != 0 || ConfigReloadPending;
}

#endif
