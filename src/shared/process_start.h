/*
 * process_start.h
 *	  How jobq's processes are registered.  bgw_extra has the dispatcher's
 *	  arguments for an executor; bgw_main_arg is the number of the slot.
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

/*
 * Fills a description that all processes share: started after recovery, not
 * restarted.  dboid is the argument, and is in the name unless invalid.
 */
extern void describe_worker(BackgroundWorker *worker, const char *type, const char *function, Oid dboid);

#endif
