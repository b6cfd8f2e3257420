/*
 * take_back.h
 *	  Takes back jobs that were handed out and have not begun.
 */
#ifndef JOBQ_TAKE_BACK_H
#define JOBQ_TAKE_BACK_H

#include "workers/executor_pool.h"

/*
 * Takes back the executor's jobs that have not begun; jobs to be settled as
 * cancelled only with `cancels`.
 */
extern void executor_take_back(Executor *e, bool cancels);
/* The same for all executors: hand-out has stopped. */
extern void executors_take_back(bool cancels);

/*
 * Takes back jobs that wait behind a long run, or behind a type with runs that
 * are no longer short.
 */
extern void executors_take_back_slow(MonoTime now);
extern MonoTime take_back_next_timer(MonoTime now);

/*
 * Ends all executors, once their running jobs have ended: ALTER DATABASE ...
 * SET applies to new processes only.
 */
extern void executors_dismiss(void);

#endif
