/*
 * wait_events.c
 *	  Wait events of jobq's processes, for pg_stat_activity.wait_event.
 *
 * They have names from PostgreSQL 17 on; before, every extension's wait event
 * is called "Extension".
 */
#include "jobq.h"

#include "shared/wait_events.h"

static const char *const names[JOBQ_NWAITS] = {
	[WAIT_LAUNCHER] = "JobqLauncherMain",
	[WAIT_DISPATCHER] = "JobqDispatcherMain",
	[WAIT_SQL_WORKER] = "JobqSqlWorkerMain",
	[WAIT_EXEC_WORKER] = "JobqExecWorkerMain",
	[WAIT_HELPER_LEAVES] = "JobqHelperLeaves",
	[WAIT_DDL] = "JobqDdl",
	[WAIT_UNIQUE_KEY] = "JobqUniqueKey",
	[WAIT_JOB] = "JobqWaitFor",
	[WAIT_HEALTH] = "JobqHealth",
	[WAIT_CONDUCTOR] = "JobqConductorMain",
	[WAIT_CLAIM] = "JobqClaim",
	[WAIT_STATISTICS] = "JobqStatistics",
	[WAIT_WHY] = "JobqWhy",
};

uint32
jobq_wait(JobqWait wait)
{
	static uint32 events[JOBQ_NWAITS];	/* of this process, 0: not made yet */

	if (events[wait] == 0)
		events[wait] = new_wait_event(names[wait]);
	return events[wait];
}
