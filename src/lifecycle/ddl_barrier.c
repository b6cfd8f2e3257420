/*
 * ddl_barrier.c
 *	  Stops the jobs of a database for a transaction's command, and resumes them
 *	  at its end.
 *
 * Hand-out stops (Lifecycle.suspended), running handlers are cancelled and put
 * back at no charge, and for commands on a database all processes of jobq
 * leave it (Lifecycle.leaving).  The session waits for that, at most
 * GIVE_WAY_MS.  DROP and ALTER EXTENSION end the claims that wait for jobs
 * (Lifecycle.changes), and wait for none of them: they hold no lock.
 *
 * Jobs resume when the transaction ends, by commit or rollback.  But after
 * DROP EXTENSION all processes of jobq leave the database (Lifecycle.restart)
 * and the launcher then checks for the extension.  This file's callback runs
 * before the tables' locks are released and before other processes get the
 * invalidations, so none of them may go on with its caches.  After DROP
 * DATABASE the entry is freed here.  A savepoint's rollback counts as the end;
 * so does PREPARE TRANSACTION: from then on the locks keep the dispatcher out,
 * and it waits for none.  The callbacks take JobqShmem->lock and can't fail.
 */
#include "jobq.h"

#include <signal.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "storage/proc.h"
#include "utils/timestamp.h"

#include "lifecycle/ddl_barrier.h"
#include "shared/child_process.h"
#include "shared/claims.h"
#include "shared/slots.h"
#include "shared/stat_store.h"
#include "shared/wait_events.h"
#include "shared/wakeups.h"

#define GIVE_WAY_MS		2000
#define ASK_MS			1000	/* then processes that have not obeyed are terminated */
#define POLL_MS			2
#define MAX_BARRIERS		8		/* of each kind one for this database, and one for
									 * another: the rest are not transactional */

/* A database that this transaction blocks. */
typedef struct Barrier
{
	JobqDb	   *db;
	Oid			dboid;
	BarrierKind	kind;
	uint64		ping;			/* answered: the dispatcher knows, and its last turn is over */
	SubTransactionId subid;
} Barrier;

static Barrier barriers[MAX_BARRIERS];
static int	nbarriers = 0;

/* ---------- blocking, resuming ---------- */

static bool
needs_database(const Barrier *barrier)
{
	return barrier->kind >= NEEDS_DATABASE;
}

/*
 * True if waiting claims end: at the beginning, and at the commit those that
 * began meanwhile.
 */
static bool
ends_claims(const Barrier *barrier)
{
	return barrier->kind == CHANGES_EXTENSION || barrier->kind == DROPS_EXTENSION;
}

static void
hold_up(Barrier *barrier)
{
	JobqDb	   *db = barrier->db;

	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	db->lifecycle.suspended++;
	db->lifecycle.suspended_at = mono_now();
	if (needs_database(barrier))
		db->lifecycle.leaving++;
	db->lifecycle.changes += ends_claims(barrier);
	LWLockRelease(JobqShmem->lock);
	if (ends_claims(barrier))
		claims_wake(barrier->dboid);
	barrier->ping = pg_atomic_fetch_add_u64(&db->health.ping, 1) + 1;
	wake_dispatcher(db);
}

/*
 * Wakes the executors of a database that must leave it.  JobqShmem->lock is
 * held.
 */
static void
wake_executors(Oid dboid)
{
	for (int i = 0; i < JobqShmem->nslots; i++)
	{
		Slot	   *slot = &JobqShmem->slots[i];

		if (slot->in_use && !slot->dead && slot->dboid == dboid)
			slot_wake(slot);
	}
}

/*
 * Resumes jobs, in a callback at the end of a transaction: nothing here can
 * fail.
 */
