/*
 * conductor.c
 *	  The process that turns ticks of schedules into jobs, releases jobs that
 *	  wait for others, and runs workflows.
 *
 * At most one runs in a database (ConductorProcess); the dispatcher starts it
 * while a schedule exists, a job waits for others or a run is live, and it
 * leaves when nothing of that has existed for a minute.  It connects as the
 * bootstrap superuser, enqueues as the owners of schedules and workflows and
 * runs no code of users.  Each piece of its work is a transaction whose state
 * is in rows: when it is killed, the next conductor goes on from there.  It
 * holds an entry for each schedule (conductor_entries.h) and sleeps until the
 * first tick or timer is due, or until its latch is set: by commits that
 * changed a schedule, ended a job of one or a job that others wait for, or
 * changed a run; by the dispatcher when it has handed out a run, or when the
 * wall clock was set.  It may wait for a standby at commit.
 *
 *	 conductor_start.c			when the dispatcher starts it
 *	 conductor_entries.c		its memory of schedules
 *	 conductor_batch.c			their transactions
 *	 schedule_turn.c			decisions about one schedule's ticks
 *	 turn_last_job.c			the end of its last job
 *	 turn_events.c				its events
 *	 tick.c						the job of a tick
 *	 conductor_edges.c			jobs that wait for others
 *	 conductor_runs.c			runs: their starts, and what they do next
 *	 conductor_sweep.c			runs whose news were lost
 *	 conductor_timers.c			timers of runs, one by one after an error
 *	 tenants_in_turn.c			tenants in turn
 *	 conductor_held.c			what has failed alone, and waits
 *	 conductor_transaction.c	one transaction
 *
 * Exits 0, or 1 after an error that no schedule has caused.  It also ends
 * between two turns for jobq.reload() and for every command that stops jobs
 * (ddl_barrier.c), which sends SIGTERM, that is die, after a second.
 */
#include "jobq.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "base/session.h"
#include "schedule/conductor_batch.h"
#include "schedule/conductor_edges.h"
#include "schedule/conductor_entries.h"
#include "schedule/conductor_runs.h"
#include "security/access.h"
#include "shared/child_process.h"
#include "shared/publish_schedules.h"
#include "shared/wait_events.h"
#include "shared/wakeups.h"

#define LOCK_TIMEOUT_MS "50"
#define LINGER_US		USECS_PER_MINUTE	/* with nothing to wait for */
#define FOREIGN_MS		1000	/* the tables do not fit, or await adopt() */
#define LOCKED_US		INT64CONST(200000)
#define MAX_LATER		1000
#define LOOK_SIZE		200		/* of WORK_LOOK, between ticks */

PGDLLEXPORT void jobq_conductor_main(Datum arg);

static JobqDb *db = NULL;
static MemoryContext lasting;
static MemoryContext turn;		/* reset every turn of the loop */
static bool reread = true;
static bool foreign = false;	/* the last transaction found no schedule of ours */
static int32 *to_look = NULL;	/* schedules whose last job may have ended unheard */
static int	nto_look = 0;
static Work later[MAX_LATER];	/* work that met a lock */
static int	nlater = 0;
static MonoTime later_at;
static MonoTime empty_since = 0;	/* 0: there are schedules, jobs that wait, or runs */

/* ---------- the process ---------- */

static void
conductor_on_exit(int code, Datum arg)
{
	bool		wanted;

	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	(void) child_detach(&db->conductor.child);
	LWLockRelease(JobqShmem->lock);
	SpinLockAcquire(&db->mutex);
	wanted = db->schedule_news.wanted;
	SpinLockRelease(&db->mutex);
	if (wanted)
		wake_dispatcher(db);
}

/* Leaves unless news has come meanwhile. */
static void
leave_if_idle(void)
{
	ScheduleNews *news = &db->schedule_news;
	bool		idle;

	SpinLockAcquire(&db->mutex);
	idle = news->nchanged == 0 && !news->changed_all && news->nends == 0 && !news->ends_lost &&
		db->ends.n == 0 && !db->ends.lost && db->run_starts.n == 0;
	if (idle)
		news->wanted = false;
	SpinLockRelease(&db->mutex);
	if (idle)
		proc_exit(0);
}

/* ---------- news ---------- */

/* Takes the news into `taken`; none: notes whether ends are to be kept. */
static void
take_news(ScheduleNews *taken)
{
	ScheduleNews *news = &db->schedule_news;

	SpinLockAcquire(&db->mutex);
	*taken = *news;
	if (reread)
		news->hears = true;		/* ends may come before all schedules have been read */
	else if (news->nchanged == 0 && !news->changed_all)
		news->hears = entry_counts.hearing > 0;
	news->nchanged = 0;
	news->changed_all = false;
	news->nends = 0;
	news->ends_lost = false;
	SpinLockRelease(&db->mutex);
}

