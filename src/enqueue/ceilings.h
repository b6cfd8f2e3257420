/*
 * ceilings.h
 *	  The most that a role held to its grants (access.h) may ask for: no more
 *	  than the job type gives.
 */
#ifndef JOBQ_CEILINGS_H
#define JOBQ_CEILINGS_H

#include "enqueue/enqueue_request.h"

/* Raises 42501, naming the ceiling, unless the caller may ask for all of it. */
extern void ceilings_check(const Request *request);

#endif
