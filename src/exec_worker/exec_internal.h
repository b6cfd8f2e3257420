/*
 * exec_internal.h
 *	  The exec worker's own table of jobs, shared by its files (exec_*.c); nobody else includes it.
 *
 * One entry a cell of its slot.  An entry goes
 *
 *	 FREE -> TAKEN		exec_claim.c: taken from the slot
 *	 TAKEN -> STARTED	its row says running, and that is committed; the START frame is queued
 *	 STARTED -> ENDED	exec_messages.c: the helper said how, or the helper is gone
 *	 ENDED -> FREE		exec_settle.c: its end is committed
 *
 * or from TAKEN straight to FREE.  But for FREE -> TAKEN a state changes only when no transaction is open, so
 * an error (or the end of this process) in one finds the table as it was and nothing that a tool said is lost.
 */
#ifndef JOBQ_EXEC_INTERNAL_H
#define JOBQ_EXEC_INTERNAL_H

#include "nodes/pg_list.h"

#include "helper/frame.h"
#include "settle/settle.h"

typedef enum ExecState
{
	EXEC_FREE,
	EXEC_TAKEN,
	EXEC_STARTED,
	EXEC_ENDED
} ExecState;

/* What a tool said on fd 3, or that it has started; not yet written to jobq.events. */
typedef struct ToolEvent
{
	TimestampTz ts;
	uint8		kind;			/* FrameEventKind, or: */
#define EXEC_EVENT_STARTED	100
	char	   *text;
} ToolEvent;

/* kinds of end beside FrameExitKind */
#define EXEC_HELPER_LOST	100
#define EXEC_UNSETTLED		101 /* message: SQLSTATE, output: why it could not be stored */

typedef struct ExecJob
{
	ExecState	state;
	int			cell;			/* its number in MySlot */
	MemoryContext context;		/* all that belongs to the attempt; NULL while FREE */
	uint64		number;			/* names the attempt in frames */
	JobRef		ref;			/* the row as we wrote it last */
	Job			row;			/* what events need of it: id, tenant, attempts */
	TimestampTz started_at;
	int64		timeout_us;
	int64		kill_grace_us;
	int64		stall_us;		/* 0: it may be silent */
	bool		warm;			/* it runs in an instance that lives on */
	uint32		tool_hash;		/* of the definition that it was started by */
	CancelKind	asked;			/* what the helper has been told */
	bool		has_reason;
	char		reason[JOBQ_REASON_LEN];

	/* what came from the tool */
	double		progress;		/* NaN: none */
	char	   *progress_data;	/* JSON text, NULL: none */
	bool		tells_all;		/* options.events is all */
	char	   *log_fields;		/* of the payload, for lines of the log; NULL: none */
	List	   *events;			/* ToolEvent */
	int			nevents;		/* so many of its own in all */
	MonoTime	progress_told;	/* when the last event of progress was kept */
	MonoTime	events_due;		/* 0: none wait */
	FrameExit	end;			/* texts in context */
	TimestampTz ended_at;

	/* settling */
	int			failures;
	MonoTime	retry_at;
} ExecJob;

#define EXEC_NOFILE			256		/* options.nofile when it is not given */
#define EXEC_MAX_EVENTS		100		/* of one attempt; more are counted, not kept */
#define EXEC_MAX_PROGRESS	8192

extern MemoryContext ExecContext;	/* parent of the jobs' contexts */
extern MemoryContext ExecTurnContext;	/* reset each turn of the loop; outlives transactions */
extern JobqDb *exec_db;
extern bool exec_stopping;		/* SHUTDOWN has been sent: only ends count now */

/* --- exec_jobs.c --- */
/* Returns the entry behind "after" that is not FREE, NULL: there is none.  after NULL: the first. */
extern ExecJob *exec_jobs_next(const ExecJob *after);
/* Returns the STARTED job with that number in frames, or NULL. */
extern ExecJob *exec_job_by_number(uint64 number);
extern int	exec_jobs_count(ExecState state);

extern ExecJob *exec_job_take(int cell);	/* FREE -> TAKEN */
extern void exec_job_started(ExecJob *job); /* TAKEN -> STARTED */
/* STARTED -> ENDED, by an EXIT frame; copies its texts. */
extern void exec_job_exited(ExecJob *job, const FrameExit *exit);
/* The same without a frame. */
extern void exec_job_ended(ExecJob *job, int kind, int value, const char *message);
extern void exec_jobs_helper_lost(void);	/* for all that are STARTED */
/* Empties the entry and returns its cell to the dispatcher. */
extern void exec_job_forget(ExecJob *job, Verdict verdict);

