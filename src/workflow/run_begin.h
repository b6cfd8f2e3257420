/*
 * run_begin.h
 *	  The start of a run of a workflow.
 */
#ifndef JOBQ_RUN_BEGIN_H
#define JOBQ_RUN_BEGIN_H

#include "settle/ledger.h"

/* Writes that a locked run runs, and counts an attempt. */
extern void run_write_begin(Ledger *ledger, Job *job, const char *worker);
/* Then: adds the tasks of these runs.  With no tables of jobq open. */
extern void runs_begin(const pg_uuid_t *ids, int n);

#endif
