/*
 * slots.h
 *	  A slot is one executor (a SQL worker, the exec worker): what it has been
 *	  handed and what it runs.
 *
 * Slots live in shared memory and belong to the executor, so they outlive the
 * dispatcher: a new one finds the jobs in flight there.  The dispatcher fills
 * a cell and then assigns it; only the executor begins it.  The two changes for
 * which they compete are compare-and-swaps (*):
 *
 *	 FREE -> ASSIGNED	dispatcher
 *	 ASSIGNED -> FREE *	dispatcher takes it back
 *	 ASSIGNED -> BEGUN *	executor
 *	 BEGUN -> DONE		executor, after its transaction has ended; sets the bit
 *						in `done`
 *	 ASSIGNED -> DONE	the same at its exit (slot_on_exit)
 *	 DONE -> FREE		dispatcher, after it has read `report`
 *
 * The executor sets a cell's bit in `ended` as soon as its tool has ended:
 * another may start while the settlement is written.
 *
 * Slot.mutex covers `current`, `phase` and the cells' cancel fields.  A
 * process that signals the executor holds it, so the signal never hits the
 * next job: the executor changes job and phase under it, too.
 *
 * A handler that overruns its timeout has two guards: the timer of its worker
 * (handler.c), and a second later the dispatcher, by the monotonic clock.  Both
 * repeat each second.  They share `last_cancel` of the cell: a guard cancels
 * only after it has moved that time on, by compare-and-swap, and a cancel bars
 * both for CANCEL_GAP_MS.  So a handler that has just caught a cancel does not
 * meet the other guard's.  The dispatcher cancels only while the timer is late.
 * Each guard counts its own repeats, with or without a cancel, and ends the
 * process at last.  Requests of slot_cancel() wait for no gap.
 */
#ifndef JOBQ_SLOTS_H
#define JOBQ_SLOTS_H

#include "shared/shmem.h"

#define JOBQ_MAX_SLOTS	96
#define JOBQ_CELLS		512		/* a bit each in Slot.done */
#define JOBQ_DONE_WORDS	(JOBQ_CELLS / 64)
#define JOBQ_PROGRESS_LEN 512
#define CANCEL_GAP_MS	900		/* less than a second, so that no repeat is
								 * left out that is in time */

/*
 * How the dispatcher names a job.  Executors do not follow an update chain:
 * for a row with another rev they report REPORT_NOT_MINE.
 */
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
#define REF_AGAIN	0x02		/* had a stray cancel before: the next one is
								 * the handler's own */
#define REF_CANCEL	0x04		/* finish it as cancelled, do not run it; the
								 * cell has the reason */

/*
 * Why an attempt that has ended without a settlement is charged.  The job does
 * not run before that.
 */
typedef enum Charge
{
	CHARGE_NONE,
	CHARGE_CRASHED,				/* it died with the server; or the row's status
								 * is running and no executor has it */
	CHARGE_DIED,				/* its executor was terminated in the handler */
	CHARGE_TIMED_OUT,			/* the same, because the handler ignored its
								 * timeout */
	CHARGE_LEASE,				/* its client's lease is over */
	CHARGE_DEADLINE,			/* its client has not ended it in time */
	CHARGE_STALL,				/* its client has sent no heartbeat for
								 * options.stall */
	CHARGE_CONNECTION			/* the connection of its claim has ended */
} Charge;

/* True if the job's client has lost it. */
static inline bool
ref_leased(const JobRef *ref)
{
	return ref->charge >= CHARGE_LEASE;
}

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

typedef enum CellReport
{
	REPORT_SETTLED,				/* finished, retried or buried: the row is gone
								 * or published again */
	REPORT_NOT_MINE,			/* row gone, changed or locked by another
								 * transaction */
	REPORT_RELEASED,			/* put back untouched: may be handed out again
								 * at once */
	REPORT_ALONE,				/* put back: run it alone next time */
	REPORT_STUCK,				/* could not be settled (commit failed twice):
								 * do not hand it out for a while */
	REPORT_CHARGE				/* the executor died in its handler: charge the
								 * attempt, for Cell.charge */
} CellReport;

typedef enum CancelKind
{
	CANCEL_NONE,
	CANCEL_USER,				/* jobq.cancel_job */
	CANCEL_TIMEOUT,				/* its time is up, and its own timer late */
	CANCEL_DDL,					/* DROP ...: roll back, put back, no charge */
	CANCEL_TAKE_BACK			/* its exec worker ends: the same */
} CancelKind;

typedef struct Cell
{
	pg_atomic_uint32 state;		/* CellState */
	JobRef		ref;
	uint8		report;			/* CellReport, once DONE */
	uint8		charge;			/* Charge, of REPORT_CHARGE */
	uint8		cancel;			/* CancelKind, under Slot.mutex */
	uint8		row_status;		/* of a SQL job: what its row says while it
								 * runs */
	bool		has_reason;
	bool		timed_out;		/* the executor is terminated: the handler
								 * ignores its timeout */
	char		reason[JOBQ_REASON_LEN];
	int32		run_us;			/* how long the handler ran; for batching */
	TimestampTz started_at;		/* of the current attempt; 0: not yet */
	MonoTime	begun_at;		/* the same */
	MonoTime	deadline;		/* of the handler; 0: none */
	int			patience;		/* the dispatcher looks so many times before
								 * it ends the executor */
	pg_atomic_uint64 last_cancel;	/* MonoTime, for its timeout; 0: none */
	bool		noted;			/* its start is in the rate windows; the
								 * dispatcher's */
	bool		starting;		/* claimed, and no start of its tool is known
								 * yet */
	double		progress;		/* NaN: none; under Slot.mutex */
	char		progress_data[JOBQ_PROGRESS_LEN];	/* JSON text, '' = none;
													 * under Slot.mutex */
} Cell;

