/*
 * gauges.h
 *	  Values of metrics that tables have, for shared memory.
 */
#ifndef JOBQ_GAUGES_H
#define JOBQ_GAUGES_H

#include "shared/shmem.h"

/* Reads the values and stores them in the JobqDb; in a transaction. */
extern bool gauges_read(void *db);

#endif
