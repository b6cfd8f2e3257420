/*
 * former_claims.h
 *	  The claims that a former dispatcher has answered.
 */
#ifndef JOBQ_FORMER_CLAIMS_H
#define JOBQ_FORMER_CLAIMS_H

#include "limits/type_state.h"

extern void former_claims_init(MemoryContext context, JobqDb *db);

/* Returns the number of the jobs that they have and that are not known. */
extern int	former_claims_unknown(void);
/* True if claims that a former dispatcher has answered are open. */
extern bool former_claims_are_open(void);
/* Forgets those whose transactions have ended. */
extern void former_claims_turn(MonoTime now);
extern MonoTime former_claims_next_timer(void);

/* Takes over jobs of claims whose transactions a former dispatcher left open. */
extern void former_claims_recover(void);

/* True until the rows of the queue have been read for leases (lane_reader.c). */
extern bool leases_are_being_read(void);
extern void leases_were_read(void);

/*
 * True if unknown jobs of open claims, which a former dispatcher has answered,
 * may count in a limit of this job: it is not handed out.
 */
extern bool former_claims_may_count(const TypeState *t, const JobRef *ref);
/* True, once, when one of these claims has ended. */
extern bool former_claims_ended(void);

#endif
