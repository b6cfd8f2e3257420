/*
 * shmem.c
 *	  Allocates jobq's shared memory and finds entries in it.
 *
 * Its size is set at server start by jobq.max_databases, jobq.max_lanes (the
 * length of each database's publication ring) and jobq.max_stat_types.  A crash restart of the
 * server empties it; its content is rebuilt from tables.
 */
#include "jobq.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "shared/claims.h"
#include "shared/quota_entries.h"
#include "shared/rate_pool.h"
#include "shared/slots.h"
#include "shared/stat_store.h"
#include "shared/wakeups.h"
#include "shared/worker_need.h"

#define BLOCKS_PER_DB	512		/* of rate windows; any database may use all */
#define RING_START	(PG_UINT32_MAX - 31)	/* every server soon passes 32
												 * bits */

JobqShared *JobqShmem = NULL;

static shmem_request_hook_type prev_shmem_request = NULL;
static shmem_startup_hook_type prev_shmem_startup = NULL;

static Size
header_size(void)
{
	return MAXALIGN(add_size(offsetof(JobqShared, dbs),
							 mul_size(jobq_max_databases, sizeof(JobqDb))));
}

static Size
rings_size(void)
{
	return MAXALIGN(mul_size(mul_size(jobq_max_databases, jobq_max_lanes), sizeof(LaneKeys)));
}

static Size
slots_size(void)
{
	return MAXALIGN(mul_size(JOBQ_MAX_SLOTS, sizeof(Slot)));
}

static int
pool_blocks(void)
{
	return jobq_max_databases * BLOCKS_PER_DB;
}

static Size
pool_head_size(void)
{
	return MAXALIGN(offsetof(RatePool, next) + sizeof(int32) * (pool_blocks() + 1));
}

static Size
rates_size(void)
{
	return add_size(pool_head_size(), mul_size(pool_blocks(), sizeof(RateBlock)));
}

static Size
claim_places_size(void)
{
	return MAXALIGN(mul_size(MaxBackends, sizeof(ClaimPlace)));
}

static Size
quotas_size(void)
{
	return MAXALIGN(mul_size(JOBQ_MAX_QUOTAS, sizeof(QuotaEntry)));
}

static Size
total_size(void)
{
	return add_size(add_size(add_size(header_size(), rings_size()), rates_size()),
					add_size(add_size(slots_size(), claim_places_size()),
							 add_size(quotas_size(), stat_store_size())));
}

static void
jobq_shmem_request(void)
{
	if (prev_shmem_request)
		prev_shmem_request();
	RequestAddinShmemSpace(total_size());
	RequestNamedLWLockTranche("jobq", 1);
}

static void
init_db(JobqDb *db, LaneKeys *ring)
{
	SpinLockInit(&db->mutex);
	SpinLockInit(&db->breakers.mutex);
	stat_db_init(&db->stats);
	db->ring.keys = ring;
	ConditionVariableInit(&db->kill_switch.idle);
	pg_atomic_init_u32(&db->dispatcher.woken, 0);
	pg_atomic_init_u32(&db->conductor.child.woken, 0);
	pg_atomic_init_u32(&db->maintenance.child.woken, 0);
	pg_atomic_init_u32(&db->maintenance.asked, 0);
	pg_atomic_init_u32(&db->maintenance.failures, 0);
	pg_atomic_init_u64(&db->maintenance.since, 0);
	pg_atomic_init_u32(&db->ring.imminent, 0);
	pg_atomic_init_u64(&db->health.beat, 0);
	pg_atomic_init_u32(&db->health.leases, LEASES_UNKNOWN);
	pg_atomic_init_u32(&db->health.weight, 0);
	pg_atomic_init_u32(&db->health.held, 0);
	for (int i = 0; i < JOBQ_CHECKS; i++)
		pg_atomic_init_u64(&db->health.since[i], 0);
	pg_atomic_init_u32(&db->health.max_weight, 0);
	pg_atomic_init_u64(&db->health.ping, 0);
	pg_atomic_init_u64(&db->health.pong, 0);
	pg_atomic_init_u64(&db->counters.handed_out, 0);
	pg_atomic_init_u32(&db->builtin_signals, 0);
	pg_atomic_init_u64(&db->counters.settled, 0);
	pg_atomic_init_u64(&db->counters.failed_attempts, 0);
	pg_atomic_init_u64(&db->counters.fallbacks, 0);
	pg_atomic_init_u32(&db->news, 0);
	pg_atomic_init_u32(&db->lacking, 0);
	for (int i = 0; i < TICK_OUTCOMES; i++)
		pg_atomic_init_u64(&db->schedules.ticks[i], 0);
	pg_atomic_init_u64(&db->schedules.due, 0);
	pg_atomic_init_u32(&db->schedules.active, 0);
	pg_atomic_init_u32(&db->schedules.paused, 0);
	pg_atomic_init_u32(&db->awaited.in_use, 0);
	pg_atomic_init_u32(&db->awaited.complete, 0);
	pg_atomic_init_u32(&db->awaited.current, 0);
	pg_atomic_init_u32(&db->awaited.old_has_bits, 0);
	pg_atomic_init_u32(&db->awaited.added, 0);
	pg_atomic_init_u32(&db->awaited.begun, 0);
	pg_atomic_init_u32(&db->awaited.open, 0);
	for (int i = 0; i < JOBQ_AWAITED_WORDS; i++)
	{
		pg_atomic_init_u32(&db->awaited.words[0][i], 0);
		pg_atomic_init_u32(&db->awaited.words[1][i], 0);
	}
}

