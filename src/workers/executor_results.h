/*
 * executor_results.h
 *	  Reports of executors.
 */
#ifndef JOBQ_EXECUTOR_RESULTS_H
#define JOBQ_EXECUTOR_RESULTS_H

/*
 * Reads reports, forgets executors that have ended; true if anything has
 * changed.
 */
extern bool executors_collect(MonoTime now);

#endif
