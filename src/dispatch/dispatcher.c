/*
 * dispatcher.c
 *	  The one decider of a database: which job runs next, where, and when.
 *
 * Started by the launcher (bgw_main_arg: the database), one per database, connected as the bootstrap
 * superuser.  It reads the queue and the registry and writes nothing; executors do.  It sleeps on
 * its latch, which is set by commits that touched the queue, by executors that have news, by DDL
 * and by health checks; its timeout is the next thing that becomes due.
 *
 * One turn of the loop: hear executors; take publications and commands; then, in one transaction,
 * take a snapshot and read the lanes that want it; hand out in lane order until nobody has
 * capacity; see to workers.  It takes relation locks only when they are free at once and never waits
 * for a row, a lock or a standby.
 *
 * Leaves with 0 when the extension is gone, its tables are not such that jobs may run or DDL needs the database empty, else 1, and the launcher
 * starts another, which finds what is in flight in the slots.
 */
#include "jobq.h"


#include <math.h>
#include <signal.h>

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "base/conditional_lock.h"
#include "base/relations.h"
#include "base/session.h"
#include "dispatch/admission.h"
#include "dispatch/dispatcher_wait.h"
#include "dispatch/inbox.h"
#include "dispatch/lane_reader.h"
#include "dispatch/notify.h"
#include "dispatch/unknown_prepared.h"
#include "dispatch/wakeup_filter.h"
#include "limits/concurrency_keys.h"
#include "limits/kill_switch.h"
#include "limits/tenant_limit.h"
#include "maintenance/compaction.h"
#include "maintenance/maintenance_schedule.h"
#include "pressure/pressure_rules.h"
#include "registry/job_types.h"
#include "shared/crash_record.h"
#include "shared/wait_events.h"
#include "shared/worker_need.h"
#include "tables/table_fit.h"
#include "workers/executor_pool.h"

#define PAUSED_MS			5
#define UNFIT_RETRY_MS		1000
#define WINDOWS_RETRY_US	(10 * USECS_PER_SEC)
#define BLOCKED_RETRY_US	INT64CONST(100000)	/* somebody has the queue's lock */
#define CLOCK_STEP_US		USECS_PER_SEC

static JobqDb *db;
static MemoryContext lasting;	/* lives as long as the process */
static MemoryContext turn;		/* reset every turn */

static bool want_full_scan = true;
static News news = {.types_changed = true, .lost_from = DT_NOEND};
static MonoTime scan_blocked_until = 0;	/* 0: the last reading was not kept out */
static bool registry_locked = false;
static bool registry_known = false;	/* has been read once */
static MonoTime next_sweep = 0;
static MonoTime windows_retry = 0;
static int32 my_home = 0;

PGDLLEXPORT void jobq_dispatcher_main(Datum arg);

static void set_trouble(const char *fmt,...) pg_attribute_printf(1, 2);

static void
set_trouble(const char *fmt,...)
{
	char		text[sizeof(db->health.trouble) + MAX_MULTIBYTE_CHAR_LEN];
	va_list		args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	text[pg_mbcliplen(text, (int) strlen(text), sizeof(db->health.trouble) - 1)] = '\0';
	SpinLockAcquire(&db->mutex);
	strlcpy(db->health.trouble, text, sizeof(db->health.trouble));
	SpinLockRelease(&db->mutex);
}

/* ---------- identity ---------- */

/* Are these jobs ours to run?  A restored dump's are not, until jobq.adopt(). */
static void
check_identity(void)
{
	int32		id = 0;
	bool		ours = home_is_ours(&id);

	if (!ours != db->health.paused_identity)
	{
		db->health.paused_identity = !ours;
		if (!ours)
			ereport(LOG,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("jobq: the queue was restored from elsewhere, nothing is handed out"),
					 errhint("Call jobq.adopt() to run its jobs here.")));
	}
	if (id != my_home)
	{
		my_home = id;
		want_full_scan = true;
	}
}

