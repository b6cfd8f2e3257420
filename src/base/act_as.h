/*
 * act_as.h
 *	  The identity that a piece of code runs with.
 */
#ifndef JOBQ_ACT_AS_H
#define JOBQ_ACT_AS_H

/* The identity before a change. */
typedef struct Caller
{
	Oid			role;
	int			security_context;
} Caller;

/*
 * Becomes the role until act_as_caller() or the end of the (sub)transaction.
 * restriction: SECURITY_RESTRICTED_OPERATION or 0.
 */
extern Caller act_as(Oid role, int restriction);
/* The same for the owner of jobq's tables, unrestricted. */
extern Caller act_as_owner(void);
extern void act_as_caller(Caller caller);

#endif
