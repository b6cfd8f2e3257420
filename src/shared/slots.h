/*
 * slots.h
 *	  A slot is one executor (a SQL worker, the exec worker): what it has been handed and what it runs.
 *
 * Slots live in shared memory and belong to the executor, so they outlive the dispatcher: a new one
 * reads from them what is in flight.  The dispatcher writes a cell and then says so; only the
 * executor begins it, only compare-and-swap moves it:
 *
 *	 FREE -> ASSIGNED	dispatcher
 *	 ASSIGNED -> BEGUN	executor			ASSIGNED -> FREE	dispatcher takes it back
 *	 BEGUN -> DONE		executor, after its transaction has ended; sets the bit in `done`
 *	 DONE -> FREE		dispatcher, after it has read `verdict`
 *
 * A cell whose tool has ended says so at once (`ended`): another may start while the end is written.
 *
 * Slot.mutex covers `current`, `phase` and the cells' cancel fields: who signals the executor holds
 * it, and so never hits the next job (the executor changes job and phase under it, too).
 */
#ifndef JOBQ_SLOTS_H
#define JOBQ_SLOTS_H

#include "shared/shmem.h"

#define JOBQ_MAX_SLOTS	96
#define JOBQ_CELLS		512		/* a bit each in Slot.done */
#define JOBQ_DONE_WORDS	(JOBQ_CELLS / 64)
#define JOBQ_PROGRESS_LEN 512

/* How the dispatcher names a job: nobody follows an update chain, an older rev is "not mine". */
typedef struct JobRef
{
	pg_uuid_t	id;
	ItemPointerData tid;
	uint8		flags;
	uint8		charge;			/* Charge */
	int32		rev;
	int32		type_id;
	int32		attempts;		/* charged so far */
	int32		runs;
	TimestampTz position;
	int16		priority;
	int16		sublane;
	int32		tenant_limit;	/* tenant_limit.h; 0: none */
	uint64		key;			/* key_hash of its concurrency key; 0: none */
} JobRef;

#define REF_ALONE	0x01		/* not in a batch */
#define REF_AGAIN	0x02		/* had a stray cancel before: another one is the handler's own */
#define REF_CANCEL	0x04		/* finish it as cancelled, do not run it; the cell has the reason */

/* Why an attempt that has ended without being settled is charged; the job does not run before. */
typedef enum Charge
{
	CHARGE_NONE,
	CHARGE_CRASHED,				/* it died with the server; or the row says running and no executor has it */
	CHARGE_DIED,				/* its executor was terminated in the handler */
	CHARGE_TIMED_OUT			/* the same, because the handler ignored its timeout */
} Charge;

/* True if the job is to be settled, not to be started. */
static inline bool
ref_settles(const JobRef *ref)
{
	return (ref->flags & REF_CANCEL) != 0 || ref->charge != CHARGE_NONE;
}

typedef enum CellState
{
	CELL_FREE,
	CELL_ASSIGNED,
	CELL_BEGUN,
	CELL_DONE
} CellState;

typedef enum Verdict
{
	VERDICT_SETTLED,			/* finished, retried or buried: the row is gone or published anew */
	VERDICT_NOT_MINE,			/* row gone, changed or locked by somebody else */
	VERDICT_RELEASED,			/* put back untouched: may be handed out again at once */
	VERDICT_ALONE,				/* put back: run it alone next time */
	VERDICT_NO_PARTITION,		/* put back: history lacks the partition for `need` */
	VERDICT_STUCK,				/* could not be settled (commit failed twice): hold it back a while */
	VERDICT_CHARGE				/* the executor died in its handler: charge the attempt, for Cell.charge */
} Verdict;

typedef enum CancelKind
{
	CANCEL_NONE,
	CANCEL_USER,				/* jobq.cancel_job */
	CANCEL_TIMEOUT,				/* its time is up, and its own timer late */
	CANCEL_DDL,					/* DROP ...: roll back, put back, no charge */
	CANCEL_TAKE_BACK			/* type dropped or shutdown of the lane: same */
} CancelKind;

typedef struct Cell
{
	pg_atomic_uint32 state;		/* CellState */
	JobRef		ref;
	uint8		verdict;		/* Verdict, once DONE */
	uint8		charge;			/* Charge, of VERDICT_CHARGE */
	uint8		cancel;			/* CancelKind, under Slot.mutex */
	bool		has_reason;
	bool		timed_out;		/* the executor ends itself: the handler ignores its timeout */
	char		reason[JOBQ_REASON_LEN];
	TimestampTz need;			/* VERDICT_NO_PARTITION: expires_at that has no home */
	int32		run_us;			/* how long the handler ran; for batching */
	TimestampTz started_at;		/* when the current attempt began; 0: not yet */
	MonoTime	begun_at;		/* the same */
	MonoTime	deadline;		/* of the handler; 0: none */
	int			patience;		/* it may ignore so many signals after that */
	bool		noted;			/* that it has started, in rate windows; the dispatcher's */
	bool		starting;		/* claimed, and nothing is known of a start of its tool */
	double		progress;		/* NaN: none; under Slot.mutex */
	char		progress_data[JOBQ_PROGRESS_LEN];	/* JSON text, '' = none; under Slot.mutex */
} Cell;

