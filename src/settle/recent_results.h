/*
 * recent_results.h
 *	  Results of the last jobs that left no row, for jobq.wait_for.
 */
#ifndef JOBQ_RECENT_RESULTS_H
#define JOBQ_RECENT_RESULTS_H

#include "shared/shmem.h"
#include "tables/queue_table.h"

/* Remembers the end of a job when this transaction commits. */
extern void remember_result(Job *job, JobStatus status);
extern bool recall_result(JobqDb *db, const pg_uuid_t *id, RecentResult *ending);

#endif
