/*
 * run_level.c
 *	  How deep a run is nested in others: see run_level.h.
 *
 * The runs above a task are rows of the queue that do not end before it.  In a
 * dump that is being restored some may be missing yet: the level is less then.
 */
#include "jobq.h"

#include "utils/snapmgr.h"

#include "base/relations.h"
#include "tables/queue_find.h"
#include "tables/queue_table.h"
#include "tables/run_level.h"

int
run_level(bool is_run, const pg_uuid_t *workflow_id)
{
	Snapshot	snapshot;
	Table		queue;
	pg_uuid_t	id;
	int			level = 2;
	Job			job;

	if (!is_run || workflow_id == NULL)
		return is_run ? 1 : 0;
	id = *workflow_id;
	table_open_for_write(&queue, jobq_relid("queue"));
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	for (; queue_find_by_id(&queue, &id, snapshot, &job) && !JOB_NULL(&job, Q_workflow_id); level++)
		id = *DatumGetUUIDP(JOB_ATT(&job, Q_workflow_id));
	UnregisterSnapshot(snapshot);
	table_close_after_write(&queue);
	return level;
}
