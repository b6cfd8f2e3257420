/*
 * dispatcher_turn.c
 *	  One turn of the dispatcher.
 *
 * In one transaction: reports of executors come first, then publications and
 * cancels, then a snapshot, the lanes that are due, and hand-out in lane order
 * until no executor can take more.
 */
#include "jobq.h"

#include "access/xact.h"
#include "utils/timestamp.h"

#include "base/conditional_lock.h"
#include "base/relations.h"
#include "dispatch/admission.h"
#include "dispatch/database_check.h"
#include "dispatch/dispatcher_parts.h"
#include "dispatch/dispatcher_turn.h"
#include "dispatch/hand_out.h"
#include "dispatch/hand_out_stop.h"
#include "dispatch/held_lanes.h"
#include "dispatch/inbox.h"
#include "dispatch/lane_reader.h"
#include "dispatch/statistics.h"
#include "dispatch/unknown_prepared.h"
#include "dispatch/wakeup_filter.h"
#include "dispatch/why_answers.h"
#include "limits/concurrency_keys.h"
#include "limits/min_batch.h"
#include "limits/tenant_limit.h"
#include "limits/weight.h"
#include "maintenance/maintenance.h"
#include "pressure/builtin_signals.h"
#include "pressure/pressure_rules.h"
#include "registry/job_types.h"
#include "schedule/conductor_start.h"
#include "shared/clock_steps.h"
#include "shared/publish_schedules.h"
#include "shared/wakeups.h"
#include "workers/cancel_requests.h"
#include "workers/claimers.h"
#include "workers/executor_pool.h"
#include "workers/executor_reports.h"
#include "workers/former_claims.h"
#include "workers/returned_jobs.h"
#include "workers/leases.h"
#include "workers/run_starts.h"
#include "workers/take_back.h"
#include "workers/worker_pool.h"

#define WINDOWS_RETRY_US	(10 * USECS_PER_SEC)
#define BLOCKED_RETRY_US	INT64CONST(100000)	/* a session holds the queue's lock */

static JobqDb *db;
static bool want_all_lanes = true;
static News news = {.types_changed = true, .lost_from = DT_NOEND};
static MonoTime scan_blocked_until = 0;	/* 0: the last reading was not blocked */
static bool registry_locked = false;
static bool registry_known = false;	/* has been read once */
static MonoTime next_sweep = 0;
static MonoTime windows_retry = 0;

void
dispatcher_turn_init(MemoryContext context, JobqDb *mine)
{
	db = mine;
}

/*
 * Locks the tables of limits; false: a session holds one exclusively.  That
 * stops the reading of them, not the dispatcher.
 */
static bool
lock_limits(void)
{
	return lock_rows_if_free(jobq_relid("limits")) && lock_rows_if_free(jobq_relid("stopped"));
}

/* Takes changes of types, limits and the kill switch. */
static void
take_settings(TimestampTz now)
{
	news.types_changed = false;
	job_types_forget();			/* the messages come after the callback that ran */
	admission_reload(now);
	want_all_lanes |= types_have_leftovers();
	want_all_lanes |= types_key_order_changed();
	tenant_limits_suspect();
	claimers_types_changed();
	registry_known = true;
	read_stop();
	pressure_stale();
}

/* Takes all changes but those of jobs. */
static void
take_changes(bool sweep_now, TimestampTz now)
{
	bool		types_read = news.types_changed && lock_limits();
	bool		is_new;

	if (types_read)
		take_settings(now);
	if (news.signals_changed)
		pressure_stale();
	news.signals_changed = false;
	is_new = identity_changed();
	if (is_new)					/* before conditions are evaluated */
	{
		want_all_lanes = true;
		leases_suspect();		/* jobq.adopt() ends leases of the original */
	}
	if ((types_read || is_new) && identity_is_ours())
		maintenance_partitions_soon();	/* a type may have a new retention time */
	if (pressure_turn(now))
		admission_press(now);
	admission_timers(now);
	if (news.prepared_lost)
	{
		news.prepared_lost = false;
		want_all_lanes = true;	/* one may have ended already */
		expect_unknown_prepared();
		leases_suspect();
	}
	else if ((sweep_now || prepared_may_have_ended()) && unknown_prepared_ended())
	{
		want_all_lanes = true;
		leases_suspect();		/* it may have ended attempts */
	}
}

