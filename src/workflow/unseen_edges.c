/*
 * unseen_edges.c
 *	  Tells retention which ended jobs a transaction may wait for whose edges
 *	  no snapshot sees yet.
 *
 * A transaction that is to commit an edge counts as open from before it looked
 * at the parent (AwaitedJobs.open); after PREPARE, also after a restart, its
 * lock on jobq.dependencies shows it.  If there is none, jobq.dependencies has
 * all edges to jobs that have ended, until another transaction begins to wait
 * (AwaitedJobs.begun).  Else the sets of awaited jobs decide, which have a few
 * ids too many: such a job stays until a call at a time without one.
 */
#include "jobq.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "storage/lock.h"

#include "base/relations.h"
#include "shared/publish_ends.h"

PG_FUNCTION_INFO_V1(jobq_edges_mark);
PG_FUNCTION_INFO_V1(jobq_may_be_awaited);

/* True if another transaction, open or prepared, may have written edges. */
static bool
edges_are_written(void)
{
	LOCKTAG		tag;
	int			nholders;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, jobq_relid("dependencies"));
	pfree(GetLockConflicts(&tag, ShareLock, &nholders));
	return nholders > 0;
}

/*
 * jobq_internal._edges_mark(): to be called before the statement that reads
 * edges; NULL: transactions are open that it may miss.
 */
Datum
jobq_edges_mark(PG_FUNCTION_ARGS)
{
	JobqDb	   *db = my_db();
	uint32		mark = 0;

	/* in this order: one that is prepared in between has its lock */
	if ((db != NULL && !edges_are_visible(db, &mark)) || edges_are_written())
		PG_RETURN_NULL();
	PG_RETURN_INT64(mark);
}

/*
 * jobq_internal._may_be_awaited(id, mark): true if a transaction may wait for
 * the job whose edge the statement does not see.
 */
Datum
jobq_may_be_awaited(PG_FUNCTION_ARGS)
{
	JobqDb	   *db = my_db();

	if (db == NULL)
		PG_RETURN_BOOL(PG_ARGISNULL(1));
	if (!PG_ARGISNULL(1) && pg_atomic_read_u32(&db->awaited.begun) == (uint32) PG_GETARG_INT64(1))
		PG_RETURN_BOOL(false);
	PG_RETURN_BOOL(job_is_awaited(db, PG_GETARG_UUID_P(0)));
}
