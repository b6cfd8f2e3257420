/*
 * conductor_transaction.h
 *	  Transactions of the conductor.
 */
#ifndef JOBQ_CONDUCTOR_TRANSACTION_H
#define JOBQ_CONDUCTOR_TRANSACTION_H

#include "utils/elog.h"

/* Runs what(arg) in a transaction; returns the error that has rolled it back, else NULL. */
extern ErrorData *conductor_run(void (*what) (void *), void *arg, bool flush);

/*
 * The same for work whose state is in rows: it waits for no flush, since it is
 * found to be due again after a crash, and not long for locks.
 */
extern ErrorData *conductor_transaction(void (*what) (void *), void *arg);
/* True if the same may succeed a moment later. */
extern bool conductor_error_is_transient(const ErrorData *error);

#endif
