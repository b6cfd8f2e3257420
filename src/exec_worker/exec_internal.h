/*
 * exec_internal.h
 *	  Declarations that the files of the exec worker share; no other folder
 *	  includes this header.
 *
 * The table of jobs (exec_jobs.c) has one entry for each cell of the slot.
 * An entry goes
 *
 *	 FREE -> TAKEN		exec_claim.c takes the job from the slot
 *	 TAKEN -> STARTED	the transaction has committed in which the row became
 *						running; the START frame is queued
 *	 STARTED -> ENDED	exec_messages.c received EXIT, or the helper is lost
 *	 ENDED -> FREE		exec_settle.c has committed the settlement
 *
 * or from TAKEN straight to FREE.  FREE -> TAKEN happens in a transaction.
 * All other changes happen outside of transactions.  So an error or the exit
 * of this process in a transaction leaves the table as it was, and nothing
 * that a tool reported is lost.
 */
#ifndef JOBQ_EXEC_INTERNAL_H
#define JOBQ_EXEC_INTERNAL_H

#include "nodes/pg_list.h"

#include "helper/frame.h"
#include "settle/artifacts.h"

typedef enum ExecState
{
	EXEC_FREE,
	EXEC_TAKEN,
	EXEC_STARTED,
	EXEC_ENDED
} ExecState;

/*
 * An event that is not yet in jobq.events: a line of descriptor 3, or the
 * start.
 */
typedef struct ToolEvent
{
	TimestampTz ts;
	uint8		kind;			/* FrameEventKind, or: */
#define EXEC_EVENT_STARTED	100
	char	   *text;
} ToolEvent;

/* Values of FrameExit.kind that no frame has. */
#define EXEC_HELPER_LOST	100
#define EXEC_UNSETTLED		101 /* the result can't be stored; message: the
								 * SQLSTATE, output: the error */

typedef struct ExecJob
{
	ExecState	state;
	int			cell;			/* its number in MySlot */
	MemoryContext context;		/* of this attempt; NULL while FREE */
	uint64		number;			/* identifies the attempt in frames */
	JobRef		ref;			/* the version of the row written last */
	Job			row;			/* columns for events: id, tenant, attempts */
	TimestampTz started_at;
	int64		timeout_us;
	int64		kill_grace_us;
	int64		stall_us;		/* 0: no limit on silence */
	bool		warm;			/* runs in a warm instance */
	uint32		tool_hash;		/* hash of the tool's definition at the
								 * start */
	CancelKind	asked;			/* the cancel that was sent to the helper */
	bool		has_reason;
	char		reason[JOBQ_REASON_LEN];

	/* reported by the tool */
	double		progress;		/* NaN: none */
	char	   *progress_data;	/* JSON text, NULL: none */
	bool		all_events;		/* options.events is all */
	char	   *log_fields;		/* of the payload, for log lines; NULL: none */
	List	   *events;			/* ToolEvent */
	int			nevents;		/* log events of the attempt */
	int			nartifacts;		/* sound artifacts of the attempt */
	uint32		bad_artifacts;	/* lines that jobq.artifacts does not take */
	MonoTime	progress_kept_at;	/* time of the last progress event kept */
	MonoTime	events_due;		/* 0: no event waits */
	FrameExit	end;			/* texts in context */
	TimestampTz ended_at;

	/* settling */
	int			failures;
	MonoTime	retry_at;
} ExecJob;

#define EXEC_NOFILE			256		/* default of options.nofile */
#define EXEC_MAX_EVENTS		100		/* kept of one attempt; more are counted */
#define EXEC_MAX_ARTIFACTS	1000	/* the same of artifacts */
#define EXEC_MAX_PROGRESS	8192

/* --- exec_jobs.c --- */
extern MemoryContext ExecContext;	/* parent of the jobs' contexts */
extern MemoryContext ExecTurnContext;	/* reset each turn; outlives
										 * transactions */
