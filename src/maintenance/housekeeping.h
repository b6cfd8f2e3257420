/*
 * housekeeping.h
 *	  The short-lived process that does what nobody waits for: retention by number, the disk watch.
 */
#ifndef JOBQ_HOUSEKEEPING_H
#define JOBQ_HOUSEKEEPING_H

#include "shared/shmem.h"

/* Starts it; false: one runs already, or there is no worker slot. */
extern bool chores_start(JobqDb *db);

#endif
