/*
 * take_back.h
 *	  Taking back jobs that were handed out and have not begun.
 */
#ifndef JOBQ_TAKE_BACK_H
#define JOBQ_TAKE_BACK_H

#include "workers/executor_pool.h"

/* Takes back the executor's jobs that have not begun; jobs that it is to settle as cancelled only with `cancels`. */
extern void executor_take_back(Executor *e, bool cancels);
/* The same for all executors: hand-out has stopped. */
extern void executors_take_back(bool cancels);
/* Takes back jobs that wait behind a long run, or behind a type whose runs are no longer short. */
extern void executors_take_back_slow(MonoTime now);
extern MonoTime take_back_next_timer(MonoTime now);
/* Ends all executors, once their running jobs have ended: ALTER DATABASE ... SET counts for new processes only. */
extern void executors_dismiss(void);

#endif
