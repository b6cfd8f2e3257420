/*
 * skip_locked.h
 *	  The parts of the hand-written worker: skip_locked.c sets up and describes
 *	  the design, skip_locked_run.c runs jobs, skip_locked_idle.c sleeps.
 */
#ifndef BENCH_SKIP_LOCKED_H
#define BENCH_SKIP_LOCKED_H

#include "common.h"

#include <pthread.h>
#include <stdatomic.h>

#define BATCH_MAX		1000

typedef struct Worker
{
	pthread_t	thread;
	PGconn	   *conn;			/* in pipeline mode */
	PGresult   *claim;			/* the jobs in hand */
	int			jobs;
	bool		failed[BATCH_MAX];
	char	   *tids;
	bool		was_idle;
	int64_t		claims;
	double		last_finished;
} Worker;

/* options */
extern bool row;
extern bool history;
extern bool await;
extern bool listening;
extern int64_t wanted;
extern int64_t concurrency;
extern int64_t batch;
extern int64_t poll_ms;

extern atomic_bool stopping;
extern atomic_llong finished;

/* skip_locked_run.c */
extern void allocate_tids(Worker *w);
extern void *run_worker(void *arg);

/* skip_locked_idle.c */
extern void idle_init(void);
extern void stop(int signal_number);
extern void sleep_for_jobs(Worker *w);
extern void tend_listener(Worker *w);

#endif
