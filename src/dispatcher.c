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
 * Leaves with 0 when the extension is gone or DDL needs the database empty, else 1, and the launcher
 * starts another, which finds what is in flight in the slots.
 */
#include "jobq.h"

#include <signal.h>

#include "access/transam.h"
#include "access/xact.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/procarray.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "dispatcher.h"
#include "job_types.h"
#include "maintenance.h"

#define TAKE_AT_ONCE		256		/* publications copied under the spinlock */
#define SWEEP_ENTRIES		2000	/* index entries read per tick */
#define MAINTENANCE_US		(600 * USECS_PER_SEC)
#define BLOCKED_RETRY_US	INT64CONST(100000)	/* somebody has the queue's lock */

typedef struct Held
{
	JobRef		ref;
	TimestampTz until;
	bool		for_partition;
} Held;

typedef struct PendingCancel
{
	JobRef		ref;
	char		reason[JOBQ_REASON_LEN];
	bool		has_reason;
	bool		counted;		/* in its role's cancels */
} PendingCancel;

static JobqDb *db;
static MemoryContext lasting;	/* lives as long as the process */
static MemoryContext turn;		/* reset every turn */

static LaneKeys *pubs;			/* taken, not scanned */
static int	npubs = 0;
static int	pubs_size = 0;
static Held *held;
static int	nheld = 0;
static int	held_size = 0;
static PendingCancel *pending_cancels;
static int	npending = 0;
static int	pending_size = 0;

static bool want_full_scan = true;
static bool want_reload = true;
static TimestampTz rescan_from = DT_NOEND;	/* publications were lost from here on */
static TimestampTz scan_blocked_until = 0;
static TimestampTz partition_need = 0;
static TimestampTz next_maintenance = 0;
static uint64 handed_at_maintenance = 0;
static uint32 maintenance_seen = 0;
static uint32 maintenance_failed_seen = 0;
static TimestampTz next_sweep = 0;
static LaneId sweep_lane;
static Range sweep_at;
static bool sweeping = false;
static int	old_prepared = 0;	/* prepared transactions from before our time */
static int32 my_home = 0;

PGDLLEXPORT void jobq_dispatcher_main(Datum arg);

/* ---------- small stores ---------- */

static void *
grow_array(void *array, int *size, Size elem)
{
	*size = *size ? *size * 2 : 64;
	return array ? repalloc(array, elem * *size) : MemoryContextAlloc(lasting, elem * *size);
}

void
probe_again(const LaneKeys *keys)
{
	if (npubs == pubs_size)
		pubs = grow_array(pubs, &pubs_size, sizeof(LaneKeys));
	pubs[npubs++] = *keys;
}

static Lane *
lane_of(const JobRef *ref)
{
	LaneId		id = {ref->type_id, ref->priority, ref->sublane};

	return lane_get(&id, type_state);
}

void
return_job(const JobRef *ref)
{
	Lane	   *lane;

	if (known_lookup(known_jobs, ref->id) == NULL)
		return;
	lane = lane_of(ref);
	lane_unplace(lane);
	lane_return(lane, ref);
	lane_place(lane, GetCurrentTimestamp());
}

void
hold_job(const JobRef *ref, TimestampTz until, bool for_partition)
{
	Known	   *k = known_lookup(known_jobs, ref->id);

	if (k == NULL)
		return;
	k->where = HELD;
	if (nheld == held_size)
		held = grow_array(held, &held_size, sizeof(Held));
	held[nheld].ref = *ref;
	held[nheld].until = until;
	held[nheld].for_partition = for_partition;
	nheld++;
}

static TimestampTz
release_held(TimestampTz now, bool partitions_made)
{
	TimestampTz next = DT_NOEND;

	for (int i = 0; i < nheld;)
	{
		Held		h = held[i];

		if (h.until > now && !(h.for_partition && partitions_made))
		{
			next = Min(next, h.until);
			i++;
			continue;
		}
		held[i] = held[--nheld];
		return_job(&h.ref);
	}
	return next;
}

void
request_partition(TimestampTz need)
{
	partition_need = need;
	next_maintenance = 0;
}

void
set_trouble(const char *fmt,...)
{
	char		text[sizeof(db->trouble)];
	va_list		args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	SpinLockAcquire(&db->mutex);
	strlcpy(db->trouble, text, sizeof(db->trouble));
	SpinLockRelease(&db->mutex);
}

/* ---------- publications ---------- */