/* True if a prepared transaction of this database is open. */
static bool
prepared_exist(void)
{
	bool		found;

	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	SPI_connect();
	found = SPI_execute("SELECT FROM pg_prepared_xacts WHERE database = current_database() LIMIT 1", true, 1) ==
		SPI_OK_SELECT && SPI_processed > 0;
	SPI_finish();
	PopActiveSnapshot();
	CommitTransactionCommand();
	return found;
}

static void
set_prepared(bool prepared)
{
	SpinLockAcquire(&db->mutex);
	db->schedule_news.prepared = prepared;
	SpinLockRelease(&db->mutex);
}

static void
look_at_all(void)
{
	MemoryContext old = MemoryContextSwitchTo(lasting);

	if (to_look != NULL)
		pfree(to_look);
	to_look = entries_that_hear(&nto_look);
	MemoryContextSwitchTo(old);
}

static void
read_everything(void)
{
	set_prepared(false);
	if (prepared_exist())
		set_prepared(true);
	switch (batch_read_all())
	{
		case BATCH_DONE:
			foreign = reread = false;
			look_at_all();
			break;
		case BATCH_FOREIGN:
			foreign = reread = true;
			nlater = 0;			/* all rows are read again */
			break;
		case BATCH_LOCKED:
			reread = true;
			break;
	}
}

static void
add_work(Work *work, int *n, WorkKind kind, int32 id)
{
	work[*n].id = id;
	work[(*n)++].kind = kind;
}

/* Keeps work that met a lock; too much of it: all rows are read again. */
static void
keep_later(const Work *work, int n)
{
	if (nlater + n > MAX_LATER)
	{
		reread = true;
		return;
	}
	if (nlater == 0)			/* more work does not put off the first */
		later_at = mono_now() + LOCKED_US;
	memcpy(later + nlater, work, sizeof(Work) * n);
	nlater += n;
}

static void
run_batch(Work *work, int n)
{
	int			nlocked;

	if (n == 0)
		return;
	if (batch_run(db, work, n, &nlocked) == BATCH_FOREIGN)
		foreign = reread = true;
	else if (nlocked > 0)
		keep_later(work, nlocked);
}

static void
run_later(void)
{
	Work	   *work;
	int			n = nlater;

	if (n == 0 || mono_now() < later_at)
		return;
	work = palloc(sizeof(Work) * n);
	memcpy(work, later, sizeof(Work) * n);
	nlater = 0;
	run_batch(work, n);
}

static void
act_on_news(const ScheduleNews *news)
{
	Work	   *work = palloc0(sizeof(Work) * (JOBQ_CHANGED_SCHEDULES + JOBQ_SCHEDULED_ENDS));
	int			n = 0;

	for (int i = 0; i < news->nchanged; i++)
		add_work(work, &n, WORK_READ, news->changed[i]);
	run_batch(work, n);
	n = 0;
	for (int i = 0; i < news->nends; i++)
	{
		ScheduleEntry *e = entry_find(news->ends[i].schedule_id);

		if (e == NULL || !e->hears)
			continue;
		work[n].end = news->ends[i];
		add_work(work, &n, WORK_END, news->ends[i].schedule_id);
	}
	run_batch(work, n);
	if (news->ends_lost && nto_look == 0)
		look_at_all();
}

/* ---------- ticks ---------- */

static void
run_due(void)
{
	Work	   *work = palloc0(sizeof(Work) * BATCH_SIZE);
	TimestampTz now = GetCurrentTimestamp();
	ScheduleEntry *e;
	int			n = 0;

	while (n < BATCH_SIZE && (e = entries_take(now)) != NULL)
		add_work(work, &n, WORK_DUE, e->id);
	run_batch(work, n);
}

static void
run_look(void)
{
	Work	   *work = palloc0(sizeof(Work) * LOOK_SIZE);
	int			n = 0;

	while (n < LOOK_SIZE && nto_look > 0)
	{
		int32		id = to_look[--nto_look];

		if (entry_find(id) != NULL)
			add_work(work, &n, WORK_LOOK, id);
	}
	run_batch(work, n);
}

