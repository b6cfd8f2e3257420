/*
 * What the files of the C client share.  Functions and variables with the
 * prefix jw_ are no part of the interface.
 */
#ifndef JOBQ_CLIENT_INTERNAL_H
#define JOBQ_CLIENT_INTERNAL_H

#define _POSIX_C_SOURCE 200809L
#include "jobq.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define LONGEST_WAIT 20			/* seconds, of a claim */
#define MOST_JOBS	1000		/* of a claim */
#define STOP_MS		2000		/* a stopped handler is killed after this */
#define CLAIM_STOP_MS 3000		/* a claim has so long to end when the worker stops */
#define OPEN_MS		5000		/* a listener has so long to connect */
#define REPEAT_MS	250			/* until a call without an answer is repeated */
#define PROGRESS_MS	100			/* between two reports of a job's progress */
#define MOST_REPORTS 1000		/* of a job, that wait for a connection */
#define LOCKED		"55P03"		/* the SQLSTATE of a statement that a row lock has ended */
#define NEVER		INT64_MAX

typedef struct Buffer
{
	char	   *data;
	size_t		length,
				size;
} Buffer;

typedef struct Handler
{
	const char *type;
	int			batch;
	jobq_handler single;
	jobq_batch_handler many;
	struct Handler *next;
} Handler;

typedef struct Link
{
	const char *dsn;
	PGconn	   *conn;			/* NULL: not connected */
	PostgresPollingStatusType opening;	/* of a listener that connects: READING or WRITING */
	int64_t		opening_ends;	/* 0: it does not connect */
	int			failures;
	int64_t		retry_at;
} Link;

/* The end of an attempt, as the child reports it. */
typedef enum End
{
	END_NONE, END_RESULT, END_FAIL, END_SKIP, END_SNOOZE
} End;

/* Progress or an event that a handler has reported, until the server has it. */
typedef struct Report
{
	char		kind;			/* 'p', 'l' */
	char	   *texts[3];
	struct Report *next;
} Report;

/* A job of this process, beside its public part. */
struct jobq_held
{
	int64_t		expires,
				deadline,
				began;			/* of its handler; 0: not yet */
	char		stopped,		/* 0, or the first letter of cancel, lost, shutdown */
				acknowledged;	/* in the child: 'k' has come */
	char		own;			/* jobq_complete(): 0, 'b' begun, 'd' done, 'l' lost, 'f' failed */
	bool		undone;			/* the last one was lost or failed: its transaction rolls back */
	bool		locked;			/* the last heartbeat met a lock of the row */
	Report	   *reports;
	int			nreports;
	int64_t		retry_at,		/* of a report or an end without an answer; 0: none */
				progress_at;	/* the next progress is sent */
	const char *outcome;		/* set once the worker is done with the job */
	bool		ended;			/* the child is gone */
	End			end;
	int			retryable;
	char	   *text,			/* result, message, reason or delay */
			   *code,			/* code; the reason of a snooze */
			   *retry_after,
			   *details;
	int			fd;				/* in the child: to the worker */
	uint16_t	index;			/* in its run */
	jobq_job   *batch;			/* all jobs of the run */
	int			nbatch;
};

/* A child process with its jobs. */
typedef struct Run
{
	Handler    *handler;
	pid_t		pid;			/* 0: it has ended */
	int			fd;
	int64_t		kill_at;
	Buffer		in;
	int			njobs;
	jobq_job   *jobs;
	struct Run *next;
} Run;

struct jobq_worker
{
	jobq_options options;
	Handler    *handlers;
	Buffer		types;			/* array literal */
	int			ntypes;
	Link		calls,
				claims,
				listener;
	Run		   *runs;
	bool		answered,		/* a claim was not refused */
				claiming,
				stopping,
				failed,
				notified,
				until_empty,	/* the worker ends when a claim finds nothing, and */
				idle;			/* no handler ran when it was sent */
	int64_t		claim_began,
				claim_at,
				beat_at,
				grace_ends,
				claim_ends;		/* while the worker stops */
	int			wait;			/* seconds, of a claim */
	int64_t		lease,
				answer;			/* ms */
	char		lock[16],		/* limits of waits for row locks in ms: for the first try, and for others */
				short_lock[16];
};

