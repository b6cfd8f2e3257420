/*
 * rewrite.h
 *	  Gives the queue's file and its indexes' back to the operating system.
 */
#ifndef JOBQ_REWRITE_H
#define JOBQ_REWRITE_H

/* Inside a transaction.  false: a lock is not free; nothing has been done, but locks may be held to its end. */
extern bool rewrite_table(Oid relid);

#endif
