/*
 * beyond_horizon.h
 *	  Whether dead rows may be removed beyond the server's own horizon, with
 *	  regard to standbys.
 */
#ifndef JOBQ_BEYOND_HORIZON_H
#define JOBQ_BEYOND_HORIZON_H

#include "utils/relcache.h"

typedef enum Beyond
{
	BEYOND_NOT,					/* the server's horizon decides */
	BEYOND_AS_CONFLICT,			/* yes; each removal names its newest deleter,
								 * as VACUUM's do */
	BEYOND_FENCED				/* yes; the fence (standby_fence.h) is raised
								 * before the first removal */
} Beyond;

/* Returns the rule for a sweep that begins now.  In a transaction. */
extern Beyond beyond_horizon(void);

/*
 * True if the server's own horizon for rel covers all transactions below xid.
 */
extern bool server_horizon_passed(Relation rel, TransactionId xid);

#endif
