/*
 * dispatcher.c
 *	  The process that decides which job of a database runs next, where and
 *	  when.
 *
 * The launcher starts one per database (bgw_main_arg), connected as the
 * bootstrap superuser.  It reads the queue and the registry and writes
 * nothing; executors do.  It sleeps on its latch, which is set by commits that
 * touched the queue, by executors that have a report, by DDL and by health
 * checks (wakeups.h).  Its timeout is the next time at which anything becomes
 * due.
 *
 * One turn of the loop: collect reports of executors; take publications and
 * cancels; then, in one transaction, take a snapshot and read the lanes that
 * are due; hand out in lane order until no executor can take more; start
 * workers.  The dispatcher takes relation locks only when they are free at
 * once and never waits for a row, a lock or a standby.
 *
 * Exits with 0 when the extension is gone, when its tables do not fit or when
 * DDL needs the database empty; else with 1, and the launcher starts another
 * dispatcher, which finds the jobs in flight in the slots.
 *
 *	 hand_out_stop.c database_check.c	reasons to hand out nothing, wait, end
 *	 inbox.c unknown_prepared.c			publications, prepared transactions
 *	 lane_reader.c						when lanes are read
 *	 hand_out.c							handing out in order
 *	 admission.c						changes of types, limits and signals
 *	 why_answers.c						answers to jobq.why
 *	 dispatcher_wait.c wakeup_filter.c	early wake-ups, and those saved
 *	 statistics.c held_lanes.c			for views: totals, lanes and limits
 *	 lanes/ limits/ pressure/ workers/	jobs that wait, limits, executors
 */
#include "jobq.h"

#include <signal.h>

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
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
#include "dispatch/database_check.h"
#include "dispatch/dispatcher_wait.h"
#include "dispatch/hand_out.h"
#include "dispatch/hand_out_stop.h"
#include "dispatch/held_lanes.h"
#include "dispatch/inbox.h"
#include "dispatch/lane_reader.h"
#include "dispatch/notify.h"
#include "dispatch/statistics.h"
#include "dispatch/trouble.h"
#include "dispatch/unknown_prepared.h"
#include "dispatch/wakeup_filter.h"
#include "dispatch/why_answers.h"
#include "limits/concurrency_keys.h"
#include "limits/min_batch.h"
#include "limits/tenant_limit.h"
#include "limits/weight.h"
#include "maintenance/maintenance_schedule.h"
#include "pressure/pressure_rules.h"
#include "registry/job_types.h"
#include "schedule/conductor_start.h"
#include "shared/clock_steps.h"
#include "shared/crash_record.h"
#include "shared/publish_schedules.h"
#include "shared/wait_events.h"
#include "shared/wakeups.h"
#include "shared/worker_need.h"
#include "workers/cancel_requests.h"
#include "workers/claimers.h"
#include "workers/run_starts.h"
#include "workers/executor_pool.h"
#include "workers/executor_results.h"
#include "workers/leases.h"
#include "workers/returned_jobs.h"
#include "workers/take_back.h"
#include "workers/worker_pool.h"

#define WINDOWS_RETRY_US	(10 * USECS_PER_SEC)
#define BLOCKED_RETRY_US	INT64CONST(100000)	/* a session holds the queue's lock */

static JobqDb *db;
static MemoryContext lasting;	/* lives as long as the process */
static MemoryContext turn;		/* reset every turn */

static bool want_full_scan = true;
static News news = {.types_changed = true, .lost_from = DT_NOEND};
static MonoTime scan_blocked_until = 0;	/* 0: the last reading was not blocked */
static bool registry_locked = false;
static bool registry_known = false;	/* has been read once */
static MonoTime next_sweep = 0;
static MonoTime windows_retry = 0;
static StatWakeup woken_by = WAKEUP_OTHER;

PGDLLEXPORT void jobq_dispatcher_main(Datum arg);

/* ---------- one turn ---------- */

/*
 * Locks the tables of limits; false: a session holds one exclusively.  That
 * stops the reading of them, not the dispatcher.
 */
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
		job_types_forget();		/* the messages come after the callback that ran */
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
	if (identity_changed())		/* before conditions are evaluated */
	{
		want_full_scan = true;
		leases_suspect();		/* jobq.adopt() ends leases of the original */
	}
	if (pressure_turn(now))
		admission_press(now);
	admission_timers(now);
	if (news.prepared_lost)
	{
		news.prepared_lost = false;
		want_full_scan = true;	/* one may have ended already */
		expect_unknown_prepared();
		leases_suspect();
	}
	else if ((sweep_now || prepared_may_have_ended()) && unknown_prepared_ended())
	{
		want_full_scan = true;
		leases_suspect();		/* it may have ended attempts */
	}
	apply_publications(now);
	open = scan_open(&scan, now);
	if (open)
	{
		scan_blocked_until = 0;
		if (scan.rewritten)
			cancels_reread();
		if (tenant_limits_refresh())
		{
			executors_recount_tenants(&scan);
			leases_recount_tenants(&scan);
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
		read_leases(&scan);
		leases_turn(&scan);
		cancels_run(&scan);
		read_touched_lanes(&scan);
		if (sweep_now)
			sweep(&scan);
		scan_due_lanes(&scan);
		keys_turn(&scan);
		tenant_limits_turn(&scan);
	}
	else
	{
		cancels_run(NULL);
		scan_blocked_until = mono + BLOCKED_RETRY_US;
	}
	if (!db->health.paused_identity)
	{
		cancels_hand_out(mono);
		leases_settle(mono);
	}
	batch_gates_turn(now);
	claimers_open(open ? &scan : NULL);
	leases_take_back_runs(false, now);
	runs_open();
	if (may_hand_out() && !news.types_changed)	/* the change may be that all is stopped */
		hand_out_ready(open ? &scan : NULL, now);
	if (sweep_now)
		held_lanes_turn(now);
	if (statistics_due(mono))
		statistics_turn(open ? &scan : NULL, now, mono);
	if (!news.types_changed)
		why_turn(open ? &scan : NULL, now);
	if (open)
		scan_close(&scan);
}