/* --- exec_worker.c --- */
/* Runs work in a transaction of its own.  NULL, or why it was rolled back (logged already). */
extern ErrorData *exec_in_transaction(void (*work) (void *arg), void *arg);
/* --- exec_messages.c --- */
/* Takes what the helper has said since; its loss ends all jobs that run. */
extern void exec_hear(void);

/* --- exec_helper_process.c: the process and its socket --- */
/* Is there a helper to send to?  Starts one unless it is too early after the last. */
extern bool helper_ready(void);
extern pgsocket helper_socket(void);	/* PGINVALID_SOCKET: no helper */
extern bool helper_has_output(void);
/* Queues a frame; answer: how long the EXIT to a START may get.  false: no helper, or too long. */
extern bool helper_queue(const Frame *frame, Size answer);
/* Sends what it can. */
extern void helper_send(void);
/* Reads what is there and hands each frame to got; false: the helper is gone. */
extern bool helper_receive(void (*got) (const Frame *frame));
extern void helper_close(const char *why);
/* Kills it, which works also when it is stopped; its tools die with it.  The end of its socket tells when. */
extern void helper_kill(const char *why);
/* Each turn, after its frames were taken: does it still answer?  false: it was given up. */
extern bool helper_watch(bool has_jobs);
extern long helper_watch_in(void);	/* ms until it is to be called again; -1: no need */
/* One that was lost is replaced also when no job needs it: the next one ends what its tools have left. */
extern void helper_replace(void);
extern MonoTime helper_replace_at(void); /* DT_NOEND: none is to be */
/* When helper_ready may say otherwise; DT_NOEND: never. */
extern MonoTime helper_retry_at(void);

/* --- exec_transaction.c --- */
/*
 * Settles what has ended, writes events that are due and claims what was handed over; final: on the way out,
 * nothing is claimed, and nothing waited for long.
 */
extern void exec_turn(bool final);

/* --- exec_claim.c: in exec_turn's transaction, and when it has committed or failed --- */
typedef struct Claims Claims;
extern bool exec_has_assigned(void);
extern Claims *claims_make(void);
/* Takes what was handed over; how many there are now. */
extern int	claims_take(Claims *claims);
extern void claims_write(Claims *claims, Ledger *ledger);	/* NULL: there is no queue any more */
extern void claims_apply(Claims *claims);
extern void claims_retry(Claims *claims, bool (*alone) (Claims *one));

/* --- exec_start.c --- */
/* Fills frame (in ExecTurnContext) and how long its EXIT may get.  NULL, or why it can't be built. */
extern ErrorData *exec_build_start(ExecJob *job, Job *row, JobType *type, FrameStart *frame,
								   Size *answer);

/* --- exec_unstartable_types.c --- */
extern void exec_type_started(ExecJob *job);
/*
 * Its tool can't be started here.  reported: the error that the job's row has, NULL: none.  true: the dispatcher is to
 * hold the type; *first: the fault is to be reported.
 */
extern bool exec_type_broken(ExecJob *job, JobType *type, const char *why, const char *reported, bool *first);
/* In a transaction: forgets types that are gone; those with another definition leave health(). */
extern void exec_types_recheck(void);
/* On the way out: jobq.health() has no type of ours any more. */
extern void exec_types_leave(void);

/* --- exec_settle.c: the same for what has ended and for events --- */
typedef struct Settlements Settlements;
extern Settlements *settlements_make(bool final);	/* NULL: nothing is due */
extern void settlements_write(Settlements *settlements, Ledger *ledger);
extern void settlements_apply(Settlements *settlements);
extern void settlements_retry(Settlements *settlements, ErrorData *(*alone) (Settlements *one, bool final),
							  bool final);
extern MonoTime exec_settle_at(void);	/* when something is due next; DT_NOEND: nothing waits */

/* --- exec_outcome.c --- */
extern void exec_judge(ExecJob *job, JobType *type, Outcome *outcome);
/* options.log_stderr as an error level, 0: none */
extern int	exec_log_level(JobType *type);

/* --- exec_warm_result.c --- */
extern void exec_judge_answer(Outcome *outcome, FrameExit *end, JobType *type);
/* Fills a failed outcome with the report on descriptor 3; false: there is none, or it is bad. */
extern bool exec_take_error(Outcome *outcome, FrameExit *end);

/* --- exec_encoding.c: words of strangers --- */
extern char *text_from_utf8(const char *data, int len);
extern Jsonb *json_from_utf8(const char *data, int len, char **why);
/* The same with a '?' for each character that the database can't store. */
extern Jsonb *json_from_utf8_lossy(const char *data, int len, char **why);
extern char *utf8_from_text(const char *text);

#endif
