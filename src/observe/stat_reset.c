/*
 * stat_reset.c
 *	  jobq.stat_reset().
 *
 * The commit of the caller's transaction resets (stat_changes.c): its row in
 * jobq.audit and the reset are there both, or neither.
 */
#include "jobq.h"

#include "access/xlog.h"

#include "observe/type_stats.h"
#include "registry/job_types.h"
#include "shared/stat_changes.h"

PG_FUNCTION_INFO_V1(jobq_stat_reset);

/* Resets a type, and those of its name that were dropped: the view shows them as one. */
static void
reset_type(JobqDb *db, int32 type_id)
{
	JobType    *type = job_type_by_id(type_id);
	StatEntry **entries;
	int			n;

	if (type == NULL)
		return;
	if (stat_entry(type_id)->type_id == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("argument \"job_type\": \"%s\" shares its statistics with other job types", type->name),
				 errhint("Call jobq.stat_reset() for all types, or raise jobq.max_stat_types.")));
	n = stat_entries(db, &entries);
	for (int i = 0; i < n; i++)
	{
		char		name[64];

		type_stats_name(db, entries[i], name);
		if (entries[i]->type_id == type_id || strcmp(name, type->name) == 0)
			stat_reset_at_commit(entries[i]);
	}
}

/* jobq_internal._stat_zero(type_id): of all types and the database if it is NULL */
Datum
jobq_stat_reset(PG_FUNCTION_ARGS)
{
	JobqDb	   *db = RecoveryInProgress() ? NULL : my_db();

	if (db == NULL)
		PG_RETURN_VOID();
	if (PG_ARGISNULL(0))
		stat_reset_at_commit(NULL);
	else
		reset_type(db, PG_GETARG_INT32(0));
	PG_RETURN_VOID();
}
