/*
 * rewrite.h
 *	  Gives the space of the queue's file and of its indexes back to the
 *	  operating system.
 */
#ifndef JOBQ_REWRITE_H
#define JOBQ_REWRITE_H

#include "datatype/timestamp.h"

/*
 * True if an index reaches every row that the server's horizon keeps.  Inside
 * a transaction.
 */
extern bool rewrite_has_index(Oid relid);

/*
 * Rewrites the table.  Inside a transaction.  Returns false if a lock is not
 * free: nothing has changed, but the transaction may hold locks to its end.
 * *began: the time since which all locks are held, 0 while they are not.
 * Raises ERRCODE_LOCK_NOT_AVAILABLE after limit_ms; 0: no limit.
 */
extern bool rewrite_table(Oid relid, int limit_ms, TimestampTz *began);

#endif
