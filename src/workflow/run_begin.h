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

/*
 * A transaction of the conductor begins: it is to leave the rest of its work to
 * others when its turn is over.  In other processes no turn is.
 */
extern void run_turn_begins(void);
extern bool run_turn_is_over(void);

#endif