extern JobqDb *exec_db;

/*
 * Returns the next entry that is not FREE, NULL at the end.  after NULL: the
 * first.
 */
extern ExecJob *exec_jobs_next(const ExecJob *after);
/* Returns the STARTED job with that number in frames, or NULL. */
extern ExecJob *exec_job_by_number(uint64 number);
extern int	exec_jobs_count(ExecState state);

/* FREE -> TAKEN: the next job of the slot.  NULL: none. */
extern ExecJob *exec_job_take(void);
extern void exec_job_started(ExecJob *job); /* TAKEN -> STARTED */
/* STARTED -> ENDED by an EXIT frame.  Copies its texts. */
extern void exec_job_exited(ExecJob *job, const FrameExit *exit);
/* STARTED -> ENDED without a frame. */
extern void exec_job_ended(ExecJob *job, int kind, int value, const char *message);
/*
 * Ends all STARTED jobs: with EXEC_HELPER_LOST, or with a failed start if the
 * helper never was able to start a tool.
 */
extern void exec_jobs_helper_lost(void);

/*
 * Empties the entry and returns its cell, with the report, to the dispatcher.
 */
extern void exec_job_forget(ExecJob *job, CellReport report);

/* --- exec_messages.c --- */
extern bool exec_stopping;		/* SHUTDOWN is sent: only EXIT frames count */
/*
 * Handles the frames that have arrived.  When the helper is lost, ends all
 * STARTED jobs.
 */
extern void exec_take_frames(void);

/* --- exec_helper_process.c: the process and its socket --- */
/*
 * Returns true if there is a helper; starts one unless the retry delay runs.
 */
extern bool helper_ready(void);
extern pgsocket helper_socket(void);	/* PGINVALID_SOCKET: no helper */
/*
 * True if the last helper has sent a frame; it does so before it starts a
 * tool.
 */
extern bool helper_was_heard(void);
extern bool helper_has_output(void);

/*
 * Queues a frame.  answer: the maximal length of the EXIT to a START. false:
 * no helper, too long (errno: E2BIG) or out of memory (ENOMEM).
 */
extern bool helper_queue(const Frame *frame, Size answer);
/* Sends queued bytes until the socket would block. */
extern void helper_send(void);

/*
 * Reads the socket and passes each frame to got.  Returns false if the helper
 * is lost.
 */
extern bool helper_receive(void (*got) (const Frame *frame));
extern void helper_close(const char *why);

/*
 * Sends KILL, which also ends a stopped helper and with it the tools.  The end
 * of file on its socket shows that it has exited.
 */
extern void helper_kill(const char *why);

/*
 * Checks that the helper answers; called each turn, after its frames were
 * handled.  Returns false if the helper was given up.
 */
extern bool helper_watch(bool has_jobs);
extern long helper_watch_in(void);	/* ms until the next call is due; -1:
									 * never */
/*
 * Starts another helper after a loss, also when no job needs one: it kills the
 * processes that the tools of the lost one left.
 */
extern void helper_replace(void);
extern MonoTime helper_replace_at(void); /* DT_NOEND: no replacement is due */
/* Returns when helper_ready may have another result; DT_NOEND: never. */
extern MonoTime helper_retry_at(void);

/* --- exec_transaction.c --- */
/*
 * Runs work in a transaction.  Returns NULL, or the error (already logged) of
 * its rollback.
 */
extern ErrorData *exec_in_transaction(void (*work) (void *arg), void *arg);

/*
 * Settles ended jobs, writes due events, and claims the jobs in the slot.
 * final: at exit; claims nothing and bounds lock waits.
 */
extern void exec_turn(bool final);
/* Returns when jobs in the slot may be claimed; the past: now. */
extern MonoTime exec_claim_at(void);

