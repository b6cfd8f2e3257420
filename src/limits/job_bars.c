/*
 * job_bars.c
 *	  Which limits keep a job from an executor.
 */
#include "jobq.h"

#include "port/pg_bitutils.h"

#include "limits/job_bars.h"
#include "limits/tenant_limit.h"

uint32
job_bars(TypeState *t, const JobRef *ref, int executor, bool exec, const HeldWeight *held)
{
	uint32		bars = type_full_limits(t, executor, exec);

	if (ref->tenant_limit != 0 && !tenant_limit_has_room(ref, executor, exec))
		bars |= BAR_TENANT;
	if (weight_budget > 0 && !weight_fits(held, t->weight))
		bars |= BAR_WEIGHT;
	return bars;
}

JobLimit *
first_full_limit(TypeState *t, uint32 bars)
{
	return type_limit(t, pg_rightmost_one_pos32(bars & BAR_LIMITS));
}