/* Prepared transactions that have ended since: what they touched is news. */
static int
take_prepared(LaneKeys *out)
{
	struct
	{
		TransactionId xid;
		LaneKeys	pub;
	}			copy[JOBQ_MAX_PREPARED];
	int			n;
	int			taken = 0;
	int			kept = 0;

	SpinLockAcquire(&db->mutex);
	n = db->nprepared;
	memcpy(copy, db->prepared, sizeof(copy[0]) * n);
	SpinLockRelease(&db->mutex);
	for (int i = 0; i < n; i++)
	{
		if (!TransactionIdIsInProgress(copy[i].xid))
			out[taken++] = copy[i].pub;
		else
			copy[kept++] = copy[i];
	}
	if (taken > 0)
	{
		SpinLockAcquire(&db->mutex);
		/* others may have been added behind the n we looked at */
		memmove(&db->prepared[kept], &db->prepared[n], sizeof(copy[0]) * (db->nprepared - n));
		memcpy(db->prepared, copy, sizeof(copy[0]) * kept);
		db->nprepared -= taken;
		SpinLockRelease(&db->mutex);
	}
	return taken;
}

static void
take_publications(void)
{
	LaneKeys	some[TAKE_AT_ONCE];
	bool		more = true;

	while (more)
	{
		int			n = 0;

		SpinLockAcquire(&db->mutex);
		while (n < TAKE_AT_ONCE && db->ring_head != db->ring_tail)
			some[n++] = db->ring[db->ring_head++ % jobq_max_lanes];
		more = db->ring_head != db->ring_tail;
		if (db->overflow)
			rescan_from = Min(rescan_from, db->overflow_lo);
		db->overflow = false;
		want_reload |= db->types_changed;
		db->types_changed = false;
		SpinLockRelease(&db->mutex);
		for (int i = 0; i < n; i++)
			probe_again(&some[i]);
	}
	if (db->nprepared > 0)
	{
		int			n = take_prepared(some);

		for (int i = 0; i < n; i++)
			probe_again(&some[i]);
	}
}

/* Gives each publication to its lane. */
static void
apply_publications(TimestampTz now)
{
	for (int i = 0; i < npubs; i++)
	{
		LaneId		id = {pubs[i].type_id, pubs[i].priority, pubs[i].sublane};
		Lane	   *lane = lane_get(&id, type_state);

		lane_unplace(lane);
		lane_publish(lane, pubs[i].lo, pubs[i].hi);
		lane_place(lane, now);
	}
	npubs = 0;
}

/* ---------- commands ---------- */

static void
add_pending_cancel(const JobRef *ref, const Command *c)
{
	PendingCancel *p;
	bool		found;
	Known	   *k = known_insert(known_jobs, ref->id, &found);

	k->where = HELD;			/* whatever waits in a lane of it is stale now */
	k->rev = ref->rev;
	if (!found)
		k->again = false;
	if (npending == pending_size)
		pending_cancels = grow_array(pending_cancels, &pending_size, sizeof(PendingCancel));
	p = &pending_cancels[npending++];
	p->ref = *ref;
	p->ref.flags |= REF_CANCEL;
	p->has_reason = c->has_reason;
	p->counted = false;
	strlcpy(p->reason, c->reason, sizeof(p->reason));
}

/* A running job is told; one that has come back to wait meanwhile is settled by an executor. */
static void
run_command(QueueScan *scan, const Command *c)
{
	JobRef		ref;
	JobStatus	status;

	if (executors_cancel(&c->id, CANCEL_USER, c->has_reason ? c->reason : NULL))
		return;
	if (scan_find(scan, &c->id, &ref, &status) && status != JOB_RUNNING)
		add_pending_cancel(&ref, c);
}

static int
take_commands(Command *out)
{
	int			n;

	SpinLockAcquire(&db->mutex);
	n = db->ncommands;
	memcpy(out, db->commands, sizeof(Command) * n);
	db->ncommands = 0;
	SpinLockRelease(&db->mutex);
	return n;
}

static void
hand_out_cancels(TimestampTz now)
{
	for (int i = 0; i < npending;)
	{
		PendingCancel *p = &pending_cancels[i];
		TypeState  *t = type_state(p->ref.type_id);
		Known	   *k;

		if (hand_out(t, &p->ref, p->has_reason ? p->reason : NULL, now) != HANDED_OUT)
		{
			if (t->role && !p->counted)
			{
				t->role->cancels++;
				p->counted = true;
			}
			i++;
			continue;
		}
		if (p->counted)
			t->role->cancels--;
		if ((k = known_lookup(known_jobs, p->ref.id)) != NULL)
			k->where = IN_FLIGHT;
		pending_cancels[i] = pending_cancels[--npending];
	}
}