/*
 * True if anything may have to be read or handed out; false: nothing to do in
 * a transaction.
 */
static bool
has_work(TimestampTz now, MonoTime mono, bool sweep_now)
{
	return sweep_now || intake_pending() || why_pending(mono) || claimers_pending() || runs_pending() || cancels_pending() ||
		(leases_pending(mono) && mono >= scan_blocked_until) || news.types_changed ||
		want_full_scan || news.prepared_lost || prepared_may_have_ended() ||
		news.signals_changed || pressure_due(mono) ||
		news.lost_from != DT_NOEND || lanes_first_ready() != NULL ||
		(mono >= scan_blocked_until && (scan_blocked_until > 0 || lanes_next_timer() <= now || keys_pending() ||
										 tenant_limits_pending())) ||
		admission_next_timer() <= mono || batch_gates_next_timer() <= now || statistics_due(mono);
}

/*
 * Locks the registry and the home row; false: a session holds one exclusively.
 * That stops the reading, not the dispatcher.
 */
static bool
lock_registry(void)
{
	return lock_rows_if_free(jobq_relid("job_types")) && lock_rows_if_free(jobq_relid("job_type_env")) &&
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
	check_extension();
	check_fit();
	/* starts are noted for all limits */
	if (registry_known && executors_collect(mono) && woken_by == WAKEUP_OTHER)
		woken_by = WAKEUP_REPORT;
	read_drain();
	registry_locked = !lock_registry();
	(void) claimers_take();		/* before the publications: a claim gets what was committed before it */
	if (registry_locked)
	{
		claimers_answer();
		executors_wake();
		CommitTransactionCommand();
		return;
	}
	take_publications(&news);
	news.types_changed |= roles_changed();
	now = GetCurrentTimestamp();	/* after the publications: their keys are not in the future */
	mono = mono_now();
	if (clock_was_set(db, now, mono))
	{
		admission_clock_was_set(now);
		wake_conductor(db);
		want_full_scan = true;
	}
	conductor_look();
	sweep_now = mono >= next_sweep;
	if (sweep_now && types_lack_windows() && mono >= windows_retry)
	{
		news.types_changed = true;	/* another database may have given some windows back */
		windows_retry = mono + WINDOWS_RETRY_US;
	}
	cancels_take();
	release_held(mono, maintenance_is_done());
	if (has_work(now, mono, sweep_now))
		scan_and_hand_out(sweep_now, now, mono);
	if (sweep_now)
	{
		watch_machine(db, mono);
		next_sweep = mono + (MonoTime) jobq_sweep_interval * 1000;
	}
	pg_atomic_write_u32(&db->health.leases, leases_held() | (leases_are_being_read() ? LEASES_UNKNOWN : 0));
	pg_atomic_write_u32(&db->health.weight, weight_budget > 0 ? (uint32) weight_used() : 0);
	pg_atomic_write_u32(&db->health.max_weight, (uint32) weight_budget);
	stop_turn();
	claimers_answer();
	executors_wake();
	executors_take_back_slow(mono);
	executors_balance(mono);
	CommitTransactionCommand();
	if (types_names_stale())
		upkeep_refresh_names();
	upkeep_turn(mono);
	conductor_turn(mono);
	notify_turn(mono);
}

static long
sleep_ms(MonoTime now)
{
	MonoTime	next = next_sweep;

	if (reload_is_due())
		return 0;
	if (registry_locked || news.types_changed)
		return BLOCKED_RETRY_US / 1000;	/* a session holds a lock of a table that is to be read */
	if (lanes_first_ready() != NULL && hand_out_has_room() && may_hand_out())
		return 0;
	if (scan_blocked_until > 0)
		next = Min(next, scan_blocked_until);	/* even when that is past */
	else
		next = Min(next, keys_pending() || tenant_limits_pending() ? now : Min(mono_at(lanes_next_timer()), leases_next_timer()));
	next = Min(next, admission_next_timer());
	next = Min(next, mono_at(batch_gates_next_timer()));
	next = Min(next, pressure_next_timer(now));
	next = Min(next, executors_next_timer());
	next = Min(next, cancels_next_timer());
	next = Min(next, take_back_next_timer(now));
	next = Min(next, upkeep_next_timer());
	next = Min(next, conductor_next_timer());
	next = Min(next, held_next_timer());
	next = Min(next, notify_next_timer());
	next = Min(next, statistics_next_timer());
	next = Min(next, why_next_timer());
	return Min(mono_ms_left(now, next), 60000);
}

