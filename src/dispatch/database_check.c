/*
 * database_check.c
 *	  Checks that a dispatcher may run in the database.
 *
 * The extension must be there, and its version and tables must fit the library
 * (table_shape.h).  Until they fit, a new dispatcher reads and hands out
 * nothing, answers health() and gives way to DDL.  All memory of a running
 * dispatcher came from the tables, so it ends when they change.
 */
#include "jobq.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/wait_event.h"

#include "base/relations.h"
#include "dispatch/database_check.h"
#include "dispatch/trouble.h"
#include "shared/slots.h"
#include "shared/wait_events.h"
#include "shared/worker_need.h"
#include "tables/table_shape.h"

#define UNFIT_RETRY_MS		1000

static JobqDb *db;

void
check_init(JobqDb *mine)
{
	db = mine;
}

void
check_extension(void)
{
	if (OidIsValid(jobq_relid("queue")))
		return;
	db->lifecycle.ended = ENDED_ABSENT;
	db->dispatcher.sql_workers = SQL_WORKERS_UNKNOWN;
	proc_exit(0);
}

/* True if version and tables fit.  Logs a change of the answer. */
static bool
is_fit(void)
{
	const char *trouble = tables_trouble();

	if (trouble[0] == '\0')
		return true;
	if (!db->health.unfit || strcmp(db->health.trouble, trouble) != 0)
		ereport(LOG,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("jobq: no job runs: %s", trouble)));
	set_trouble("%s", trouble);
	db->health.unfit = true;
	return false;
}

void
check_fit(void)
{
	if (is_fit())
		return;
	db->lifecycle.wanted = true;
	proc_exit(0);
}

/*
 * True if no executor of the database is left, not even of a former
 * dispatcher.
 */
static bool
is_empty(void)
{
	bool		empty = true;

	LWLockAcquire(JobqShmem->lock, LW_SHARED);
	for (int i = 0; i < JobqShmem->nslots; i++)
		empty &= !JobqShmem->slots[i].in_use || JobqShmem->slots[i].dead || JobqShmem->slots[i].dboid != db->dboid;
	LWLockRelease(JobqShmem->lock);
	return empty;
}

void
leave_if_refused(void)
{
	if (!db->lifecycle.refused)
		return;
	db->lifecycle.ended = ENDED_GAVE_WAY;
	proc_exit(0);
}

void
wait_until_fit(void)
{
	bool		fit = false;

	for (;;)
	{
		leave_if_refused();
		if (db_must_leave(db) && is_empty())
		{
			db->lifecycle.ended = ENDED_GAVE_WAY;
			proc_exit(0);
		}
		if (!db->lifecycle.suspended && !db_must_leave(db))
		{
			StartTransactionCommand();
			check_extension();
			fit = is_fit();
			CommitTransactionCommand();
		}
		if (fit)
			break;
		pg_atomic_write_u64(&db->health.beat, (uint64) mono_now());
		pg_atomic_write_u64(&db->health.pong, pg_atomic_read_u64(&db->health.ping));
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, UNFIT_RETRY_MS,
						 jobq_wait(WAIT_DISPATCHER));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	if (db->health.unfit)
		ereport(LOG, (errmsg("jobq: version and tables fit again")));
	db->health.unfit = false;
	set_trouble("%s", "");
}
