/*
 * claim_scopes.h
 *	  Claims by roles that may work some tenants only, and the jobs that such
 *	  claims pass over.
 */
#ifndef JOBQ_CLAIM_SCOPES_H
#define JOBQ_CLAIM_SCOPES_H

#include "lanes/queue_scan.h"
#include "shared/claims.h"

extern void claim_scopes_init(MemoryContext context);
/* Forgets the jobs that were passed over: lanes are about to be forgotten. */
extern void claim_scopes_forget_lanes(void);
/* True if there are any. */
extern bool claim_scopes_pending(void);

/* Reads the job's tenant; false: its row is gone. */
extern bool claim_scope_look(QueueScan *scan, const JobRef *ref);
/* True if the claim's role may work that tenant in types[i]. */
extern bool claim_scope_admits(const ClaimPlace *place, int i);
/* False: the claim's jobs of types[i] that were passed over may go before this one. */
extern bool claim_scope_is_next(const ClaimPlace *place, int i, const JobRef *ref);
/* Takes the lane's head, the job that was looked at last, out of memory. */
extern void claim_scopes_pass(Lane *lane);

/*
 * Reads jobs for the claim that were passed over into their lanes, as far as
 * *budget index entries go; `idle`: only into lanes where they go before all in memory.
 */
typedef enum ScopeRead
{
	SCOPE_READ,					/* all that there are */
	SCOPE_HAS_MORE,				/* the lanes have as many as the claim wants */
	SCOPE_CUT					/* the budget is used up */
} ScopeRead;
extern ScopeRead claim_scopes_read(QueueScan *scan, const ClaimPlace *place, bool idle, int *budget);
/* True if a lane has such jobs that go before all in its memory. */
extern bool claim_scopes_idle(const ClaimPlace *place);

#endif
