/*
 * job_bars.h
 *	  The reasons why a job can't be handed out now: a bit each.
 *
 * Hand-out takes the first of them and moves the job's group of lanes to its
 * place of waiting; jobq.why lists them all.
 */
#ifndef JOBQ_JOB_BARS_H
#define JOBQ_JOB_BARS_H

#include "limits/type_state.h"
#include "limits/weight.h"

#define BAR_LIMITS		0x01FF	/* full limits of its type: bits of type_full_limits */
#define BAR_TENANT		0x0200	/* its tenant runs as many as it may */
#define BAR_WEIGHT		0x0400	/* jobq.max_weight has no room */
#define BAR_BATCH		0x0800	/* its claim waits for a batch */
#define BAR_CAPACITY	0x1000	/* no executor of its role has room, no claim asks */
#define BAR_CLAIM		0x2000	/* its tenant is none of the waiting claims' */

StaticAssertDecl(BAR_LIMITS >> (JOBQ_TYPE_LIMITS + 1) == 0, "bits of limits");

/*
 * Returns the limits, of the first three kinds, that keep the job from an
 * executor; -1 and NULL: from one that has no jobs.
 */
extern uint32 job_bars(TypeState *t, const JobRef *ref, int executor, bool exec, const HeldWeight *held);

/* Returns the first limit of the type that is full, for bars & BAR_LIMITS. */
extern JobLimit *first_full_limit(TypeState *t, uint32 bars);

#endif
