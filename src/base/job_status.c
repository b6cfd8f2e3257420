/*
 * job_status.c
 *	  The labels of type jobq.job_status and their oids, looked up once per
 *	  backend and again when the type has changed.
 */
#include "jobq.h"

#include "catalog/namespace.h"
#include "catalog/pg_enum.h"
#include "catalog/pg_type.h"
#include "utils/inval.h"
#include "utils/syscache.h"

#include "base/job_status.h"

static const char *const status_labels[JOB_NSTATUS] = {
	"pending", "blocked", "retry", "running", "completed", "skipped", "cancelled", "error"
};
static Oid	status_oids[JOB_NSTATUS];
static bool status_known = false;
static uint32 status_hash = 0;

static void
status_type_changed(Datum arg, int cacheid, uint32 hashvalue)
{
	if (hashvalue == 0 || hashvalue == status_hash)
		status_known = false;
}

static void
load_statuses(void)
{
	static bool registered = false;
	Oid			schema = get_namespace_oid("jobq", false);
	Oid			type = GetSysCacheOid2(TYPENAMENSP, Anum_pg_type_oid,
									   CStringGetDatum("job_status"), ObjectIdGetDatum(schema));
	int			i;

	if (!registered)
		CacheRegisterSyscacheCallback(TYPEOID, status_type_changed, (Datum) 0);
	registered = true;
	for (i = 0; i < JOB_NSTATUS; i++)
	{
		status_oids[i] = GetSysCacheOid2(ENUMTYPOIDNAME, Anum_pg_enum_oid,
										 ObjectIdGetDatum(type), CStringGetDatum(status_labels[i]));
		if (!OidIsValid(status_oids[i]))
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_OBJECT),
					 errmsg("type jobq.job_status has no label \"%s\"", status_labels[i])));
	}
	status_hash = GetSysCacheHashValue1(TYPEOID, ObjectIdGetDatum(type));
	status_known = true;
}

Oid
status_oid(JobStatus status)
{
	if (!status_known)
		load_statuses();
	return status_oids[status];
}

JobStatus
status_from_oid(Oid oid)
{
	int			i;

	if (!status_known)
		load_statuses();
	for (i = 0; i < JOB_NSTATUS; i++)
		if (status_oids[i] == oid)
			return (JobStatus) i;
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("%u is no label of type jobq.job_status", oid)));
}

const char *
status_name(JobStatus status)
{
	return status_labels[status];
}
