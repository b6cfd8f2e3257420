/*
 * publish_schedules.c
 *	  From a committed transaction to the conductor: changed schedules, and
 *	  ended jobs of ticks.
 *
 * Both are hints: rows have the truth, and a conductor that has lost news
 * reads them.  All memory is allocated before the commit; the callbacks in
 * publish_jobs.c cannot fail.
 */
#include "jobq.h"

#include "access/xact.h"
#include "utils/memutils.h"

#include "shared/publish_schedules.h"
#include "shared/unpublished.h"
#include "shared/wakeups.h"
#include "shared/xact_changes.h"

typedef struct UnpublishedEnd
{
	ScheduledEnd end;
	SubTransactionId subid;		/* that ended the job */
} UnpublishedEnd;

static int32 changed[JOBQ_CHANGED_SCHEDULES];
static int	nchanged = 0;
static bool changed_all = false;
static UnpublishedEnd *ends = NULL; /* JOBQ_SCHEDULED_ENDS */
static int	nends = 0;
static bool ends_lost = false;

void
note_schedule(int32 schedule_id)
{
	unpublished.db = my_db();
	if (unpublished.db == NULL)
		return;
	for (int i = 0; i < nchanged; i++)
	{
		if (changed[i] == schedule_id)
			return;
	}
	if (schedule_id == 0 || nchanged == lengthof(changed))
		changed_all = true;
	else
		changed[nchanged++] = schedule_id;
}

void
note_scheduled_end(int32 schedule_id, const pg_uuid_t *job_id, int status, TimestampTz ended_at)
{
	UnpublishedEnd *e;

	unpublished.db = my_db();
	if (unpublished.db == NULL)
		return;
	if (ends == NULL)
		ends = MemoryContextAlloc(TopMemoryContext, sizeof(UnpublishedEnd) * JOBQ_SCHEDULED_ENDS);
	if (nends == JOBQ_SCHEDULED_ENDS)
	{
		ends_lost = true;
		return;
	}
	e = &ends[nends++];
	e->end.schedule_id = schedule_id;
	e->end.job_id = *job_id;
	e->end.status = status;
	e->end.ended_at = ended_at;
	e->subid = GetCurrentSubTransactionId();
}

void
wake_conductor(JobqDb *db)
{
	PGPROC	   *proc = db->conductor.child.proc;

	if (proc != NULL)
		wake_process(&db->conductor.child.woken, &proc->procLatch);
	else if (db->dispatcher.proc != NULL)
		wake_dispatcher(db);
	else
		want_dispatcher(db);
}

/* True if the transaction has news for the conductor. */
static bool
schedule_news_exist(void)
{
	return nchanged > 0 || changed_all || nends > 0 || ends_lost;
}

static void
add_changed(ScheduleNews *news, int32 id)
{
	for (int i = 0; i < news->nchanged; i++)
	{
		if (news->changed[i] == id)
			return;
	}
	if (news->nchanged == JOBQ_CHANGED_SCHEDULES)
		news->changed_all = true;
	else
		news->changed[news->nchanged++] = id;
}

bool
schedule_news_publish(JobqDb *db)
{
	ScheduleNews *news = &db->schedule_news;

	if (!schedule_news_exist())
		return false;
	if (nchanged > 0 || changed_all)
		news->wanted = news->hears = true;
	news->changed_all |= changed_all;
	for (int i = 0; i < nchanged; i++)
		add_changed(news, changed[i]);
	if (!news->hears)
		return nchanged > 0 || changed_all;
	news->ends_lost |= ends_lost;
	for (int i = 0; i < nends; i++)
	{
		if (news->nends == JOBQ_SCHEDULED_ENDS)
			news->ends_lost = true;
		else
			news->ends[news->nends++] = ends[i].end;
	}
	return true;
}

void
schedule_news_prepare(JobqDb *db)
{
	if (schedule_news_exist())
		db->schedule_news.prepared = true;
}

/* Changed ids stay: a needless one costs the reading of a row. */
void
schedule_news_abort_sub(SubTransactionId subid)
{
	while (nends > 0 && ends[nends - 1].subid >= subid)
		nends--;
}

void
schedule_news_forget(void)
{
	nchanged = 0;
	changed_all = false;
	nends = 0;
	ends_lost = false;
}

void
schedule_news_prepared_ended(JobqDb *db)
{
	bool		wake;

	SpinLockAcquire(&db->mutex);
	wake = db->schedule_news.prepared;
	if (wake)
	{
		db->schedule_news.changed_all = true;
		db->schedule_news.ends_lost = true;
		db->schedule_news.wanted = true;
	}
	SpinLockRelease(&db->mutex);
	if (wake)
		wake_conductor(db);
}
