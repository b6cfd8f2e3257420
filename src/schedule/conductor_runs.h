/*
 * conductor_runs.h
 *	  The conductor's work for runs of workflows.
 */
#ifndef JOBQ_CONDUCTOR_RUNS_H
#define JOBQ_CONDUCTOR_RUNS_H

#include "shared/shmem.h"

/* context: lives as long as the process. */
extern void runs_init(MemoryContext context, JobqDb *db);
/* Notes a run, or a task with map, to be looked at. */
extern void runs_look(const pg_uuid_t *id, uint32 tenant);
/* The same for one that the sweep has found. */
extern void runs_add_swept(const pg_uuid_t *id, uint32 tenant);
/* True if the tables are not ours to work with. */
extern bool runs_are_foreign(void);
/* Takes the runs that the dispatcher has handed out. */
extern void runs_take_starts(void);
/* Runs one transaction, if there is work. */
extern void runs_turn(void);
/* Returns the time until the next work, in microseconds; -1: until news come. */
extern int64 runs_time_left(void);
/* True if no run exists. */
extern bool runs_are_idle(void);

#endif