/*
 * Answers health() and DDL: the turn before is over.  DDL also waits for the
 * signal worker, which locks the extension's tables in another order than
 * DROP.
 */
static void
answer_ping(void)
{
	uint64		ping = pg_atomic_read_u64(&db->health.ping);

	pg_read_barrier();			/* DDL suspends the dispatcher before it pings */
	if (db->lifecycle.suspended == 0 || signal_worker_leave())
		pg_atomic_write_u64(&db->health.pong, ping);
}

static void
sleep_until_needed(void)
{
	MonoTime	now = mono_now();
	long		timeout = db->lifecycle.suspended ? 1000 : sleep_ms(now);

	pg_atomic_write_u64(&db->health.beat, (uint64) now);
	trouble_turn();
	pgstat_report_stat(false);
	pgstat_report_activity(STATE_IDLE, NULL);
	statistics_note_turn(woken_by);
	woken_by = WAKEUP_OTHER;
	if (timeout > 0 && (db->lifecycle.suspended || !quiet_settle()) && !wakeup_is_due(&db->dispatcher.woken) &&
		(WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, timeout,
				   jobq_wait(WAIT_DISPATCHER)) & WL_TIMEOUT) != 0)
		woken_by = WAKEUP_TIMER;
	if (db->ring.head != db->ring.tail)
		woken_by = WAKEUP_COMMIT;
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
		upkeep_now();			/* the limits of the disk watch may have changed */
	}
	if (reload_is_due())
	{
		conductor_restart();
		reload();
	}
}

/* ---------- the process ---------- */

static void
dispatcher_on_exit(int code, Datum arg)
{
	cancels_leave();
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
	check_init(db);
	stop_init(db);
	trouble_init(db);
}

/* Marks the jobs that crashed with the server. */
static void
mark_suspects(void)
{
	Suspect		suspects[JOBQ_MAX_SLOTS];
	int			n = inflight_take_suspects(db->dboid, suspects, JOBQ_MAX_SLOTS);

	for (int i = 0; i < n; i++)
		scan_mark(&suspects[i].id, ANY_REV, suspects[i].guilty ? 0 : REF_ALONE, suspects[i].guilty ? CHARGE_CRASHED : CHARGE_NONE);
}

/*
 * Returns the smallest concurrency_per_key of the running jobs of the key.
 */
static int
smallest_per_key(uint64 key)
{
	return Min(executors_per_key(key), leases_per_key(key));
}

static void
start_up(void)
{
	lasting = AllocSetContextCreate(TopMemoryContext, "jobq dispatcher", ALLOCSET_DEFAULT_SIZES);
	turn = AllocSetContextCreate(TopMemoryContext, "jobq turn", ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(lasting);
	keys_init(lasting, smallest_per_key);
	tenant_limits_init(lasting);
	lanes_init(lasting);
	admission_init(lasting, db);
	pressure_init(lasting, db);
	executors_init(db);
	leases_init(lasting, db);
	claimers_init(lasting, db);
	runs_init(db);
	workers_init(lasting, db);
	returned_init(lasting);
	cancels_init(lasting, db);
	intake_init(lasting, db);
	quiet_init(db);
	prepared_init(db);
	why_init(db);
	scan_init(db);
	upkeep_init(db);
	conductor_init(db);
	wake_init(db);
	statistics_init(db);
	held_lanes_init(db);
	StartTransactionCommand();
	executors_recover();
	leases_recover();
	leases_suspect();
	claimers_recover();
	expect_unknown_prepared();
	CommitTransactionCommand();
	mark_suspects();
}

/*
 * Gives way to DDL: hands out and reads nothing, holds no lock of a table of
 * the extension.
 */
static void
suspended_turn(void)
{
	StartTransactionCommand();
	(void) claimers_take();
	claimers_answer();
	executors_take_back(true);
	(void) executors_collect(mono_now());
	CommitTransactionCommand();
	if (db_must_leave(db) && signal_worker_leave() && !executors_any())
	{
		db->lifecycle.ended = ENDED_GAVE_WAY;
		proc_exit(0);
	}
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
	StartTransactionCommand();
	check_extension();
	CommitTransactionCommand();
	db->dispatcher.sql_workers = jobq_max_sql_workers;
	wake_launcher();			/* it adds up the workers of all databases */
	wait_until_fit();
	start_up();
	notify_init(db);

	for (;;)
	{
		MemoryContextReset(turn);
		MemoryContextSwitchTo(turn);
		wakeups_taken(&db->dispatcher.woken);
		if (db->lifecycle.suspended || db_must_leave(db))
			suspended_turn();
		else
			one_turn();
		MemoryContextSwitchTo(turn);
		sleep_until_needed();
	}
}
