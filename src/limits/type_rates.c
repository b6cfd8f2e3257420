/*
 * type_rates.c
 *	  The rates of a job type: its own and those of the shared limits that it
 *	  names.
 *
 * A type without a rate (TypeState.rated is false) calls nothing here.
 */
#include "jobq.h"

#include "limits/type_rates.h"

bool
type_needs_starts(TypeState *t, TimestampTz now)
{
	if (t->own.rate.limit > 0 && rate_needs_starts(&t->own.rate, now))
		return true;
	for (int i = 0; i < t->nlimits; i++)
	{
		if (t->limits[i]->rate.limit > 0 && rate_needs_starts(&t->limits[i]->rate, now))
			return true;
	}
	return false;
}

uint32
type_closed_rates(TypeState *t, TimestampTz now)
{
	uint32		closed = 0;

	for (int i = 0; i <= t->nlimits; i++)
	{
		Rate	   *rate = &type_limit(t, i)->rate;

		if (rate->limit > 0 && rate_is_closed(rate, now))
			closed |= (uint32) 1 << i;
	}
	return closed;
}

void
type_take(TypeState *t)
{
	if (t->own.rate.limit > 0)
		rate_take(&t->own.rate);
	for (int i = 0; i < t->nlimits; i++)
	{
		if (t->limits[i]->rate.limit > 0)
			rate_take(&t->limits[i]->rate);
	}
}

void
type_note_start(TypeState *t, TimestampTz started)
{
	if (t->own.rate.limit > 0)
		rate_note(&t->own.rate, started);
	for (int i = 0; i < t->nlimits; i++)
	{
		if (t->limits[i]->rate.limit > 0)
			rate_note(&t->limits[i]->rate, started);
	}
}

void
type_refund(TypeState *t)
{
	if (t->own.rate.limit > 0)
		rate_refund(&t->own.rate);
	for (int i = 0; i < t->nlimits; i++)
	{
		if (t->limits[i]->rate.limit > 0)
			rate_refund(&t->limits[i]->rate);
	}
}

void
type_retake(TypeState *t)
{
	t->own.rate.pending += t->own.rate.limit > 0;
	for (int i = 0; i < t->nlimits; i++)
		t->limits[i]->rate.pending += t->limits[i]->rate.limit > 0;
}
