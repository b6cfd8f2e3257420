/*
 * throttle.h
 *	  Counts wrong passwords and requests with a password, by role and address.
 *
 * Five within a minute are free.  Each further one doubles the time in which
 * no sign-in of that role from that address is tried, up to a minute.  An
 * attempt counts as wrong until the server has let it in, so that many at once
 * gain nothing.  Addresses are networks of clients (client_network).
 */
#ifndef JOBQ_WEB_THROTTLE_H
#define JOBQ_WEB_THROTTLE_H

#include <stdbool.h>
#include <stdint.h>

#include "address.h"

typedef enum Outcome
{
	OUTCOME_RIGHT,
	OUTCOME_WRONG,
	OUTCOME_UNKNOWN				/* the server was not asked */
} Outcome;

/* True if a request with a password may come now: 50 a second of a pair. */
extern bool throttle_may_ask(const char *role, const Address *address);
/* Returns the seconds to wait before a password is looked at; 0: none. */
extern int	throttle_wait(const char *role, const Address *address);
/* Returns the number of a new attempt, or -1 and the seconds to wait. */
extern int	throttle_begin(const char *role, const Address *address, int *wait_s);
extern void throttle_end(int attempt, Outcome outcome);

#endif
