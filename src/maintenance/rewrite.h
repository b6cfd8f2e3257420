/*
 * rewrite.h
 *	  Gives the queue's file and its indexes' back to the operating system.
 */
#ifndef JOBQ_REWRITE_H
#define JOBQ_REWRITE_H

#include "datatype/timestamp.h"

/* Inside a transaction.  False: no index reaches every row that the server's horizon keeps. */
extern bool rewrite_has_index(Oid relid);

/*
 * Inside a transaction.  false: a lock is not free; nothing has been done, but locks may be held to its end.  *began: since when
 * all are held, 0 while they are not.  An error (ERRCODE_LOCK_NOT_AVAILABLE): it took longer than limit_ms; 0: no limit.
 */
extern bool rewrite_table(Oid relid, int limit_ms, TimestampTz *began);

#endif
