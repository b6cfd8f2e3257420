/*
 * recent_ends.h
 *	  Results of the last jobs that left no row, for jobq.wait_for.
 */
#ifndef JOBQ_RECENT_ENDS_H
#define JOBQ_RECENT_ENDS_H

#include "shared/shmem.h"
#include "tables/queue_table.h"

/* Remembers the end of a job when this transaction commits. */
extern void remember_end(Job *job, JobStatus status);
extern bool recall_end(JobqDb *db, const pg_uuid_t *id, RecentEnd *ending);

#endif