/* ---------- reading and handing out ---------- */

static void
see_lane(QueueScan *scan, const LaneId *id, TimestampTz lo)
{
	Lane	   *lane = lane_get(id, type_state);

	lane_unplace(lane);
	lane_publish(lane, lo, scan->now);
	lane_place(lane, scan->now);
}

/* Every lane there is, from `lo` on. */
static void
rescan(QueueScan *scan, TimestampTz lo)
{
	LaneId		id = {PG_INT32_MIN, PG_INT16_MAX, PG_INT16_MAX};

	while (scan_next_lane(scan, &id))
	{
		CHECK_FOR_INTERRUPTS();
		see_lane(scan, &id, lo);
	}
}

static void
full_scan(QueueScan *scan)
{
	for (int i = 0; i < nheld; i++)
	{
		Known	   *k = known_lookup(known_jobs, held[i].ref.id);

		if (k)
			known_delete_item(known_jobs, k);	/* read again like everything that waits */
	}
	nheld = 0;
	admission_forget_lanes();
	lanes_reset();
	rescan(scan, DT_NOBEGIN);
	sweeping = false;
}

/* The net under the publications: a bounded look behind the cursors, resumed at each tick. */
static void
sweep(QueueScan *scan)
{
	int			budget = SWEEP_ENTRIES;

	while (budget > 0)
	{
		Lane	   *lane;

		if (!sweeping)
		{
			LaneId		id = {PG_INT32_MIN, PG_INT16_MAX, PG_INT16_MAX};

			if (!scan_next_lane(scan, &id))
				return;
			sweep_lane = id;
			sweep_at.pos = DT_NOBEGIN;
			sweeping = true;
		}
		lane = lane_get(&sweep_lane, type_state);
		lane_unplace(lane);
		if (lane->cursor.pos == DT_NOBEGIN)
			lane_publish(lane, DT_NOBEGIN + 1, scan->now);
		if (!scan_behind(scan, lane, &sweep_at, &budget))
		{
			lane_place(lane, scan->now);
			return;
		}
		lane_place(lane, scan->now);
		budget -= 16;
		sweep_at.pos = DT_NOBEGIN;
		if (!scan_next_lane(scan, &sweep_lane))
		{
			sweeping = false;	/* once round: enough for this tick */
			return;
		}
	}
}

static void
scan_due_lanes(QueueScan *scan)
{
	Lane	   *lane;

	while ((lane = lanes_pop_due(scan->now)) != NULL)
	{
		scan_lane(scan, lane);
		lane_place(lane, scan->now);
		if (lane->place == LANE_TIMER && lane->next_due <= scan->now)
			break;				/* only dead rows in this chunk: go on in the next turn */
	}
}

static void
hand_out_ready(QueueScan *scan, TimestampTz now)
{
	Lane	   *lane;

	while (executors_running() < jobq_max_concurrent && (lane = lanes_first_ready()) != NULL)
	{
		TypeState  *t = lane->type;
		JobRef		ref = *lane_head(lane);

		if (!type_may_start(t, now))
		{
			lane_park(lane, &t->parked);
			continue;
		}
		switch (hand_out(t, &ref, NULL, now))
		{
			case HANDED_OUT:
				lane_unplace(lane);
				lane_pop(lane, &ref);
				known_lookup(known_jobs, ref.id)->where = IN_FLIGHT;
				if (scan && lane_wants_scan(lane, now))
					scan_lane(scan, lane);
				lane_place(lane, now);
				break;
			case NO_CAPACITY:
				if (t->role == NULL)
					lane_park(lane, &t->parked);
				else
					lane_park(lane, &t->role->parked);
				break;
			case TYPE_FULL:
				lane_park(lane, &t->parked);
				break;
		}
	}
}

/* ---------- identity, prepared transactions ---------- */