static void
go_on(const Barrier *barrier, bool committed)
{
	JobqDb	   *db = barrier->db;

	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	if (db->dboid == barrier->dboid)
	{
		if (committed && barrier->kind == DROPS_EXTENSION)
		{
			db->lifecycle.restart = true;
			db->lifecycle.suspended_at = mono_now();
			stat_forget(db);
		}
		if (committed)
			db->lifecycle.changes += ends_claims(barrier);
		db->lifecycle.suspended--;
		if (needs_database(barrier))
			db->lifecycle.leaving--;
		if (db->lifecycle.restart)
			wake_executors(db->dboid);
		if (committed && barrier->kind == DROPS_DATABASE && db->dispatcher.proc == NULL)
			release_db(db);
		else
			db->lifecycle.wanted = true;
	}
	LWLockRelease(JobqShmem->lock);
	if (committed && ends_claims(barrier))
		claims_wake(barrier->dboid);
	wake_dispatcher(db);
	wake_launcher();
}

static void
ddl_xact_callback(XactEvent event, void *arg)
{
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE)
		return;
	while (nbarriers > 0)
		go_on(&barriers[--nbarriers], event == XACT_EVENT_COMMIT);
}

static void
ddl_subxact_callback(SubXactEvent event, SubTransactionId subid, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_COMMIT_SUB)
	{
		for (int i = 0; i < nbarriers; i++)
		{
			if (barriers[i].subid == subid)
				barriers[i].subid = parent;
		}
	}
	else if (event == SUBXACT_EVENT_ABORT_SUB)
	{
		/* the youngest is the last */
		while (nbarriers > 0 && barriers[nbarriers - 1].subid == subid)
			go_on(&barriers[--nbarriers], false);
	}
}

/* ---------- waiting for processes and handlers ---------- */

/*
 * Cancels a slot's handlers; true while it has some, or jobs that it may still
 * begin.
 */
static bool
slot_is_busy(Slot *slot)
{
	bool		busy = false;

	for (int i = 0; i < JOBQ_CELLS; i++)
	{
		Cell	   *cell = &slot->cells[i];
		uint32		state = pg_atomic_read_u32(&cell->state);
		pg_uuid_t	id;

		if (state != CELL_ASSIGNED && state != CELL_BEGUN)
			continue;
		busy = true;
		id = cell->ref.id;
		if (state == CELL_BEGUN)
			(void) slot_cancel(slot, i, &id, CANCEL_DDL, NULL);
	}
	return busy;
}

/*
 * Cancels all handlers; true while one runs.  A handler that doesn't obey for
 * ASK_MS loses its process: its job is put back all the same.
 */
static bool
handlers_run(const Barrier *barrier, bool terminate)
{
	bool		busy = false;

	LWLockAcquire(JobqShmem->lock, LW_SHARED);
	for (int i = 0; i < JobqShmem->nslots; i++)
	{
		Slot	   *slot = &JobqShmem->slots[i];

		if (!slot->in_use || slot->dead || slot->dboid != barrier->dboid || slot == MySlot)
			continue;
		if (slot->kind == SLOT_EXEC && barrier->kind <= CHANGES_EXTENSION)
			continue;			/* tools hold no lock */
		if (!slot_is_busy(slot))
			continue;
		busy = true;
		if (terminate && slot->kind == SLOT_SQL && slot->pid > 0)
			kill(slot->pid, SIGTERM);
	}
	LWLockRelease(JobqShmem->lock);
	return busy;
}

/*
 * True while a process that has released its slot has not exited: DROP
 * DATABASE still sees it.  No lock is needed: only a process that has begun to
 * exit matters, and the postmaster keeps its type until it is gone.
 */
static bool
one_lingers(Oid dboid)
{
	for (uint32 i = 0; i < ProcGlobal->allProcCount; i++)
	{
		PGPROC	   *proc = &ProcGlobal->allProcs[i];
		const char *type;

		if (proc->databaseId != dboid || proc->pid == 0)
			continue;
		type = GetBackgroundWorkerTypeByPid(proc->pid);
		if (type != NULL && strncmp(type, "jobq ", 5) == 0)
			return true;
	}
	return false;
}

static void
ask_to_leave(PGPROC *proc, pid_t pid, bool terminate)
{
	if (proc != NULL)
		SetLatch(&proc->procLatch);
	if (terminate && pid > 0)
		kill(pid, SIGTERM);
}

