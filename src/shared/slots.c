/*
 * slots.c
 *	  Hands jobs to executors and takes their reports.  slots.h has the states
 *	  and the locks.
 */
#include "jobq.h"

#include <math.h>
#include <sched.h>
#include <signal.h>

#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/timestamp.h"

#include "shared/slots.h"

#define ORDER_LEN (JOBQ_CELLS * 2)
#define ATTACH_LIMIT_MS 30000	/* a registered worker that has not attached by
								 * then never will */

Slot	   *MySlot = NULL;

/* ---------- dispatcher's side ---------- */

static void
clear_cells(Slot *slot)
{
	pg_atomic_write_u32(&slot->head, 0);
	pg_atomic_write_u32(&slot->tail, 0);
	for (int i = 0; i < JOBQ_DONE_WORDS; i++)
	{
		pg_atomic_write_u64(&slot->done[i], 0);
		pg_atomic_write_u64(&slot->ended[i], 0);
	}
	for (int i = 0; i < JOBQ_CELLS; i++)
		pg_atomic_write_u32(&slot->cells[i].state, CELL_FREE);
	slot->current = -1;
	slot->phase = PHASE_IDLE;
	slot->linger_us = 0;
}

/*
 * True if a slot may be taken from its owner: the worker never attached, or it
 * left and its database has no entry, so no dispatcher reads the slot.
 */
static bool
slot_is_abandoned(Slot *slot, MonoTime now)
{
	if (slot->proc == NULL && !slot->dead)
		return mono_exceeds(slot->claimed_at, now, ATTACH_LIMIT_MS);
	if (slot->dead)
	{
		for (int i = 0; i < JobqShmem->ndbs; i++)
		{
			if (JobqShmem->dbs[i].dboid == slot->dboid)
				return false;
		}
		return true;
	}
	return false;
}

Slot *
slot_claim(Oid dboid, SlotKind kind, Oid roleid)
{
	Slot	   *claimed = NULL;
	MonoTime	now = mono_now();

	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	for (int i = 0; i < JobqShmem->nslots && claimed == NULL; i++)
	{
		Slot	   *slot = &JobqShmem->slots[i];

		if (!slot->in_use || slot_is_abandoned(slot, now))
			claimed = slot;
	}
	if (claimed)
	{
		claimed->in_use = true;
		claimed->kind = kind;
		claimed->leaving = false;
		claimed->dismissed = false;
		claimed->dead = false;
		claimed->dboid = dboid;
		claimed->roleid = roleid;
		claimed->generation++;
		claimed->proc = NULL;
		claimed->pid = 0;
		claimed->claimed_at = now;
		claimed->name[0] = '\0';
		clear_cells(claimed);
	}
	LWLockRelease(JobqShmem->lock);
	return claimed;
}

/* Marks a slot as free; JobqShmem->lock is held. */
static void
free_slot(Slot *slot)
{
	slot->in_use = false;
	slot->proc = NULL;
	slot->pid = 0;
	slot->dboid = InvalidOid;
}

void
slot_release(Slot *slot)
{
	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	free_slot(slot);
	LWLockRelease(JobqShmem->lock);
}

bool
slot_give_up(Slot *slot, MonoTime now)
{
	bool		overdue;

	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	overdue = !slot->dead && slot_is_abandoned(slot, now);
	if (overdue)
		free_slot(slot);
	LWLockRelease(JobqShmem->lock);
	return overdue;
}