/* ---------- the kill switch (kill_switch.c) ---------- */

/* Asked to; after what has been asked of us before. */
static bool
must_start_anew(void)
{
	return db->requests.reload && !intake_cancels_pending();
}

/* Who has asked for a reload enqueues after it for other settings than ours. */
static bool
may_hand_out(void)
{
	return !db->health.paused_identity && !db->kill_switch.stopped && !db->kill_switch.draining &&
		!must_start_anew();
}

static void
read_stop(void)
{
	char	   *reason;

	db->kill_switch.stopped = stop_is_on(&reason, NoLock);
}

/* What nobody has begun comes back, and who waits for the end of what runs looks again. */
static void
see_to_stop(void)
{
	if (!db->kill_switch.stopped && !db->kill_switch.draining)
		return;
	executors_take_back(false);
	ConditionVariableBroadcast(&db->kill_switch.idle);
}

/* ---------- version and tables (table_fit.c) ---------- */

/* Is the database as the library expects it?  Writes log and trouble when the answer is another than before. */
static bool
is_fit(void)
{
	const char *trouble = fit_trouble();

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

/* All that is remembered came from tables that have changed: a new dispatcher waits until they fit. */
static void
leave_unfit(void)
{
	db->lifecycle.wanted = true;
	proc_exit(0);
}

/* ---------- one turn ---------- */

/* Who holds one of these exclusively stops the reading of them, not the dispatcher. */
static bool
lock_limits(void)
{
	return lock_rows_if_free(jobq_relid("limits")) && lock_rows_if_free(jobq_relid("stopped"));
}

static void
scan_and_hand_out(bool sweep_now, TimestampTz now, MonoTime mono)
{
	QueueScan	scan;
	bool		open;

	if (news.types_changed && lock_limits())
	{
		news.types_changed = false;
		job_types_forget();		/* the messages come after the callback that told us */
		admission_reload(now);
		want_full_scan |= types_have_leftovers();
		want_full_scan |= types_key_order_changed();
		tenant_limits_suspect();
		registry_known = true;
		read_stop();
		pressure_stale();
	}
	if (news.signals_changed)
		pressure_stale();
	news.signals_changed = false;
	check_identity();			/* before conditions are asked */
	if (pressure_turn(now))
		admission_press(now);
	admission_timers(now);
	if (news.prepared_lost)
	{
		news.prepared_lost = false;
		want_full_scan = true;	/* one may have ended already */
		expect_unknown_prepared();
	}
	else if (sweep_now || prepared_may_have_ended())
		want_full_scan |= unknown_prepared_ended();
	apply_publications(now);
	open = scan_open(&scan, now);
	if (open)
	{
		scan_blocked_until = 0;
		if (scan.rewritten)
			reread_cancels();
		if (tenant_limits_refresh())
		{
			executors_recount_tenants(&scan);
			want_full_scan = true;
		}
		if (tenant_limits_are_suspect())
			scan_blocked_until = mono + BLOCKED_RETRY_US;
		if (want_full_scan || scan.rewritten)
			full_scan(&scan);
		want_full_scan = false;
		if (news.lost_from != DT_NOEND)
		{
			rescan(&scan, news.lost_from, true);
			keys_suspect();
		}
		if (keys_lost_order())
			rescan(&scan, DT_NOBEGIN, false);
		news.lost_from = DT_NOEND;
		run_commands(&scan);
		read_touched_lanes(&scan);
		if (sweep_now)
			sweep(&scan);
		scan_due_lanes(&scan);
		keys_turn(&scan);
		tenant_limits_turn(&scan);
	}
	else
	{
		run_commands(NULL);
		scan_blocked_until = mono + BLOCKED_RETRY_US;
	}
	if (!db->health.paused_identity)
		hand_out_cancels(mono);
	if (may_hand_out() && !news.types_changed)	/* what has changed may be that all is stopped */
		hand_out_ready(open ? &scan : NULL, now);
	if (open)
		scan_close(&scan);
}

/*
 * True if the wall clock was set, forth or back, since the lanes were read.  Both clocks run at one speed, so
 * their difference changes by steps only.  A step of less than a second makes nothing wait for longer.
 */
static bool
clock_was_set(TimestampTz now, MonoTime mono)
{
	static int64 difference = 0;
	int64		step = now - mono - difference;
	bool		known = difference != 0;

	if (known && step < CLOCK_STEP_US && step > -CLOCK_STEP_US)
		return false;
	difference = now - mono;
	if (known)
		ereport(LOG,
				(errcode(ERRCODE_WARNING),
				 errmsg("jobq: the wall clock was set %s by %.3f s: jobs run when it shows their time",
						step < 0 ? "back" : "forward", fabs(step / 1e6))));
	return known;
}

static bool
extension_is_here(void)
{
	bool		here;

	StartTransactionCommand();
	here = OidIsValid(jobq_relid("queue"));
	CommitTransactionCommand();
	return here;
}

static void
leave_without_extension(void)
{
	db->lifecycle.ended = ENDED_ABSENT;
	db->dispatcher.sql_workers = SQL_WORKERS_UNKNOWN;
	proc_exit(0);
}

/* Everything that may have to be read or handed out; false: nothing to do in a transaction. */
static bool
has_work(TimestampTz now, MonoTime mono, bool sweep_now)
{
	return sweep_now || intake_pending() || news.types_changed ||
		want_full_scan || news.prepared_lost || prepared_may_have_ended() ||
		news.signals_changed || pressure_due(mono) ||
		news.lost_from != DT_NOEND || lanes_first_ready() != NULL ||
		(mono >= scan_blocked_until && (scan_blocked_until > 0 || lanes_next_timer() <= now || keys_pending() ||
										 tenant_limits_pending())) ||
		admission_next_timer() <= mono;
}

/* Who holds the registry or the home row exclusively stops the reading, not the dispatcher. */
static bool
lock_registry(void)
{
	Oid			env = jobq_relid("job_type_env");	/* a database of release 0.1.0 has none */

	return lock_rows_if_free(jobq_relid("job_types")) && (!OidIsValid(env) || lock_rows_if_free(env)) &&
		lock_rows_if_free(jobq_relid("home"));
}

static void
one_turn(void)
{
	TimestampTz now = GetCurrentTimestamp();
	MonoTime	mono = mono_now();
	bool		sweep_now;

	wake_worker(now, may_hand_out());
	StartTransactionCommand();
	if (!OidIsValid(jobq_relid("queue")))
		leave_without_extension();
	if (!is_fit())
		leave_unfit();
	if (registry_known)
		(void) executors_collect(mono);	/* what has started is told to all limits */
	/* before the publications: a transaction whose drain has ended has published its row */
	db->kill_switch.draining = db->kill_switch.ndrains > 0;
	pg_memory_barrier();
	registry_locked = !lock_registry();
	if (registry_locked)
	{
		executors_wake();
		CommitTransactionCommand();
		return;
	}
	take_publications(&news);
	news.types_changed |= roles_changed();
	now = GetCurrentTimestamp();	/* after the publications: their keys are not in the future */
	mono = mono_now();
	if (clock_was_set(now, mono))
	{
		admission_clock_was_set(now);
		want_full_scan = true;
	}
	sweep_now = mono >= next_sweep;
	if (sweep_now && types_lack_windows() && mono >= windows_retry)
	{
		news.types_changed = true;	/* another database may have given some back */
		windows_retry = mono + WINDOWS_RETRY_US;
	}
	take_commands();
	release_held(mono, maintenance_is_done());
	if (has_work(now, mono, sweep_now))
		scan_and_hand_out(sweep_now, now, mono);
	if (sweep_now)
	{
		watch_machine(db, mono);
		next_sweep = mono + (MonoTime) jobq_sweep_interval * 1000;
	}
	see_to_stop();
	executors_wake();
	executors_balance(mono);
	compaction_turn(mono, sweep_now);
	CommitTransactionCommand();
	if (types_names_stale())
		upkeep_refresh_names();
	upkeep_turn(mono);
	notify_turn(mono);
}

static long
sleep_ms(MonoTime now)
{
	MonoTime	next = next_sweep;

	if (must_start_anew())
		return 0;
	if (registry_locked || news.types_changed)
		return BLOCKED_RETRY_US / 1000;	/* somebody has a lock of what is to be read */
	if (lanes_first_ready() != NULL && executors_running() < jobq_max_concurrent && may_hand_out())
		return 0;
	if (scan_blocked_until > 0)
		next = Min(next, scan_blocked_until);	/* even when that is past */
	else
		next = Min(next, keys_pending() || tenant_limits_pending() ? now : mono_at(lanes_next_timer()));
	next = Min(next, admission_next_timer());
	next = Min(next, pressure_next_timer(now));
	next = Min(next, executors_next_timer());
	next = Min(next, upkeep_next_timer());
	next = Min(next, held_next_timer());
	next = Min(next, compaction_next_timer());
	next = Min(next, notify_next_timer());
	return Min(mono_ms_left(now, next), 60000);
}

static void
say_trouble(void)
{
	static char said[sizeof(db->health.trouble)] = "";
	char		text[sizeof(db->health.trouble)];

	admission_trouble(text, sizeof(text));
	if (strcmp(text, said) == 0)
		return;
	strlcpy(said, text, sizeof(said));
	set_trouble("%s", text);
}

/* ALTER DATABASE ... SET counts for a new session only: the launcher starts our successor at once, which starts executors. */
static void
start_anew(void)
{
	executors_dismiss();
	db->requests.reload = false;
	db->lifecycle.wanted = true;
	proc_exit(0);
}

/*
 * Answers health() and DDL: the turn before is over.  DDL also waits for the
 * signal worker, which locks our tables in another order than DROP.
 */
static void
answer_ping(void)
{
	uint64		ping = pg_atomic_read_u64(&db->health.ping);

	pg_read_barrier();			/* DDL suspends before it asks */
	if (db->lifecycle.suspended == 0 || signal_worker_leave())
		pg_atomic_write_u64(&db->health.pong, ping);
}

static void
sleep_until_needed(void)
{
	MonoTime	now = mono_now();
	long		timeout = db->lifecycle.suspended ? 1000 : db_is_paused(db) ? PAUSED_MS : sleep_ms(now);

	pg_atomic_write_u64(&db->health.beat, (uint64) now);
	say_trouble();
	pgstat_report_stat(false);
	pgstat_report_activity(STATE_IDLE, NULL);
	if (timeout > 0 && (db->lifecycle.suspended || !quiet_settle()))
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, timeout,
						 jobq_wait(WAIT_DISPATCHER));
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	pgstat_report_activity(STATE_RUNNING, "jobq: dispatching");
	answer_ping();
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
		db->dispatcher.sql_workers = jobq_max_sql_workers;
		news.types_changed = true;
		upkeep_now();			/* the limits of the disk watch may be others */
	}
	if (must_start_anew())
		start_anew();
}