/* --- exec_claim.c: called in and after the transaction of exec_turn --- */
typedef struct Claims Claims;
extern bool exec_has_assigned(void);
extern Claims *exec_claims_make(void);
/* Takes the jobs in the slot.  Returns the number of claims. */
extern int	exec_claims_take(Claims *claims);
/* Writes the claims. ledger NULL: jobq.queue is gone. */
extern void exec_claims_write(Claims *claims, Ledger *ledger);
extern int	exec_claims_count(const Claims *claims);
extern void exec_claims_apply(Claims *claims);
extern void exec_claims_retry(Claims *claims, bool (*alone) (Claims *one));

/* --- exec_start.c --- */
/*
 * Fills frame (in ExecTurnContext) and the maximal length of its EXIT.
 * Returns NULL, or the error that prevented it.
 */
extern ErrorData *exec_build_start(ExecJob *job, Job *row, JobType *type, FrameStart *frame,
								   Size *answer);

/* --- exec_unstartable_types.c --- */
extern void exec_type_started(ExecJob *job);

/*
 * Notes that the tool can't be started on this node.  reported: the error in
 * the job's row, NULL: none.  Returns true if the dispatcher must block the
 * type.  *first: this fault has not been reported before.
 */
extern bool exec_type_broken(ExecJob *job, JobType *type, const char *why, const char *reported, bool *first);

/*
 * Called after the transaction.  After a rollback, its faults are reported, and
 * their types blocked, by the retry.
 */
extern void exec_types_settled(bool committed);

/*
 * Forgets dropped types, and removes changed ones from health(). In a
 * transaction.
 */
extern void exec_types_recheck(void);
/*
 * Removes all types from jobq.health(), at start and exit; a dismissed exec
 * worker with a successor leaves those of the successor.
 */
extern void exec_types_clear(void);

/* --- exec_settle.c: ended jobs and events, like exec_claim.c --- */
typedef struct Settlements Settlements;
extern Settlements *settlements_make(bool final);	/* NULL: nothing is due */
extern void settlements_write(Settlements *settlements, Ledger *ledger);
/* Releases the jobs that wait for nothing but the ends that were written. */
extern void settlements_release_children(Settlements *settlements);
extern void settlements_apply(Settlements *settlements);
extern void settlements_retry(Settlements *settlements, ErrorData *(*alone) (Settlements *one, bool final),
							  bool final);
extern MonoTime exec_settle_at(void);	/* time of the next due write;
										 * DT_NOEND: none */

/* --- exec_artifacts.c --- */
/* Keeps the artifact of a line, or counts the line as malformed. */
extern void exec_got_artifact(ExecJob *job, const FrameText *text);
/* True if a kept event is an artifact. */
extern bool exec_has_artifact(const ExecJob *job);
/* Writes the kept artifacts, each with its event. */
extern void exec_write_artifacts(Ledger *ledger, ExecJob *job, JobType *type);
/* Keeps an event of the tool until it is written. */
extern void exec_keep_event(ExecJob *job, int kind, const FrameText *text);

/* --- exec_outcome.c --- */
extern void exec_judge(ExecJob *job, JobType *type, Outcome *outcome);
/* Returns options.log_stderr as an error level, 0: none. */
extern int	exec_log_level(JobType *type);

/* --- exec_tool_answers.c --- */
extern void exec_judge_answer(Outcome *outcome, FrameExit *end, JobType *type);

/*
 * Fills a failed outcome with the error on descriptor 3. false: there is none,
 * or it is malformed.
 */
extern bool exec_take_error(Outcome *outcome, FrameExit *end);

/*
 * --- exec_encoding.c: between the tool's UTF-8 and the database encoding ---
 */
extern char *text_from_utf8(const char *data, int len);
extern Jsonb *json_from_utf8(const char *data, int len, char **why);
/* Replaces each character that the database can't store by '?'. */
extern Jsonb *json_from_utf8_lossy(const char *data, int len, char **why);
extern char *utf8_from_text(const char *text);

#endif
