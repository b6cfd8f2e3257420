/*
 * ending.h
 *	  How the last jobs ended that left no row, for jobq.wait_for.
 */
#ifndef JOBQ_ENDING_H
#define JOBQ_ENDING_H

#include "queue.h"
#include "shmem.h"

/* Remembered when this transaction commits. */
extern void remember_ending(Job *job, JobStatus status);
extern bool recall_ending(JobqDb *db, const pg_uuid_t *id, Ending *ending);

#endif
