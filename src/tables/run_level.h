/*
 * run_level.h
 *	  How deep a run is nested in others: for its concurrency key.
 */
#ifndef JOBQ_RUN_LEVEL_H
#define JOBQ_RUN_LEVEL_H

#include "utils/uuid.h"

/*
 * Returns 0 for a job, 1 for a run, and one more for each run above it.
 * workflow_id: of the row; NULL: the job is no task of a run.
 */
extern int	run_level(bool is_run, const pg_uuid_t *workflow_id);

#endif
