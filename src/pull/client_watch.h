/*
 * client_watch.h
 *	  Whether the client of a claim is still there.
 */
#ifndef JOBQ_CLIENT_WATCH_H
#define JOBQ_CLIENT_WATCH_H

#include "jobq.h"

/* Ends the session if its client has closed the connection. */
extern void client_check(void);

/*
 * Waits for this process's latch, at most so many milliseconds.  Ends the
 * session as soon as its client has closed the connection.
 */
extern void client_wait_latch(long timeout_ms, uint32 wait_event);

#endif
