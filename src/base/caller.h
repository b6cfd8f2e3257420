/*
 * caller.h
 *	  The role that has called the management function which runs now.
 *
 * The gate (security/owner_call.c) sets it; events that the call writes name
 * it, and so does its row in jobq.audit.
 */
#ifndef JOBQ_CALLER_H
#define JOBQ_CALLER_H

/* Sets the caller, InvalidOid: none; returns the former one. */
extern Oid	caller_set(Oid caller);
/* Returns the text for the caller; NULL: no such function runs. */
extern char *caller_text(void);

#endif
