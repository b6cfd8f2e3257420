/*
 * ddl_barrier.h
 *	  What a command that jobq is in the way of needs, until its transaction ends.
 */
#ifndef JOBQ_DDL_BARRIER_H
#define JOBQ_DDL_BARRIER_H

typedef enum DetourKind
{
	CHANGES_EXTENSION,			/* the queue's locks; tools may run on */
	REASSIGNS_EXTENSION,		/* the queue's locks */
	DROPS_EXTENSION,
	NEEDS_DATABASE,				/* to itself */
	DROPS_DATABASE
} DetourKind;

/* Returns when the way is free, or after a few seconds.  Again in the same transaction: adds nothing. */
extern void detour_begin(Oid dboid, DetourKind kind);

#endif
