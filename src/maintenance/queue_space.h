/*
 * queue_space.h
 *	  How much of the queue's files is free, whether VACUUM comes, and since
 *	  when the horizon stands still.
 */
#ifndef JOBQ_QUEUE_SPACE_H
#define JOBQ_QUEUE_SPACE_H

#include "shared/shmem.h"

/* Measures the queue and stores the result in the JobqDb; in a transaction. */
extern bool queue_space_measure(void *db);

/* The last measurement; zeros: none. */
extern QueueSpace queue_space(JobqDb *db);

#endif
