/*
 * process_start.h
 *	  How our processes are registered, and what a dispatcher tells an executor in bgw_extra; its bgw_main_arg is
 *	  the slot's number.
 */
#ifndef JOBQ_PROCESS_START_H
#define JOBQ_PROCESS_START_H

#include "postmaster/bgworker.h"

typedef struct WorkerStart
{
	Oid			dboid;
	Oid			roleid;			/* InvalidOid: the bootstrap superuser */
	uint32		generation;		/* of the slot */
} WorkerStart;

/* What all have in common: after recovery, not restarted.  dboid is its argument and in its name, unless invalid. */
extern void describe_worker(BackgroundWorker *worker, const char *type, const char *function, Oid dboid);

#endif