typedef enum Phase
{
	PHASE_IDLE,
	PHASE_HANDLER,				/* user code runs: a cancel may be signalled */
	PHASE_SETTLING				/* ours: never signalled */
} Phase;

typedef enum SlotKind
{
	SLOT_SQL = 1,
	SLOT_EXEC
} SlotKind;

typedef struct Slot
{
	/* under JobqShmem->lock */
	bool		in_use;
	uint8		kind;			/* SlotKind */
	bool		leaving;		/* executor says: hand me nothing more */
	bool		dismissed;		/* dispatcher says: end when nothing is left to run */
	bool		dead;			/* executor has left; the dispatcher reads the cells, then releases */
	Oid			dboid;
	Oid			roleid;			/* SLOT_SQL: connected as */
	uint32		generation;		/* rises at each use */
	PGPROC	   *proc;			/* NULL: registered, not attached yet */
	pid_t		pid;
	int			linger_us;		/* a job may come any moment: don't sleep at once */
	MonoTime	claimed_at;
	char		name[64];		/* worker column: "sql/<pid>" */

	slock_t		mutex;
	int			current;		/* cell that runs (SQL workers), -1 none */
	uint8		phase;			/* Phase */

	/* hand-over: dispatcher writes order[] at tail, executor reads at head */
	pg_atomic_uint32 head;
	pg_atomic_uint32 tail;
	uint16		order[JOBQ_CELLS * 2];
	pg_atomic_uint64 done[JOBQ_DONE_WORDS]; /* bit per cell that is DONE */
	pg_atomic_uint64 ended[JOBQ_DONE_WORDS];	/* bit per cell whose tool has ended: it keeps nobody from starting */
	Cell		cells[JOBQ_CELLS];
} Slot;

extern Slot *MySlot;			/* NULL in processes that are no executor */

/* --- dispatcher's side --- */
/* Claims a free slot for a worker about to be registered; NULL when there is none. */
extern Slot *slot_claim(Oid dboid, SlotKind kind, Oid roleid);
extern void slot_release(Slot *slot);
/* Releases a slot whose worker has not come in time; false: he has, or still may. */
extern bool slot_give_up(Slot *slot, MonoTime now);
#define slot_number(slot) ((int) ((slot) - JobqShmem->slots))
/* Puts ref into a cell, which is free; false: the list is full.  Wake with slot_wake when all are assigned. */
extern bool slot_assign(Slot *slot, int cell, const JobRef *ref, const char *cancel_reason);
extern bool slot_take_back(Slot *slot, int cell);
extern void slot_wake(Slot *slot);
/* Ends the executor, once it has ended what it runs. */
extern void slot_dismiss(Slot *slot);
/* True if jobs may be handed to its executor. */
extern bool slot_takes_jobs(Slot *slot);
/* The same, before the job is known: its waking up overlaps with our looking for it. */
extern void slot_alert(Slot *slot, int linger_us);
/* Says, or says again, that a cell is DONE. */
extern void slot_mark_done(Slot *slot, int cell);
/* Asks for the end of a job that this slot has; false when the slot does not run it (any more). */
extern bool slot_cancel(Slot *slot, int cell, const pg_uuid_t *id, CancelKind kind,
						const char *reason);
/* The deadline has passed: cancels the handler, and ends its process when it keeps ignoring that. */
extern void slot_time_out(Slot *slot, int cell, MonoTime now);
/* How many jobs of a concurrency key are handed out. */
extern int	slots_of_key(Oid dboid, uint64 key);
/* Finds the slot and cell that hold job id in dboid, -1: none. */
extern Slot *slot_find_job(Oid dboid, const pg_uuid_t *id, int *cell);

/* --- executor's side --- */
/*
 * Takes the slot that bgw_main_arg names; exits (1) when it is not ours.  Registers its release, which
 * runs after the transaction has been rolled back.  Call it once connected.
 */
extern void slot_attach(int slotno, uint32 generation);
/* Begins the next assigned cell; -1 when there is none. */
extern int	slot_next(void);
/* Has the dispatcher alerted us?  Then stays awake for the job a moment. */
extern void slot_linger(void);
/* Ends a cell; call after the transaction has ended.  slot_report wakes the dispatcher once. */
extern void slot_done(int cell, Verdict verdict);
extern void slot_report(void);
/* Its tool has ended, and another may start while the end is written.  Set before the cell is done. */
extern void slot_ended(int cell);
/* Change of job and phase, atomically against slot_cancel. */
extern void slot_enter(int cell, Phase phase);
/* What was asked of this cell's job. */
extern CancelKind slot_cancelled(int cell, char *reason, bool *has_reason);

/* Tells sessions in wait_for that a job has ended. */
extern void wake_waiters(JobqDb *db, const pg_uuid_t *id, JobStatus status);

#endif
