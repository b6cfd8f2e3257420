/*
 * conductor_edges.h
 *	  The conductor's work for jobs that wait for other jobs.
 */
#ifndef JOBQ_CONDUCTOR_EDGES_H
#define JOBQ_CONDUCTOR_EDGES_H

#include "shared/shmem.h"

/* context: lives as long as the process. */
extern void edges_init(MemoryContext context, JobqDb *db);
/* Takes the news of ended jobs. */
extern void edges_take_news(void);
/* Runs one transaction, if there is work. */
extern void edges_turn(void);
/* Returns the time until the next work, in microseconds; -1: until news come. */
extern int64 edges_time_left(void);
/* True if no job waits for another one. */
extern bool edges_are_idle(void);

#endif
