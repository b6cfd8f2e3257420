/*
 * lease_log.h
 *	  How many events the holder of a lease has written about its attempt.
 */
#ifndef JOBQ_LEASE_LOG_H
#define JOBQ_LEASE_LOG_H

#include "tables/queue_table.h"

/*
 * Counts one more event of the locked or read job's attempt, and returns the
 * number of those before it: ATTEMPT_EVENTS or more if it is to be dropped.
 */
extern int	lease_log_count(Job *job);

#endif
