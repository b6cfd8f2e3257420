/*
 * housekeeping.h
 *	  The short-lived process for work that no job waits for: retention by
 *	  number, the disk watch.
 */
#ifndef JOBQ_HOUSEKEEPING_H
#define JOBQ_HOUSEKEEPING_H

#include "shared/shmem.h"

/* Starts it; false if one runs already, or if there is no worker slot. */
extern bool chores_start(JobqDb *db);

#endif