static void
init_slot(Slot *slot)
{
	SpinLockInit(&slot->mutex);
	slot->current = -1;
	pg_atomic_init_u32(&slot->head, 0);
	pg_atomic_init_u32(&slot->tail, 0);
	for (int i = 0; i < JOBQ_DONE_WORDS; i++)
	{
		pg_atomic_init_u64(&slot->done[i], 0);
		pg_atomic_init_u64(&slot->ended[i], 0);
	}
	for (int i = 0; i < JOBQ_CELLS; i++)
	{
		pg_atomic_init_u32(&slot->cells[i].state, CELL_FREE);
		pg_atomic_init_u64(&slot->cells[i].last_cancel, 0);
	}
}

static void
init_rates(void *memory)
{
	RatePool   *pool = memory;

	pool->nblocks = pool->nfree = pool_blocks();
	pool->blocks = (RateBlock *) ((char *) memory + pool_head_size());
	pool->free = 1;
	for (int i = 1; i <= pool->nblocks; i++)
		pool->next[i] = i < pool->nblocks ? i + 1 : 0;
	JobqShmem->rates = pool;
}

static void
init_claim_places(void *memory)
{
	JobqShmem->claims = memory;
	JobqShmem->nclaims = MaxBackends;
	for (int i = 0; i < MaxBackends; i++)
	{
		pg_atomic_init_u64(&JobqShmem->claims[i].word, 0);
		pg_atomic_init_u32(&JobqShmem->claims[i].session, 0);
		for (int w = 0; w < JOBQ_HELD_WORDS; w++)
			pg_atomic_init_u64(&JobqShmem->claims[i].held[w], 0);
	}
	pg_atomic_init_u32(&JobqShmem->last_session, hash_bytes_uint32((uint32) GetCurrentTimestamp()));
}

static void
jobq_shmem_startup(void)
{
	bool		found;

	if (prev_shmem_startup)
		prev_shmem_startup();

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	JobqShmem = ShmemInitStruct("jobq", total_size(), &found);
	if (!found)
	{
		char	   *base = (char *) JobqShmem;
		LaneKeys *rings = (LaneKeys *) (base + header_size());

		memset(base, 0, total_size());
		pg_atomic_init_u32(&JobqShmem->launcher_woken, 0);
		JobqShmem->lock = &(GetNamedLWLockTranche("jobq"))->lock;
		JobqShmem->started_at = GetCurrentTimestamp();
		JobqShmem->registered_workers = registered_workers();
		JobqShmem->ndbs = jobq_max_databases;
		JobqShmem->nslots = JOBQ_MAX_SLOTS;
		init_rates(base + header_size() + rings_size());
		base += header_size() + rings_size() + rates_size();
		JobqShmem->slots = (Slot *) base;
		init_claim_places(base + slots_size());
		base += slots_size() + claim_places_size();
		JobqShmem->quotas = (QuotaEntry *) base;
		stat_store_init(base + quotas_size());
		for (int i = 0; i < JobqShmem->ndbs; i++)
			init_db(&JobqShmem->dbs[i], rings + (Size) i * jobq_max_lanes);
		for (int i = 0; i < JobqShmem->nslots; i++)
			init_slot(&JobqShmem->slots[i]);
		stat_file_load();
	}
	LWLockRelease(AddinShmemInitLock);
}

void
shmem_install_hooks(void)
{
	prev_shmem_request = shmem_request_hook;
	shmem_request_hook = jobq_shmem_request;
	prev_shmem_startup = shmem_startup_hook;
	shmem_startup_hook = jobq_shmem_startup;
}

static void
free_child(ChildProcess *place)
{
	place->busy = false;
	place->pid = 0;
	place->proc = NULL;
}

