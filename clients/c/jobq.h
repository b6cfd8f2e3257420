/*
 * jobq for C: workers and enqueue over libpq (README.md).
 *
 * The worker process claims jobs and keeps their leases.  Each handler runs in
 * a child process of its own, so that a handler may block, crash and be killed.
 * JSON is text here, in and out.
 */
#ifndef JOBQ_CLIENT_H
#define JOBQ_CLIENT_H

#include <libpq-fe.h>

typedef struct jobq_worker jobq_worker;

/* A claimed job, as its handler gets it.  Absent values are NULL. */
typedef struct jobq_job
{
	const char *id;
	const char *type;
	const char *payload;		/* JSON */
	const char *tenant;
	const char *metadata;		/* JSON */
	const char *progress_data;	/* JSON that the last attempt stored */
	const char *lease_token;
	int			attempts;		/* charged, this one included */
	int			max_attempts;
	struct jobq_held *held;		/* private */
} jobq_job;

typedef void (*jobq_handler) (jobq_job *job);
typedef void (*jobq_batch_handler) (jobq_job *jobs, int njobs);

/* Begin with jobq_defaults(). */
typedef struct jobq_options
{
	const char *listen_dsn;		/* a direct connection that listens; NULL: claims wait in the server */
	int			pooler;			/* the worker's DSN is a pooler in transaction mode */
	int			concurrency;	/* handlers at once, 1 */
	double		lease;			/* seconds, 120; heartbeats are sent each third of it */
	double		poll;			/* seconds between claims when nothing else wakes the worker, 1 */
	double		grace;			/* seconds that running jobs have after SIGTERM, 30 */
	const char *name;			/* the worker's name in jobq.jobs; NULL: host:pid */
	void		(*log) (const char *line, void *arg);	/* a line of JSON; NULL: to stderr */
	void		(*job_start) (const jobq_job *job, void *arg);	/* spans of OpenTelemetry */
	void		(*job_end) (const jobq_job *job, const char *outcome, void *arg);
	void	   *arg;			/* of the three */
} jobq_options;

/* How jobq_fail() ends the attempt.  retryable 0: the options of the type decide. */
#define JOBQ_RETRY		1
#define JOBQ_PERMANENT	(-1)
typedef struct jobq_error
{
	int			retryable;
	const char *code;
	const char *retry_after;	/* an interval: "5 min" */
	const char *details;		/* JSON */
} jobq_error;

/* Worker */
extern jobq_options jobq_defaults(void);
extern jobq_worker *jobq_worker_new(const char *dsn, const jobq_options *options);
extern void jobq_handle(jobq_worker *worker, const char *type, jobq_handler handler);
extern void jobq_handle_batch(jobq_worker *worker, const char *type, int batch, jobq_batch_handler handler);

/*
 * Works until SIGTERM or SIGINT.  Returns 0, or 1 if the server refuses the
 * first claim or an option is out of range.
 */
extern int	jobq_run(jobq_worker *worker);

/* For tests: works until no job is due and no handler runs.  Jobs that wait for a time are left. */
extern int	jobq_run_until_empty(jobq_worker *worker);
extern void jobq_worker_free(jobq_worker *worker);

/*
 * In a handler.  A handler that returns without one of the first four calls has
 * completed its job without a result; the first of them counts.
 */
extern void jobq_result(jobq_job *job, const char *result);
extern void jobq_fail(jobq_job *job, const char *message, const jobq_error *error);
extern void jobq_skip(jobq_job *job, const char *reason);
extern void jobq_snooze(jobq_job *job, const char *delay, const char *reason);
extern void jobq_progress(jobq_job *job, double percent);
extern void jobq_checkpoint(jobq_job *job, const char *data);	/* the next attempt's progress_data */
extern void jobq_log(jobq_job *job, const char *level, const char *message, const char *data);

/*
 * Returns NULL, or "cancel", "lost" or "shutdown": return soon then, without a
 * result.  SIGTERM interrupts a blocking call when this changes.  All threads of
 * the handler may ask.
 */
extern const char *jobq_stopped(jobq_job *job);

/*
 * Completes the job in the open transaction of a connection that the handler
 * has made.  Returns 1, 0 if the job is lost (roll back), -1 after an error.
 * If that transaction is not committed, the job fails, unless jobq_result()
 * completes it.  After 0 and -1 the jobs of a batch that have no end either are
 * released.
 */
extern int	jobq_complete(jobq_job *job, PGconn *conn, const char *result);

/*
 * Enqueues a job in the transaction of conn; options is a JSON object of
 * jobq.enqueue's arguments, or NULL.  Returns 0 with the id, or -1 with
 * PQerrorMessage().
 */
extern int	jobq_enqueue(PGconn *conn, const char *type, const char *payload, const char *options, char id[37]);

#endif