typedef enum Phase
{
	PHASE_IDLE,
	PHASE_HANDLER,				/* user code runs: a cancel may be signalled */
	PHASE_SETTLING				/* jobq's code runs: never signalled */
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
	bool		leaving;		/* the executor takes no more jobs */
	bool		dismissed;		/* the dispatcher asks it to end when its jobs
								 * have ended */
	bool		dead;			/* the executor has left; the dispatcher reads
								 * the cells, then releases the slot */
	Oid			dboid;
	Oid			roleid;			/* SLOT_SQL: connected as */
	uint32		generation;		/* rises at each use */
	PGPROC	   *proc;			/* NULL: registered, not attached yet */
	pid_t		pid;
	int			linger_us;		/* a job may come soon: don't sleep before */
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
	pg_atomic_uint64 ended[JOBQ_DONE_WORDS];	/* bit per cell with an ended
												 * tool: blocks no start */
	Cell		cells[JOBQ_CELLS];
} Slot;

extern Slot *MySlot;			/* NULL in processes that are no executors */

/* --- dispatcher's side --- */
/*
 * Claims a free slot for a worker about to be registered; NULL when there is
 * none.
 */
extern Slot *slot_claim(Oid dboid, SlotKind kind, Oid roleid);
extern void slot_release(Slot *slot);

/*
 * Releases a slot if its worker has not attached in time; false if it has, or
 * still may.
 */
extern bool slot_give_up(Slot *slot, MonoTime now);
#define slot_number(slot) ((int) ((slot) - JobqShmem->slots))
/*
 * Puts ref into a free cell; false if the list is full.  Call slot_wake() when
 * all are assigned.
 */
extern bool slot_assign(Slot *slot, int cell, const JobRef *ref, const char *cancel_reason);
/* Frees an assigned cell; false if the executor has begun it. */
extern bool slot_take_back(Slot *slot, int cell);
extern void slot_wake(Slot *slot);
/* Ends the executor, once it has ended what it runs. */
extern void slot_dismiss(Slot *slot);
/* True if jobs may be handed to its executor. */
extern bool slot_takes_jobs(Slot *slot);

/*
 * Wakes its executor before the job is known: the wake-up overlaps with the
 * search for the job.
 */
extern void slot_wake_early(Slot *slot, int linger_us);
/* Sets the bit of a cell that is DONE; may be called again. */
extern void slot_mark_done(Slot *slot, int cell);

/*
 * Requests the end of a job of this slot; false if the slot does not run it.
 */
extern bool slot_cancel(Slot *slot, int cell, const pg_uuid_t *id, CancelKind kind,
						const char *reason);
/*
 * Cancels the handler if its deadline has passed and its own timer does not,
 * and terminates its process if the handler keeps ignoring that.
 */
extern void slot_time_out(Slot *slot, int cell);
/* Returns the number of handed-out jobs of a concurrency key. */
extern int	slots_of_key(Oid dboid, uint64 key);
/* Finds the slot and cell that hold job id in dboid, -1: none. */
extern Slot *slot_find_job(Oid dboid, const pg_uuid_t *id, int *cell);

/*
 * Takes the turn to cancel a handler for its timeout; false: there was a
 * cancel a moment ago.  Signal handlers may call it.
 */
extern bool take_cancel_turn(pg_atomic_uint64 *last_cancel);

/* --- executor's side --- */
/*
 * Takes the slot that bgw_main_arg names; exits (1) if the slot is another
 * process's.  Registers its release, which runs after the transaction has been
 * rolled back.  Call it once connected.
 */
extern void slot_attach(int slotno, uint32 generation);
/* Begins the next assigned cell and returns it; -1: none. */
extern int	slot_next(void);
/* Stays awake for a moment if the dispatcher has alerted this executor. */
extern void slot_linger(void);

/*
 * Ends a cell; call after the transaction has ended.  slot_report() wakes the
 * dispatcher once for several cells.
 */
extern void slot_done(int cell, CellReport report);
extern void slot_report(void);

/*
 * Notes the end of the cell's tool: another may start while the settlement is
 * written.  Call before slot_done().
 */
extern void slot_ended(int cell);
/* Changes job and phase, atomically against slot_cancel(). */
extern void slot_enter(int cell, Phase phase);
/* Returns the request to end this cell's job, and its reason. */
extern CancelKind slot_cancelled(int cell, char *reason, bool *has_reason);

/* Wakes sessions in wait_for() that wait for this job. */
extern void wake_waiters(JobqDb *db, const pg_uuid_t *id, JobStatus status);

#endif