/* Are these jobs ours to run?  A restored dump's are not, until jobq.adopt(). */
static void
check_identity(void)
{
	int32		id = 0;
	bool		ours = home_is_ours(&id);

	if (!ours != db->paused_identity)
	{
		db->paused_identity = !ours;
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

static int
count_prepared(void)
{
	int			n = 0;

	SPI_connect();
	PushActiveSnapshot(GetTransactionSnapshot());
	if (SPI_execute("SELECT count(*)::int4 FROM pg_catalog.pg_prepared_xacts"
					" WHERE database = pg_catalog.current_database()", true, 1) == SPI_OK_SELECT)
	{
		bool		isnull;

		n = DatumGetInt32(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	}
	PopActiveSnapshot();
	SPI_finish();
	return n;
}

/* Those from before our start have published nothing that we still have. */
static void
watch_old_prepared(void)
{
	int			n;

	if (old_prepared == 0)
		return;
	n = count_prepared();
	if (n < old_prepared)
		want_full_scan = true;
	old_prepared = Min(n, old_prepared);
}

/* ---------- one turn ---------- */

static void
scan_and_hand_out(const Command *commands, int ncommands, bool sweep_now, TimestampTz now)
{
	QueueScan	scan;
	bool		open;

	if (want_reload)
	{
		want_reload = false;
		job_types_forget();		/* the messages come after the callback that told us */
		admission_reload(now);
	}
	admission_timers(now);
	check_identity();
	if (sweep_now)
		watch_old_prepared();
	apply_publications(now);
	open = scan_open(&scan, now);
	if (open)
	{
		if (want_full_scan)
			full_scan(&scan);
		want_full_scan = false;
		if (rescan_from != DT_NOEND)
			rescan(&scan, rescan_from);
		rescan_from = DT_NOEND;
		for (int i = 0; i < ncommands; i++)
			run_command(&scan, &commands[i]);
		if (sweep_now)
			sweep(&scan);
		scan_due_lanes(&scan);
	}
	else
		scan_blocked_until = now + BLOCKED_RETRY_US;
	if (!db->paused_identity)
	{
		hand_out_cancels(now);
		hand_out_ready(open ? &scan : NULL, now);
	}
	if (open)
		scan_close(&scan);
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
	db->absent = true;
	proc_exit(0);
}

static void
see_to_partitions(TimestampTz now)
{
	if (db->maintenance_failed != maintenance_failed_seen)
	{
		maintenance_failed_seen = db->maintenance_failed;
		next_maintenance = now + 2 * BLOCKED_RETRY_US;
	}
	if (now < next_maintenance)
		return;
	if (partition_need == 0 && pg_atomic_read_u64(&db->handed_out) == handed_at_maintenance)
		next_maintenance = now + MAINTENANCE_US;
	else if (maintenance_start(db, partition_need))
	{
		handed_at_maintenance = pg_atomic_read_u64(&db->handed_out);
		next_maintenance = now + MAINTENANCE_US;
		partition_need = 0;
	}
	else
		next_maintenance = now + BLOCKED_RETRY_US;
}

/* Everything that may have to be read or handed out; false: nothing to do in a transaction. */
static bool
has_work(TimestampTz now, int ncommands, bool sweep_now)
{
	return sweep_now || ncommands > 0 || npubs > 0 || npending > 0 || want_reload ||
		want_full_scan || rescan_from != DT_NOEND || lanes_first_ready() != NULL ||
		(lanes_next_timer() <= now && now >= scan_blocked_until) || admission_next_timer() <= now;
}

static void
one_turn(void)
{
	TimestampTz now = GetCurrentTimestamp();
	Command    *commands = NULL;
	int			ncommands = 0;
	bool		sweep_now;

	StartTransactionCommand();
	if (!OidIsValid(jobq_relid("queue")))
		leave_without_extension();
	(void) executors_collect(now);
	take_publications();
	now = GetCurrentTimestamp();	/* after the publications: their keys are not in the future */
	sweep_now = now >= next_sweep;
	if (db->ncommands > 0)
	{
		commands = MemoryContextAlloc(turn, sizeof(Command) * JOBQ_MAX_COMMANDS);
		ncommands = take_commands(commands);
	}
	(void) release_held(now, db->maintenance_done != maintenance_seen);
	maintenance_seen = db->maintenance_done;
	if (has_work(now, ncommands, sweep_now))
		scan_and_hand_out(commands, ncommands, sweep_now, now);
	if (sweep_now)
		next_sweep = now + (TimestampTz) jobq_sweep_interval * 1000;
	executors_wake();
	executors_balance(now);
	CommitTransactionCommand();
	see_to_partitions(now);
}

static long
sleep_ms(TimestampTz now)
{
	TimestampTz next = next_sweep;
	TimestampTz lanes = lanes_next_timer();

	if (lanes_first_ready() != NULL && executors_running() < jobq_max_concurrent &&
		!db->paused_identity)
		return 0;
	if (lanes < scan_blocked_until)
		lanes = scan_blocked_until;
	next = Min(next, lanes);
	next = Min(next, admission_next_timer());
	next = Min(next, executors_next_timer());
	next = Min(next, next_maintenance);
	for (int i = 0; i < nheld; i++)
		next = Min(next, held[i].until);
	if (next <= now)
		return 0;
	return (long) Min((next - now + 999) / 1000, 60000);
}

static void
say_trouble(void)
{
	static char said[sizeof(db->trouble)] = "";
	char		text[sizeof(db->trouble)];

	admission_trouble(text, sizeof(text));
	if (strcmp(text, said) == 0)
		return;
	strlcpy(said, text, sizeof(said));
	set_trouble("%s", text);
}

/* ALTER DATABASE ... SET counts for a new session only: the launcher starts our successor at once. */
static void
start_anew(void)
{
	db->reload = false;
	db->wanted = true;
	proc_exit(0);
}

static void
sleep_until_needed(void)
{
	TimestampTz now = GetCurrentTimestamp();
	long		timeout = db->suspended ? 1000 : sleep_ms(now);

	pg_atomic_write_u64(&db->beat, (uint64) now);
	say_trouble();
	pgstat_report_stat(false);
	pgstat_report_activity(STATE_IDLE, NULL);
	if (timeout > 0)
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, timeout,
						 PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	pgstat_report_activity(STATE_RUNNING, "jobq: dispatching");
	pg_atomic_write_u64(&db->pong, pg_atomic_read_u64(&db->ping));
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
		want_reload = true;
	}
	if (db->reload && npending == 0)
		start_anew();
}

/* ---------- the process ---------- */

static void
dispatcher_on_exit(int code, Datum arg)
{
	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	if (db->dispatcher == MyProc)
	{
		db->dispatcher = NULL;
		db->dispatcher_pid = 0;
	}
	LWLockRelease(JobqShmem->lock);
	if (JobqShmem->launcher)
		SetLatch(JobqShmem->launcher);
}

static void
attach(Oid dboid)
{
	bool		taken;

	db = make_db(dboid);
	if (db == NULL)
		proc_exit(0);
	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	taken = db->dispatcher != NULL;
	if (!taken)
	{
		db->dispatcher = MyProc;
		db->dispatcher_pid = MyProcPid;
		db->dispatcher_started = GetCurrentTimestamp();
		db->starts++;
		db->absent = false;
	}
	LWLockRelease(JobqShmem->lock);
	if (taken)
		proc_exit(0);
	on_shmem_exit(dispatcher_on_exit, 0);
}

static void
neutralise_settings(void)
{
	SetConfigOption("search_path", "", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("statement_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("lock_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("idle_in_transaction_session_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("default_transaction_isolation", "read committed", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("synchronous_commit", "off", PGC_SUSET, PGC_S_OVERRIDE);
}

static void
start_up(void)
{
	lasting = AllocSetContextCreate(TopMemoryContext, "jobq dispatcher", ALLOCSET_DEFAULT_SIZES);
	turn = AllocSetContextCreate(TopMemoryContext, "jobq turn", ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(lasting);
	lanes_init(lasting);
	admission_init(lasting);
	executors_init(lasting, db);
	StartTransactionCommand();
	executors_recover();
	old_prepared = count_prepared();
	CommitTransactionCommand();
	scan_nsuspects = inflight_take_suspects(db->dboid, scan_suspects, JOBQ_MAX_SLOTS);
	maintenance_seen = db->maintenance_done;
	maintenance_failed_seen = db->maintenance_failed;
	next_maintenance = GetCurrentTimestamp() + MAINTENANCE_US;
}

/* DDL has the floor: nothing is handed out or read, nothing of ours is locked. */
static void
suspended_turn(void)
{
	TimestampTz now = GetCurrentTimestamp();

	StartTransactionCommand();
	executors_take_back();
	(void) executors_collect(now);
	CommitTransactionCommand();
	if (db->leave && !executors_any())
		proc_exit(0);
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
	neutralise_settings();
	if (!extension_is_here())
		leave_without_extension();
	start_up();

	for (;;)
	{
		MemoryContextReset(turn);
		MemoryContextSwitchTo(turn);
		if (db->suspended || db->leave)
			suspended_turn();
		else
			one_turn();
		MemoryContextSwitchTo(turn);
		sleep_until_needed();
	}
}