/* ---------- messages between worker and child ---------- */

typedef struct MessageHead
{
	/* r result, f fail, s skip, z snooze, p progress, l log; b, d, o, e: complete() */
	char		kind;
	int8_t		retryable;
	uint16_t	index;
	uint32_t	length;
} MessageHead;

/* To the child: the first letter of a stop reason, or 'k': acknowledged. */
typedef struct Order
{
	char		kind;
	uint16_t	index;
} Order;

/* log.c */
extern void *jw_allocate(size_t size);
extern char *jw_copy(const char *text);
extern void	jw_append_bytes(Buffer *buffer, const void *data, size_t length);
extern void	jw_append(Buffer *buffer, const char *text);
extern void	jw_append_element(Buffer *array, const char *text);
extern int64_t jw_now_ms(void);
extern int64_t jw_earlier(int64_t a, int64_t b);
extern void	jw_log_event(jobq_worker *worker, const char *level, const char *event,...);
extern void	jw_log_started(jobq_worker *worker, const jobq_job *job);
extern void	jw_log_end(jobq_worker *worker, const jobq_job *job, const char *event, const char *outcome, const char *error);

/* connection.c */
extern void	jw_lose_link(jobq_worker *worker, Link *link, const char *error);
extern bool	jw_connected(jobq_worker *worker, Link *link);
extern bool	jw_listener_connected(jobq_worker *worker);
extern bool	jw_is_transient(const PGresult *result);
extern bool	jw_is_error(const PGresult *result);
extern PGresult *jw_answer_of(PGconn *conn, int64_t timeout);
extern bool	jw_has_code(const PGresult *result, const char *code);
extern PGresult *jw_call_on(jobq_worker *worker, Link *link, const char *final, const char *sql, int n,
							const char *const *values);
extern const char *jw_value_of(const PGresult *result);

/* handler.c */
extern bool	jw_send_reports(jobq_worker *worker, Run *run, jobq_job *job);
extern void	jw_send_all_reports(jobq_worker *worker);
extern int64_t jw_reports_due(const Run *run, const struct jobq_held *held);
extern void	jw_free_reports(struct jobq_held *held);
extern bool	jw_in_own_transaction(const struct jobq_held *held);
extern bool	jw_read_child(jobq_worker *worker, Run *run);
extern void	jw_reap_children(jobq_worker *worker);
extern void	jw_start_run(jobq_worker *worker, Run *run);

/* settle.c */
extern void	jw_send_order(Run *run, jobq_job *job, char kind);
extern void	jw_stop_job(Run *run, jobq_job *job, char reason);
extern bool	jw_release_job(jobq_worker *worker, Run *run, jobq_job *job, const char *reason);
extern void	jw_free_run(Run *run);
extern void	jw_settle_all(jobq_worker *worker);
extern void	jw_heard(jobq_worker *worker, Run *run, jobq_job *job, const char *state, int64_t sent);
extern void	jw_heartbeat(jobq_worker *worker);
extern void	jw_expire_leases(jobq_worker *worker, int64_t now);

/* claim.c */
extern int	jw_running(const jobq_worker *worker);
extern void	jw_begin_claim(jobq_worker *worker);
extern void	jw_read_claim(jobq_worker *worker);
extern void	jw_read_notifications(jobq_worker *worker);

/*
 * Runs a statement on the connection for calls; the arguments are texts or NULL.
 * The second one takes an error with the SQLSTATE `final` for an answer.
 */
#define CALL(worker, sql, ...) CALL_FINAL(worker, NULL, sql, __VA_ARGS__)
#define CALL_FINAL(worker, final, sql, ...) \
	jw_call_on(worker, &(worker)->calls, final, sql, sizeof((const char *[]) {__VA_ARGS__}) / sizeof(char *), \
			(const char *[]) {__VA_ARGS__})

/*
 * In a statement: waits for row locks end after so many ms, so that a locked
 * job does not hold up the others.
 */
#define BOUNDED(parameter) " FROM (SELECT set_config('lock_timeout', " parameter ", true)) AS bound"

extern int	jw_signal_pipe[2];
extern volatile sig_atomic_t jw_stop_requested;

#endif
