/*
 * handler.h
 *	  Running a SQL handler, and what it may ask for while it runs.
 */
#ifndef JOBQ_HANDLER_H
#define JOBQ_HANDLER_H

#include "settle.h"

/* The job whose handler runs in this process now; false outside one. */
extern bool handler_current_job(pg_uuid_t *id, int *depth);

#endif
