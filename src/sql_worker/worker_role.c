/*
 * worker_role.c
 *	  The right of a SQL worker to go on: see worker_role.h.
 *
 * A worker lives on between jobs, so its role may have been dropped meanwhile,
 * or may have lost the right to connect.  The check runs before each job; it
 * reads catalogs again only when a role or database has changed.
 */
#include "jobq.h"

#include "access/htup_details.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "utils/acl.h"
#include "utils/inval.h"
#include "utils/syscache.h"

#include "sql_worker/worker_role.h"

static bool stale = true;

static void
role_changed(Datum arg, int cacheid, uint32 hashvalue)
{
	stale = true;
}

/* True if the server would let a new worker connect as that role. */
static bool
may_connect(Oid roleid)
{
	HeapTuple	tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(roleid));
	bool		ok;

	if (!HeapTupleIsValid(tuple))
		return false;
#ifdef BGWORKER_BYPASS_ROLELOGINCHECK
	ok = true;
#else
	ok = ((Form_pg_authid) GETSTRUCT(tuple))->rolcanlogin;
#endif
	ReleaseSysCache(tuple);
	return ok && database_aclcheck(MyDatabaseId, roleid, ACL_CONNECT) == ACLCHECK_OK;
}

bool
worker_role_fits(JobType *type)
{
	static bool registered = false;
	static bool connects = false;

	if (!registered)
	{
		CacheRegisterSyscacheCallback(AUTHOID, role_changed, (Datum) 0);
		CacheRegisterSyscacheCallback(AUTHMEMROLEMEM, role_changed, (Datum) 0);
		CacheRegisterSyscacheCallback(DATABASEOID, role_changed, (Datum) 0);
		registered = true;
	}
	if (stale)
	{
		stale = false;
		connects = may_connect(GetSessionUserId());
	}
	return connects && job_type_run_as(type) == GetSessionUserId();
}