/* Reads what is due: all lanes, those with news, leases, keys. */
static void
read_queue(QueueScan *scan, bool sweep_now, MonoTime mono)
{
	scan_blocked_until = 0;
	if (scan->rewritten)
		cancels_reread();
	if (tenant_limits_refresh())
	{
		executors_recount_tenants(scan);
		leases_recount_tenants(scan);
		want_all_lanes = true;
	}
	if (tenant_limits_are_suspect())
		scan_blocked_until = mono + BLOCKED_RETRY_US;
	if (want_all_lanes || scan->rewritten)
		read_all_lanes(scan);
	want_all_lanes = false;
	if (news.lost_from != DT_NOEND)
	{
		reread_lanes(scan, news.lost_from, true);
		keys_suspect();
	}
	if (keys_lost_order())
		reread_lanes(scan, DT_NOBEGIN, false);
	news.lost_from = DT_NOEND;
	read_leases(scan);
	leases_turn(scan);
	cancels_run(scan);
	inbox_read_lanes(scan);
	if (sweep_now)
		sweep(scan);
	read_due_lanes(scan);
	keys_turn(scan);
	tenant_limits_turn(scan);
}

static void
read_and_hand_out(bool sweep_now, TimestampTz now, MonoTime mono)
{
	QueueScan	opened;
	QueueScan  *scan = NULL;	/* NULL: a session holds the queue's lock */

	take_changes(sweep_now, now);
	inbox_apply(now);
	if (scan_open(&opened, now))
	{
		scan = &opened;
		read_queue(scan, sweep_now, mono);
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
	claimers_open(scan);
	leases_take_back_runs(false, now);
	run_starts_open();
	if (may_hand_out() && !news.types_changed)	/* the change may be that all is stopped */
		hand_out_ready(scan, now);
	if (sweep_now)
		held_lanes_turn(now, mono);
	if (statistics_due(mono))
		statistics_turn(scan, now, mono);
	if (!news.types_changed)
		why_turn(scan, now);
	if (scan != NULL)
		scan_close(scan);
}

/*
 * True if anything may have to be read or handed out; false: nothing to do in
 * a transaction.
 */
static bool
has_work(TimestampTz now, MonoTime mono, bool sweep_now)
{
	return sweep_now || inbox_pending() || why_pending(mono) || claimers_pending() || run_starts_pending() ||
		cancels_pending() || (leases_pending(mono) && mono >= scan_blocked_until) || news.types_changed ||
		want_all_lanes || news.prepared_lost || prepared_may_have_ended() ||
		news.signals_changed || pressure_due(mono) ||
		news.lost_from != DT_NOEND || lanes_first_ready() != NULL ||
		(mono >= scan_blocked_until && (scan_blocked_until > 0 || lanes_next_timer() <= now || keys_pending() ||
										 tenant_limits_pending())) ||
		admission_next_timer(mono) <= mono || batch_gates_next_timer() <= now || statistics_due(mono);
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

bool
dispatcher_turn(void)
{
	TimestampTz now = GetCurrentTimestamp();
	MonoTime	mono = mono_now();
	bool		reports;
	bool		sweep_now;

	worker_wake(now, may_hand_out());
	StartTransactionCommand();
	check_extension();
	check_fit();
	/* starts are noted for all limits */
	reports = registry_known && executor_reports_take(mono);
	read_drain();
	registry_locked = !lock_registry();
	(void) claimers_take();		/* before the publications: a claim gets what was committed before it */
	if (registry_locked)
	{
		claimers_answer();
		executors_wake();
		CommitTransactionCommand();
		return reports;
	}
	inbox_take(&news);
	news.types_changed |= roles_changed();
	now = GetCurrentTimestamp();	/* after the publications: their keys are not in the future */
	mono = mono_now();
	if (clock_was_set(db, now, mono))
	{
		admission_clock_was_set(now);
		wake_conductor(db);
		maintenance_partitions_soon();	/* now has other partitions */
		want_all_lanes = true;
	}
	conductor_start_look();
	sweep_now = mono >= next_sweep;
	if (sweep_now && types_lack_windows() && mono >= windows_retry)
	{
		news.types_changed = true;	/* another database may have given some windows back */
		windows_retry = mono + WINDOWS_RETRY_US;
	}
	cancels_take();
	held_release(mono);
	if (has_work(now, mono, sweep_now))
		read_and_hand_out(sweep_now, now, mono);
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
		maintenance_partitions_soon();
	parts_turn(mono);
	return reports;
}

long
dispatcher_turn_sleep_ms(MonoTime now)
{
	MonoTime	next = next_sweep;

	if (registry_locked || news.types_changed)
		return BLOCKED_RETRY_US / 1000;	/* a session holds a lock of a table that is to be read */
	if (lanes_first_ready() != NULL && hand_out_has_room() && may_hand_out())
		return 0;
	if (scan_blocked_until > 0)
		next = Min(next, scan_blocked_until);	/* even when that is past */
	else
		next = Min(next, keys_pending() || tenant_limits_pending() ? now : Min(mono_at(lanes_next_timer()), leases_next_timer()));
	next = Min(next, parts_next_timer(now));
	return Min(mono_ms_left(now, next), 60000);
}

void
dispatcher_turn_settings_changed(void)
{
	db->dispatcher.sql_workers = jobq_max_sql_workers;
	news.types_changed = true;
	maintenance_soon();				/* the limits of the disk watch may have changed */
}
