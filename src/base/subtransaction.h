/*
 * subtransaction.h
 *	  A function in a subtransaction of its own, whose error costs nothing else.
 */
#ifndef JOBQ_SUBTRANSACTION_H
#define JOBQ_SUBTRANSACTION_H

/*
 * Calls what(arg) in a subtransaction.  Returns the error that has rolled it
 * back, in the current memory context, or NULL.
 */
extern ErrorData *try_subtransaction(void (*what) (void *arg), void *arg);

#endif
