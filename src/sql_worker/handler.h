/*
 * handler.h
 *	  Running a SQL handler once, and what it may ask for while it runs.
 *
 * handler_run() is called with the job's row locked, inside a transaction.  It
 * runs the handler in a subtransaction and sets the outcome.  The caller
 * settles.
 */
#ifndef JOBQ_HANDLER_H
#define JOBQ_HANDLER_H

#include "nodes/pg_list.h"
#include "settle/settle.h"

typedef enum RunEnd
{
	RUN_OUTCOME,				/* `outcome` is how the attempt ended */
	RUN_ALONE,					/* batch company got in its way: again, alone, at no charge */
	RUN_RELEASED				/* told to stop by DDL: put it back at no charge */
} RunEnd;

typedef struct Run
{
	/* set by the caller */
	Job		   *job;
	JobType    *type;
	int			cell;			/* of MySlot; -1: inline, in a client's transaction */
	bool		shared;			/* other jobs ran before it in this transaction */
	bool		stray_before;	/* had a stray cancel before: another one is its own failure */
	MemoryContext context;		/* lives until the caller has settled */
	const char *search_path;	/* run_inline: as a session of the role has it; else NULL */
	bool		restricted;		/* run_inline, in a security-restricted operation */

	/* set by handler_run */
	RunEnd		end;
	Outcome		outcome;
	bool		closes_batch;	/* touched what the next job in this transaction would see */
	struct ErrorData *callers_cancel;	/* run_inline's own statement was cancelled: no outcome of the job */
	List	   *held;			/* names of WITH HOLD cursors it has declared */
	List	   *log;			/* Event: settled with the outcome, so they survive the rollback */
	TimestampTz progress_told;	/* when set_progress last left an event */

	bool		called;			/* the handler itself: not its look-up, nor its rights */
	/* set by the handler */
	bool		said;
	OutcomeKind said_kind;
	bool		said_permanent;
	char	   *said_reason;
	int64		said_delay_us;
	double		progress;
	char	   *progress_data;	/* JSON text, NULL: none; in the cell only as far as it fits */
} Run;

extern void handler_run(Run *run);
/* Of a run whose job and type are set. */
extern char *handler_timeout_message(Run *run);
/* The run under way in this process; NULL outside a handler. */
extern Run *handler_now(void);

/*
 * What run_inline runs in this session now, which no slot knows of; NULL:
 * nothing.
 */
extern const Run *handler_inline_run(void);

/*
 * Our ProcessUtility hook says: this statement leaves something behind for the
 * next job.
 */
extern void handler_note_conspicuous(void);
/* ... this one declares a WITH HOLD cursor of that name. */
extern void handler_note_held_cursor(const char *name);

#endif