bool
slot_assign(Slot *slot, int cellno, const JobRef *ref, const char *cancel_reason)
{
	uint32		tail = pg_atomic_read_u32(&slot->tail);
	Cell	   *cell;

	if (tail - pg_atomic_read_u32(&slot->head) >= ORDER_LEN)
		return false;
	cell = &slot->cells[cellno];
	cell->ref = *ref;
	cell->report = REPORT_RELEASED;
	cell->cancel = CANCEL_NONE;
	cell->timed_out = false;
	cell->has_reason = cancel_reason != NULL;
	if (cancel_reason)
		strlcpy(cell->reason, cancel_reason, sizeof(cell->reason));
	cell->run_us = 0;
	cell->started_at = 0;
	cell->begun_at = 0;
	cell->deadline = 0;
	cell->noted = false;
	cell->starting = false;
	cell->progress = NAN;
	cell->progress_data[0] = '\0';
	pg_write_barrier();
	pg_atomic_write_u32(&cell->state, CELL_ASSIGNED);

	slot->order[tail % ORDER_LEN] = (uint16) cellno;
	pg_write_barrier();
	pg_atomic_write_u32(&slot->tail, tail + 1);
	return true;
}

bool
slot_take_back(Slot *slot, int cellno)
{
	uint32		expected = CELL_ASSIGNED;

	return pg_atomic_compare_exchange_u32(&slot->cells[cellno].state, &expected, CELL_FREE);
}

void
slot_dismiss(Slot *slot)
{
	slot->dismissed = true;
	pg_write_barrier();
	slot_wake(slot);
}

bool
slot_takes_jobs(Slot *slot)
{
	return slot->proc != NULL && !slot->leaving && !slot->dismissed && !slot->dead;
}

void
slot_wake(Slot *slot)
{
	PGPROC	   *proc = slot->proc;

	if (proc)
		SetLatch(&proc->procLatch);
}

void
slot_wake_early(Slot *slot, int linger_us)
{
	slot->linger_us = linger_us;
	slot_wake(slot);
}

void
slot_mark_done(Slot *slot, int cellno)
{
	pg_atomic_fetch_or_u64(&slot->done[cellno / 64], UINT64CONST(1) << (cellno % 64));
}

/*
 * Sets the mark and sends the signal under the slot's mutex.  The executor
 * changes job and phase under it, so the signal can meet no other job.
 * (kill() of a background worker's group reaches only that worker.)
 */
bool
slot_cancel(Slot *slot, int cellno, const pg_uuid_t *id, CancelKind kind, const char *reason)
{
	Cell	   *cell = &slot->cells[cellno];
	bool		hit = false;

	SpinLockAcquire(&slot->mutex);
	if (pg_atomic_read_u32(&cell->state) == CELL_BEGUN &&
		memcmp(&cell->ref.id, id, sizeof(pg_uuid_t)) == 0)
	{
		hit = true;
		if (cell->cancel != CANCEL_USER)
		{
			cell->cancel = kind;
			cell->has_reason = reason != NULL;
			if (reason)
				strlcpy(cell->reason, reason, sizeof(cell->reason));
		}
		if (slot->kind == SLOT_SQL && slot->current == cellno && slot->phase == PHASE_HANDLER &&
			slot->pid > 0)
			kill(slot->pid, SIGINT);
	}
	SpinLockRelease(&slot->mutex);
	if (hit)
		slot_wake(slot);
	return hit;
}

bool
take_cancel_turn(pg_atomic_uint64 *last_cancel)
{
	uint64		last = pg_atomic_read_u64(last_cancel);
	MonoTime	now = mono_now();

	return mono_exceeds((MonoTime) last, now, CANCEL_GAP_MS) &&
		pg_atomic_compare_exchange_u64(last_cancel, &last, (uint64) now);
}

/*
 * Reads the clock anew: a dispatcher that was busy before would be early with
 * the next cancel.
 */
void
slot_time_out(Slot *slot, int cellno)
{
	Cell	   *cell = &slot->cells[cellno];
	MonoTime	now = mono_now();

	SpinLockAcquire(&slot->mutex);
	if (slot->current == cellno && slot->phase == PHASE_HANDLER && slot->pid > 0 &&
		cell->deadline != 0 && cell->deadline < now)
	{
		cell->deadline = now;	/* the next look after a while */
		if (--cell->patience < 0)
		{
			cell->timed_out = true;
			kill(slot->pid, SIGTERM);
		}
		else if (take_cancel_turn(&cell->last_cancel))
		{
			if (cell->cancel == CANCEL_NONE)
				cell->cancel = CANCEL_TIMEOUT;
			kill(slot->pid, SIGINT);
		}
	}
	SpinLockRelease(&slot->mutex);
}

