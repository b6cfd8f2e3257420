/*
 * former_claims.h
 *	  The claims that a former dispatcher has answered; leases.h has more.
 */
#ifndef JOBQ_FORMER_CLAIMS_H
#define JOBQ_FORMER_CLAIMS_H

#include "workers/lease_table.h"

extern void former_claims_init(MemoryContext context, JobqDb *db);

/* Returns the number of the jobs that they have and that are not known. */
extern int	former_claims_unknown(void);
/* True if claims that a former dispatcher has answered are open. */
extern bool former_claims_are_open(void);
/* Forgets those whose transactions have ended. */
extern void former_claims_turn(MonoTime now);
extern MonoTime former_claims_next_timer(void);

#endif
