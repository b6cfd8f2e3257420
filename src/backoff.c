/*
 * backoff.c
 *	  When the next attempt is due: the type's backoff, with what the job has of its own.
 */
#include "jobq.h"

#include <math.h>

#include "utils/builtins.h"
#include "utils/numeric.h"
#include "utils/timestamp.h"

#include "backoff.h"

static double
random_fraction(void)
{
	pg_uuid_t	id;
	uint32		bits;

	make_job_id(&id);
	memcpy(&bits, id.data + UUID_LEN - sizeof(bits), sizeof(bits));
	return bits / 4294967296.0;
}

int64
backoff_delay(const Backoff *b, int attempts)
{
	double		delay = (double) b->base_us;

	if (b->exponential && attempts > 1)
		delay = ldexp(delay, Min(attempts - 1, 62));
	delay *= 1.0 + b->jitter * (2.0 * random_fraction() - 1.0);
	return (int64) Max(0.0, Min(delay, (double) b->max_us));
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
	return interval_to_us(DatumGetIntervalP(DirectFunctionCall3(interval_in,
																CStringGetDatum(pnstrdup(v->val.string.val, v->val.string.len)),
																ObjectIdGetDatum(InvalidOid),
																Int32GetDatum(-1))));
}

static JsonbValue *
json_key(Jsonb *j, const char *key, JsonbValue *v)
{
	return getKeyJsonValueFromContainer(&j->root, key, (int) strlen(key), v);
}

/* The job's own backoff over its type's, key by key; enqueue has checked the object. */
void
job_backoff(Job *job, JobType *type, Backoff *out)
{
	Jsonb	   *own;
	JsonbValue	v;

	*out = type->backoff;
	if (JOB_NULL(job, Q_backoff))
		return;
	own = DatumGetJsonbP(JOB_ATT(job, Q_backoff));
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
