/*
 * backoff.c
 *	  The time of the next attempt: the type's backoff, overridden by the job's own.
 */
#include "jobq.h"

#include <math.h>

#include "utils/builtins.h"
#include "utils/numeric.h"
#include "utils/timestamp.h"

#include "base/interval.h"
#include "base/job_id.h"
#include "registry/backoff.h"

#define MAX_DOUBLINGS	62		/* of the base; the delay is capped long before */

static double
random_fraction(void)
{
	pg_uuid_t	id;
	uint32		bits;

	make_job_id(&id);
	memcpy(&bits, id.data + UUID_LEN - sizeof(bits), sizeof(bits));
	return bits / 4294967296.0;
}

/* Returns the delay for a draw from -1, the shortest, to 1, the longest. */
static int64
delay_at(const Backoff *b, int attempts, double draw)
{
	double		delay = (double) b->base_us;

	if (b->exponential && attempts > 1)
		delay = ldexp(delay, Min(attempts - 1, MAX_DOUBLINGS));
	delay *= 1.0 + b->jitter * draw;
	return (int64) Max(0.0, Min(delay, (double) b->max_us));
}

int64
backoff_delay(const Backoff *b, int attempts)
{
	return delay_at(b, attempts, 2.0 * random_fraction() - 1.0);
}

bool
backoff_is_faster(const Backoff *b, const Backoff *than)
{
	for (int attempts = 1; attempts <= MAX_DOUBLINGS + 1; attempts++)
	{
		if (delay_at(b, attempts, -1.0) < delay_at(than, attempts, -1.0))
			return true;
	}
	return false;
}

static int64
json_interval_us(JsonbValue *v)
{
	if (v->type == jbvNumeric)
	{
		double		seconds = DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow,
																 NumericGetDatum(v->val.numeric)));

		return (int64) (seconds * 1e6);
	}
	return interval_to_us(interval_from_text(pnstrdup(v->val.string.val, v->val.string.len)));
}

static JsonbValue *
json_key(Jsonb *j, const char *key, JsonbValue *v)
{
	return getKeyJsonValueFromContainer(&j->root, key, (int) strlen(key), v);
}

void
backoff_merge(const Backoff *of_type, Jsonb *own, Backoff *out)
{
	JsonbValue	v;

	*out = *of_type;
	if (own == NULL)
		return;
	if (json_key(own, "type", &v) && v.type == jbvString)
		out->exponential = v.val.string.len == 11;	/* exponential | fixed */
	if (json_key(own, "base", &v))
		out->base_us = json_interval_us(&v);
	if (json_key(own, "max", &v))
		out->max_us = json_interval_us(&v);
	if (json_key(own, "jitter", &v) && v.type == jbvNumeric)
		out->jitter = DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow,
														 NumericGetDatum(v.val.numeric)));
}