/*
 * Wakes jobq's processes in the database, or terminates them; true while there
 * are some.
 */
static bool
processes_run(JobqDb *db, bool terminate)
{
	bool		found = false;

	LWLockAcquire(JobqShmem->lock, LW_SHARED);
	for (int i = 0; i < JobqShmem->nslots; i++)
	{
		Slot	   *slot = &JobqShmem->slots[i];

		if (!slot->in_use || slot->dead || slot->dboid != db->dboid)
			continue;
		found = true;
		ask_to_leave(slot->proc, slot->pid, terminate);
	}
	if (db->dispatcher.proc)
	{
		found = true;
		wake_dispatcher(db);
		ask_to_leave(NULL, db->dispatcher.pid, terminate);
	}
	LWLockRelease(JobqShmem->lock);
	return found || one_lingers(db->dboid);
}

/*
 * True until the dispatcher has answered.  Before that it may be about to take
 * a weak lock of a table behind the command's strong one.
 */
static bool
dispatcher_is_unaware(const Barrier *barrier)
{
	return barrier->db->dispatcher.proc != NULL &&
		(int64) (pg_atomic_read_u64(&barrier->db->health.pong) - barrier->ping) < 0;
}

/* Makes handlers and processes end; true while one is left. */
static bool
way_is_blocked(const Barrier *barrier, bool terminate)
{
	bool		blocked = dispatcher_is_unaware(barrier);

	blocked |= handlers_run(barrier, terminate);
	/* their state is in rows and in shared memory: others start when jobs resume */
	blocked |= child_dismiss(&barrier->db->conductor.child, terminate);
	blocked |= child_dismiss(&barrier->db->maintenance.child, terminate);
	if (needs_database(barrier))
		blocked |= processes_run(barrier->db, terminate);
	return blocked;
}

static void
wait_for_way(const Barrier *barrier)
{
	MonoTime	start = mono_now();
	bool		terminate = false;

	while (way_is_blocked(barrier, terminate))
	{
		MonoTime	now = mono_now();

		/* not before they had that time: this process may have stood still */
		if (terminate && mono_exceeds(start, now, GIVE_WAY_MS))
			break;
		terminate = mono_exceeds(start, now, ASK_MS);
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, POLL_MS,
						 jobq_wait(WAIT_DDL));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

/*
 * Returns the database's entry; makes one for executors that have outlived
 * theirs (DROP EXTENSION).
 */
static JobqDb *
entry_of(Oid dboid)
{
	JobqDb	   *db = find_db(dboid);
	bool		needed = false;

	if (db)
		return db;
	LWLockAcquire(JobqShmem->lock, LW_SHARED);
	for (int i = 0; i < JobqShmem->nslots; i++)
	{
		Slot	   *slot = &JobqShmem->slots[i];

		if (slot->in_use && !slot->dead && slot->dboid == dboid)
			needed = true;
	}
	LWLockRelease(JobqShmem->lock);
	return needed ? make_db(dboid) : NULL;
}

void
barrier_begin(Oid dboid, BarrierKind kind)
{
	static bool registered = false;
	JobqDb	   *db = entry_of(dboid);
	Barrier	   *barrier;

	if (db == NULL || nbarriers == MAX_BARRIERS)
		return;
	for (int i = 0; i < nbarriers; i++)
	{
		if (barriers[i].dboid == dboid && barriers[i].kind >= kind)
			return;				/* blocked already */
	}
	if (!registered)
	{
		RegisterXactCallback(ddl_xact_callback, NULL);
		RegisterSubXactCallback(ddl_subxact_callback, NULL);
		registered = true;
	}
	barrier = &barriers[nbarriers];
	barrier->db = db;
	barrier->dboid = dboid;
	barrier->kind = kind;
	barrier->subid = GetCurrentSubTransactionId();
	hold_up(barrier);
	nbarriers++;
	wait_for_way(barrier);
}