Slot *
slot_find_job(Oid dboid, const pg_uuid_t *id, int *cellno)
{
	for (int i = 0; i < JobqShmem->nslots; i++)
	{
		Slot	   *slot = &JobqShmem->slots[i];

		if (!slot->in_use || slot->dboid != dboid)
			continue;
		for (int c = 0; c < JOBQ_CELLS; c++)
		{
			uint32		state = pg_atomic_read_u32(&slot->cells[c].state);

			if ((state == CELL_ASSIGNED || state == CELL_BEGUN) &&
				memcmp(&slot->cells[c].ref.id, id, sizeof(pg_uuid_t)) == 0)
			{
				*cellno = c;
				return slot;
			}
		}
	}
	*cellno = -1;
	return NULL;
}

int
slots_of_key(Oid dboid, uint64 key)
{
	int			n = 0;

	for (int i = 0; JobqShmem != NULL && i < JobqShmem->nslots; i++)
	{
		Slot	   *slot = &JobqShmem->slots[i];

		for (int c = 0; slot->in_use && slot->dboid == dboid && c < JOBQ_CELLS; c++)
			n += pg_atomic_read_u32(&slot->cells[c].state) != CELL_FREE && slot->cells[c].ref.key == key;
	}
	return n;
}

/* ---------- executor's side ---------- */

/*
 * Reports a cell of an executor that exits; false: it has no job, or the
 * dispatcher takes it back meanwhile (slot_take_back).  The attempt of a job in
 * its handler is charged as DIED (FATAL in the handler, pg_terminate_backend);
 * the other jobs are released.
 */
static bool
report_cell(Slot *slot, int i)
{
	Cell	   *cell = &slot->cells[i];
	uint32		state = pg_atomic_read_u32(&cell->state);

	do
	{
		if (state != CELL_ASSIGNED && state != CELL_BEGUN)
			return false;
		cell->report = REPORT_RELEASED;
		if (state == CELL_BEGUN && slot->kind == SLOT_SQL && slot->current == i &&
			slot->phase == PHASE_HANDLER && cell->cancel != CANCEL_DDL)
		{
			cell->report = REPORT_CHARGE;
			cell->charge = cell->timed_out ? CHARGE_TIMED_OUT : CHARGE_DIED;
		}
	} while (!pg_atomic_compare_exchange_u32(&cell->state, &state, CELL_DONE));
	return true;
}

/* Reports the cells of an executor that exits; its transaction is rolled back. */
static void
slot_on_exit(int code, Datum arg)
{
	Slot	   *slot = MySlot;
	bool		done;

	if (slot == NULL)
		return;
	MySlot = NULL;
	for (int i = 0; i < JOBQ_CELLS; i++)
	{
		SpinLockAcquire(&slot->mutex);	/* against slot_cancel */
		done = report_cell(slot, i);
		SpinLockRelease(&slot->mutex);
		if (done)
			slot_mark_done(slot, i);
	}
	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	slot->dead = true;
	slot->proc = NULL;
	slot->pid = 0;
	LWLockRelease(JobqShmem->lock);
	{
		JobqDb	   *db = find_db(slot->dboid);

		if (db)
			wake_dispatcher(db);
	}
}

void
slot_attach(int slotno, uint32 generation)
{
	Slot	   *slot;

	if (JobqShmem == NULL || slotno < 0 || slotno >= JobqShmem->nslots)
		proc_exit(1);
	slot = &JobqShmem->slots[slotno];

	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	if (!slot->in_use || slot->generation != generation || slot->proc != NULL || slot->dead)
	{
		LWLockRelease(JobqShmem->lock);
		proc_exit(1);
	}
	slot->proc = MyProc;
	slot->pid = MyProcPid;
	snprintf(slot->name, sizeof(slot->name), "%s/%d",
			 slot->kind == SLOT_SQL ? "sql" : "exec", MyProcPid);
	LWLockRelease(JobqShmem->lock);
	MySlot = slot;
	on_shmem_exit(slot_on_exit, 0);
}

