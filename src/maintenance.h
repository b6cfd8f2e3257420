/*
 * maintenance.h
 *	  The short-lived process that makes and drops partitions.
 */
#ifndef JOBQ_MAINTENANCE_H
#define JOBQ_MAINTENANCE_H

#include "shmem.h"

/*
 * Starts it; need is the expires_at of a row that found no partition, or 0.  false: one runs already,
 * or there is no worker slot; ask again later.  db->maintenance_done rises when one has succeeded and
 * db->maintenance_failed when one has not; both wake the dispatcher.
 */
extern bool maintenance_start(JobqDb *db, TimestampTz need);

#endif