/* ---------- the process ---------- */

static void
wake_launcher(void)
{
	if (JobqShmem->launcher)
		SetLatch(JobqShmem->launcher);
}

static void
dispatcher_on_exit(int code, Datum arg)
{
	intake_leave();
	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	if (db->dispatcher.proc == MyProc)
	{
		db->dispatcher.proc = NULL;
		db->dispatcher.pid = 0;
	}
	LWLockRelease(JobqShmem->lock);
	wake_launcher();
}

static void
attach(Oid dboid)
{
	bool		taken;

	db = make_db(dboid);
	if (db == NULL)
		proc_exit(0);
	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	taken = db->dispatcher.proc != NULL;
	if (!taken)
	{
		db->dispatcher.proc = MyProc;
		db->dispatcher.pid = MyProcPid;
		db->dispatcher.started = GetCurrentTimestamp();
		db->dispatcher.starts++;
		db->lifecycle.ended = ENDED_OTHERWISE;
	}
	LWLockRelease(JobqShmem->lock);
	if (taken)
		proc_exit(0);
	on_shmem_exit(dispatcher_on_exit, 0);
}

/* What crashed with the server. */
static void
mark_suspects(void)
{
	Suspect		suspects[JOBQ_MAX_SLOTS];
	int			n = inflight_take_suspects(db->dboid, suspects, JOBQ_MAX_SLOTS);

	for (int i = 0; i < n; i++)
		scan_mark(&suspects[i].id, ANY_REV, suspects[i].guilty ? 0 : REF_ALONE, suspects[i].guilty ? CHARGE_CRASHED : CHARGE_NONE);
}

