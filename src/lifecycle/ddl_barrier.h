/*
 * ddl_barrier.h
 *	  Stops jobs for a command that they would block, until its transaction ends.
 */
#ifndef JOBQ_DDL_BARRIER_H
#define JOBQ_DDL_BARRIER_H

typedef enum BarrierKind
{
	CHANGES_QUEUE,				/* the queue's locks; tools may run on */
	CHANGES_EXTENSION,			/* the same, and claims that wait end */
	REASSIGNS_EXTENSION,		/* the queue's locks */
	DROPS_EXTENSION,
	NEEDS_DATABASE,				/* to itself */
	DROPS_DATABASE
} BarrierKind;

/*
 * Returns when jobs have stopped, or after a few seconds.  In a transaction only
 * a call of a higher kind adds something.
 */
extern void barrier_begin(Oid dboid, BarrierKind kind);

#endif