/* Takes a free entry for a database; the fields may be another database's. */
static void
adopt_entry(JobqDb *db, Oid dboid)
{
	db->lifecycle.wanted = false;
	db->lifecycle.ended = ENDED_OTHERWISE;
	db->wakeup_filter.ntypes = 0;
	db->lifecycle.suspended = 0;
	db->lifecycle.leaving = 0;
	db->lifecycle.restart = false;
	db->lifecycle.refused = false;
	free_child(&db->maintenance.child);
	free_child(&db->conductor.child);
	pg_atomic_write_u32(&db->maintenance.asked, 0);
	pg_atomic_write_u32(&db->maintenance.failures, 0);
	pg_atomic_write_u64(&db->maintenance.since, 0);
	db->maintenance.nconditions = 0;
	db->maintenance.evaluated = db->maintenance.overrun = 0;
	db->maintenance.must_end = 0;
	memset(db->maintenance.trouble, 0, sizeof(db->maintenance.trouble));
	memset(&db->schedule_news, 0, sizeof(db->schedule_news));
	db->schedule_news.hears = true;	/* until a conductor knows better */
	db->schedule_news.prepared = true;
	for (int i = 0; i < TICK_OUTCOMES; i++)
		pg_atomic_write_u64(&db->schedules.ticks[i], 0);
	pg_atomic_write_u64(&db->schedules.due, 0);
	pg_atomic_write_u32(&db->schedules.active, 0);
	pg_atomic_write_u32(&db->schedules.paused, 0);
	db->disk.level = 0;
	db->disk.measured = 0;
	memset(&db->space, 0, sizeof(db->space));
	db->dispatcher.proc = NULL;
	db->dispatcher.pid = 0;
	db->dispatcher.starts = 0;
	db->dispatcher.sql_workers = SQL_WORKERS_UNKNOWN;
	db->unstartable.ntypes = 0;
	db->ring.head = db->ring.tail = RING_START;
	db->ring.overflow = false;
	db->ring.leases_lost = true;
	db->claims.first = db->claims.last = 0;
	db->requests.types_changed = false;
	pg_atomic_write_u32(&db->health.leases, LEASES_UNKNOWN);
	pg_atomic_write_u32(&db->health.held, 0);
	for (int i = 0; i < JOBQ_CHECKS; i++)
		pg_atomic_write_u64(&db->health.since[i], 0);
	db->kill_switch.ndrains = 0;
	db->kill_switch.stopped = db->kill_switch.draining = false;
	db->requests.signals_changed = false;
	pg_atomic_write_u32(&db->builtin_signals, 0);
	db->requests.reload = false;
	db->requests.ncancels = 0;
	db->requests.nreserved = 0;
	db->recent_ends.count = 0;
	db->marks.njobs = 0;
	db->breakers.ntypes = 0;
	db->breakers.nchanges = 0;
	db->successors.n = 0;
	db->prepared.nxacts = 0;
	db->prepared.types_changed = false;
	db->prepared.overflow = false;
	db->health.trouble[0] = '\0';
	db->health.helper_trouble[0] = '\0';
	db->health.paused_identity = false;
	db->health.unfit = false;
	pg_atomic_write_u32(&db->lacking, 0);
	db->ends.n = 0;
	memset(&db->run_starts, 0, sizeof(db->run_starts));
	db->ends.lost = db->ends.prepared = true;
	pg_atomic_write_u32(&db->awaited.complete, 0);
	db->awaited.first_xid = InvalidTransactionId;
	db->dboid = dboid;
}

void
release_db(JobqDb *db)
{
	stat_forget(db);
	db->dboid = InvalidOid;
}

static JobqDb *
lookup_db(Oid dboid)
{
	for (int i = 0; i < JobqShmem->ndbs; i++)
	{
		if (JobqShmem->dbs[i].dboid == dboid)
			return &JobqShmem->dbs[i];
	}
	return NULL;
}

JobqDb *
find_db_at_start(Oid dboid)
{
	return lookup_db(dboid);
}

JobqDb *
make_db_at_start(Oid dboid)
{
	JobqDb	   *db = lookup_db(InvalidOid);

	if (db != NULL)
		adopt_entry(db, dboid);
	return db;
}

JobqDb *
find_db(Oid dboid)
{
	JobqDb	   *db;

	if (JobqShmem == NULL)
		return NULL;
	LWLockAcquire(JobqShmem->lock, LW_SHARED);
	db = lookup_db(dboid);
	LWLockRelease(JobqShmem->lock);
	return db;
}

JobqDb *
make_db(Oid dboid)
{
	JobqDb	   *db;

	if (JobqShmem == NULL)
		return NULL;
	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	db = lookup_db(dboid);
	if (db == NULL)
	{
		db = lookup_db(InvalidOid);
		if (db != NULL)
			adopt_entry(db, dboid);
	}
	LWLockRelease(JobqShmem->lock);
	return db;
}

JobqDb *
my_db(void)
{
	static JobqDb *mine = NULL;

	if (JobqShmem == NULL || !OidIsValid(MyDatabaseId))
		return NULL;
	if (mine == NULL || mine->dboid != MyDatabaseId)
		mine = make_db(MyDatabaseId);
	return mine;
}

void
want_dispatcher(JobqDb *db)
{
	if (db == NULL || db->dispatcher.proc != NULL || db->lifecycle.wanted)
		return;					/* it runs, or the launcher has the request */
	db->lifecycle.wanted = true;
	wake_launcher();
}

/*
 * Needs no lock, and may take none in a commit callback.  PGPROC latches are
 * never freed: it is harmless to wake another process that has taken over a
 * dead dispatcher's PGPROC.
 */
void
wake_dispatcher(JobqDb *db)
{
	PGPROC	   *proc = db->dispatcher.proc;

	if (proc)
		wake_process(&db->dispatcher.woken, &proc->procLatch);
}

void
wake_launcher(void)
{
	Latch	   *launcher = JobqShmem->launcher;

	if (launcher)
		wake_process(&JobqShmem->launcher_woken, launcher);
}