static void
start_up(void)
{
	lasting = AllocSetContextCreate(TopMemoryContext, "jobq dispatcher", ALLOCSET_DEFAULT_SIZES);
	turn = AllocSetContextCreate(TopMemoryContext, "jobq turn", ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(lasting);
	keys_init(lasting, executors_per_key);
	tenant_limits_init(lasting);
	lanes_init(lasting);
	admission_init(lasting, db);
	pressure_init(lasting, db);
	executors_init(lasting, db);
	intake_init(lasting, db);
	quiet_init(db);
	compaction_init(lasting, db);
	prepared_init(db);
	scan_init(db);
	upkeep_init(db);
	wake_init(db);
	StartTransactionCommand();
	executors_recover();
	expect_unknown_prepared();
	CommitTransactionCommand();
	mark_suspects();
}

/* No executor of the database is left, not even of a former dispatcher. */
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

/* Reads and hands out nothing, answers health() and makes way for DDL, until version and tables fit. */
static void
wait_until_fit(void)
{
	bool		fit = false;

	for (;;)
	{
		if (db_must_leave(db) && is_empty())
		{
			db->lifecycle.ended = ENDED_GAVE_WAY;
			proc_exit(0);
		}
		if (!db->lifecycle.suspended && !db_must_leave(db))
		{
			StartTransactionCommand();
			if (!OidIsValid(jobq_relid("queue")))
				leave_without_extension();
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

/* DDL has the floor: nothing is handed out or read, nothing of ours is locked. */
static void
suspended_turn(void)
{
	StartTransactionCommand();
	executors_take_back(true);
	(void) executors_collect(mono_now());
	CommitTransactionCommand();
	if (db_must_leave(db) && signal_worker_leave() && !executors_any())
	{
		db->lifecycle.ended = ENDED_GAVE_WAY;
		proc_exit(0);
	}
}

/* The queue is about to be written anew: what nobody has begun names rows that will be elsewhere. */
static void
paused_turn(void)
{
	StartTransactionCommand();
	executors_take_back(true);
	(void) executors_collect(mono_now());
	CommitTransactionCommand();
}

void
jobq_dispatcher_main(Datum arg)
{
	Oid			dboid = DatumGetObjectId(arg);

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(dboid, InvalidOid, 0);
	attach(dboid);
	neutralise_session();
	set_for_session("search_path", "");
	set_for_session("synchronous_commit", "off");
	if (!extension_is_here())
		leave_without_extension();
	db->dispatcher.sql_workers = jobq_max_sql_workers;
	wake_launcher();			/* it adds up the workers of all databases */
	wait_until_fit();
	start_up();
	notify_init(db);

	for (;;)
	{
		MemoryContextReset(turn);
		MemoryContextSwitchTo(turn);
		if (db->lifecycle.suspended || db_must_leave(db))
			suspended_turn();
		else if (db_is_paused(db))
			paused_turn();
		else
			one_turn();
		MemoryContextSwitchTo(turn);
		sleep_until_needed();
	}
}
