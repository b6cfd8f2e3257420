/*
 * executor_reports.h
 *	  Reports of executors.
 */
#ifndef JOBQ_EXECUTOR_REPORTS_H
#define JOBQ_EXECUTOR_REPORTS_H

/*
 * Reads reports, forgets executors that have ended; true if anything has
 * changed.
 */
extern bool executor_reports_take(MonoTime now);

#endif