int
slot_next(void)
{
	for (;;)
	{
		uint32		head = pg_atomic_read_u32(&MySlot->head);
		uint32		expected = CELL_ASSIGNED;
		int			cellno;

		if (head == pg_atomic_read_u32(&MySlot->tail))
			return -1;
		pg_read_barrier();
		cellno = MySlot->order[head % ORDER_LEN];
		pg_atomic_write_u32(&MySlot->head, head + 1);
		if (pg_atomic_compare_exchange_u32(&MySlot->cells[cellno].state, &expected, CELL_BEGUN))
			return cellno;
		/* taken back: its order entry is stale */
	}
}

void
slot_linger(void)
{
	MonoTime	until;

	if (MySlot->linger_us == 0)
		return;
	until = mono_now() + MySlot->linger_us;
	MySlot->linger_us = 0;
	while (pg_atomic_read_u32(&MySlot->head) == pg_atomic_read_u32(&MySlot->tail) &&
		   mono_now() < until)
		sched_yield();			/* the dispatcher may need this processor */
}

void
slot_done(int cellno, CellReport report)
{
	Cell	   *cell = &MySlot->cells[cellno];

	Assert(pg_atomic_read_u32(&cell->state) == CELL_BEGUN);
	cell->report = report;
	SpinLockAcquire(&MySlot->mutex);
	if (MySlot->current == cellno)
	{
		MySlot->current = -1;
		MySlot->phase = PHASE_IDLE;
	}
	pg_atomic_write_u32(&cell->state, CELL_DONE);
	SpinLockRelease(&MySlot->mutex);
	slot_mark_done(MySlot, cellno);
}

void
slot_ended(int cellno)
{
	pg_atomic_fetch_or_u64(&MySlot->ended[cellno / 64], UINT64CONST(1) << (cellno % 64));
}

void
slot_report(void)
{
	static JobqDb *db = NULL;

	if (db == NULL)
		db = find_db(MySlot->dboid);
	if (db)
		wake_dispatcher(db);
}

void
slot_enter(int cellno, Phase phase)
{
	SpinLockAcquire(&MySlot->mutex);
	MySlot->current = cellno;
	MySlot->phase = phase;
	SpinLockRelease(&MySlot->mutex);
}

CancelKind
slot_cancelled(int cellno, char *reason, bool *has_reason)
{
	Cell	   *cell = &MySlot->cells[cellno];
	CancelKind	kind;

	SpinLockAcquire(&MySlot->mutex);
	kind = cell->cancel;
	if (kind != CANCEL_NONE && reason)
	{
		*has_reason = cell->has_reason;
		if (cell->has_reason)
			strlcpy(reason, cell->reason, JOBQ_REASON_LEN);
	}
	SpinLockRelease(&MySlot->mutex);
	return kind;
}

void
wake_waiters(JobqDb *db, const pg_uuid_t *id, JobStatus status)
{
	PGPROC	   *wake[JOBQ_MAX_WAITERS];
	int			nwake = 0;

	/* commit, then read the list; the waiter registers, then reads the row */
	pg_memory_barrier();
	if (db == NULL || db->wait_for.nwaiters == 0)
		return;
	SpinLockAcquire(&db->mutex);
	for (int i = 0; i < JOBQ_MAX_WAITERS; i++)
	{
		Waiter	   *w = &db->wait_for.waiters[i];

		if (w->in_use && !w->done && memcmp(&w->id, id, sizeof(pg_uuid_t)) == 0)
		{
			w->done = true;
			w->status = status;
			wake[nwake++] = w->proc;
		}
	}
	SpinLockRelease(&db->mutex);
	for (int i = 0; i < nwake; i++)
		SetLatch(&wake[i]->procLatch);
}
