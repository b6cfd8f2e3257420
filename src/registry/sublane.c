/*
 * sublane.c
 *	  The lane of a job of a fair type: one of a bounded number, by a hash of its
 *	  tenant.
 *
 * The tenant is the beginning of a path, options.fair_depth elements of it, so
 * that "acme/eu" and "acme/us" share the turns of "acme": a tenant gets no
 * more turns by naming more tenants below it.
 *
 * The lane is computed when a row is written and stored with it, so both
 * options may be changed while jobs wait: waiting jobs stay in their lanes,
 * which take turns, or no longer do, as those of new jobs (ready_queue.c).
 */
#include "jobq.h"

#include "common/hashfn.h"

#include "registry/sublane.h"

PG_FUNCTION_INFO_V1(jobq_sublane);

/* Returns the bytes of the first `depth` elements. */
static int
path_prefix(const char *path, int len, int depth)
{
	for (int i = 0; i < len; i++)
	{
		if (path[i] == '/' && --depth <= 0)
			return i;
	}
	return len;
}

int16
sublane_of(const JobType *type, const text *tenant)
{
	if (type == NULL || !type->fair || tenant == NULL)
		return 0;
	return 1 + hash_bytes((const unsigned char *) VARDATA_ANY(tenant),
						  path_prefix(VARDATA_ANY(tenant), (int) VARSIZE_ANY_EXHDR(tenant), type->fair_depth)) % JOBQ_SUBLANES;
}

/* (type_id int, tenant text) */
Datum
jobq_sublane(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT16(PG_ARGISNULL(0) ? 0 :
					sublane_of(job_type_by_id(PG_GETARG_INT32(0)),
							   PG_ARGISNULL(1) ? NULL : PG_GETARG_TEXT_PP(1)));
}
