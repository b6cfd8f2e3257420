/*
 * recent_results.h
 *	  How the last jobs ended that left no row, for jobq.wait_for.
 */
#ifndef JOBQ_RECENT_RESULTS_H
#define JOBQ_RECENT_RESULTS_H

#include "shared/shmem.h"
#include "tables/queue_table.h"

/* Remembered when this transaction commits. */
extern void remember_ending(Job *job, JobStatus status);
extern bool recall_ending(JobqDb *db, const pg_uuid_t *id, Ending *ending);

#endif
