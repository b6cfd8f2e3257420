/*
 * ending.h
 *	  How the last jobs ended that left no row, for jobq.wait_for.
 */
#ifndef JOBQ_ENDING_H
#define JOBQ_ENDING_H

#include "shmem.h"

/* Remembered when this transaction commits. */
extern void remember_ending(const pg_uuid_t *id, int32 type_id, JobStatus status);
extern bool recall_ending(JobqDb *db, const pg_uuid_t *id, Ending *ending);

#endif