static void
note_counts(void)
{
	TimestampTz due = entries_tick();

	pg_atomic_write_u64(&db->schedules.due, due == DT_NOEND ? 0 : (uint64) due);
	pg_atomic_write_u32(&db->schedules.active, entry_counts.active);
	pg_atomic_write_u32(&db->schedules.paused, entry_counts.paused_by_jobq);
	if (entry_counts.all > 0 || nlater > 0 || (reread && !foreign) || !edges_are_idle() || !runs_are_idle())
		empty_since = 0;
	else if (empty_since == 0)
		empty_since = mono_now();
}

/*
 * Returns the time until the next work, in microseconds; -1: until the latch
 * is set.
 */
static int64
time_left(void)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz due = entries_due();
	int64		left = -1;
	int64		other;

	if (nto_look > 0 && !foreign)
		left = 0;
	else if (due != DT_NOEND && !foreign)
		left = due <= now ? 0 : due - now;	/* DT_NOBEGIN is no number */
	if (reread)
		left = left < 0 ? FOREIGN_MS * INT64CONST(1000) : Min(left, FOREIGN_MS * INT64CONST(1000));
	if (nlater > 0)
		left = Min(left < 0 ? PG_INT64_MAX : left, Max(later_at - mono_now(), 0));
	other = edges_time_left();
	if (other >= 0)
		left = left < 0 ? other : Min(left, other);
	other = runs_time_left();
	if (other >= 0)
		left = left < 0 ? other : Min(left, other);
	if (empty_since != 0)
	{
		int64		stay = Max(empty_since + LINGER_US - mono_now(), 0);

		left = left < 0 ? stay : Min(left, stay);
	}
	return left;
}

/*
 * Sleeps until work is due.  A latch has whole milliseconds: the rest, less
 * than one, is slept without it.
 */
static void
sleep_until_needed(void)
{
	int64		left = time_left();
	int			events = WL_LATCH_SET | WL_EXIT_ON_PM_DEATH | (left >= 0 ? WL_TIMEOUT : 0);

	if (left > 0 && left < 1000)
		pg_usleep(left);
	else if (left != 0 && !wakeup_is_due(&db->conductor.child.woken))
		(void) WaitLatch(MyLatch, events, (long) Min(left / 1000, PG_INT32_MAX), jobq_wait(WAIT_CONDUCTOR));
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
}

static void
one_turn(void)
{
	ScheduleNews *news = palloc(sizeof(ScheduleNews));

	take_news(news);
	if (news->changed_all)
		reread = true;
	if (reread)
		read_everything();
	if (!foreign)
		act_on_news(news);
	if (!foreign)
		run_later();
	if (!foreign)
		run_due();
	if (!foreign && entries_due() > GetCurrentTimestamp())
		run_look();
	edges_take_news();
	edges_turn();
	runs_take_starts();
	runs_turn();
	note_counts();
}

/*
 * Makes the plans of this process use indexes.  They are kept, and may be made
 * while jobq.queue is empty, when a scan of all of it looks cheap.
 */
static void
plan_for_large_tables(void)
{
	set_for_session("plan_cache_mode", "force_generic_plan");
	set_for_session("enable_seqscan", "off");
	set_for_session("enable_hashjoin", "off");
	set_for_session("enable_mergejoin", "off");
	set_for_session("jit", "off");	/* the planner takes a scan that is off for expensive */
}

void
jobq_conductor_main(Datum arg)
{
	Oid			dboid = DatumGetObjectId(arg);

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	db = child_attach(dboid, offsetof(JobqDb, conductor.child));
	db->conductor.restart = false;
	before_shmem_exit(conductor_on_exit, 0);
	BackgroundWorkerInitializeConnectionByOid(dboid, InvalidOid, 0);
	neutralise_session();
	set_for_session("search_path", "pg_catalog, pg_temp");
	set_for_session("lock_timeout", LOCK_TIMEOUT_MS);
	plan_for_large_tables();
	tenant_check_ignored = true;
	lasting = AllocSetContextCreate(TopMemoryContext, "jobq conductor", ALLOCSET_DEFAULT_SIZES);
	turn = AllocSetContextCreate(TopMemoryContext, "jobq turn", ALLOCSET_DEFAULT_SIZES);
	entries_init(lasting);
	edges_init(lasting, db);
	runs_init(lasting, db);

	for (;;)
	{
		MemoryContextReset(turn);
		MemoryContextSwitchTo(turn);
		wakeups_taken(&db->conductor.child.woken);
		if (child_must_leave(db) || db->conductor.restart)
			proc_exit(0);
		pgstat_report_activity(STATE_RUNNING, "jobq: ticks");
		one_turn();
		pgstat_report_activity(STATE_IDLE, NULL);
		if (empty_since != 0 && mono_now() - empty_since >= LINGER_US)
			leave_if_idle();
		sleep_until_needed();
	}
}
