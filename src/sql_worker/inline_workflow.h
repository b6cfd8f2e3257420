/*
 * inline_workflow.h
 *	  A run of a workflow in the transaction of jobq.run_inline.
 */
#ifndef JOBQ_INLINE_WORKFLOW_H
#define JOBQ_INLINE_WORKFLOW_H

#include "base/act_as.h"
#include "settle/ledger.h"

/* The identity and search_path of the owner of jobq's tables, for jobq's own SQL. */
typedef struct OwnerCall
{
	Caller		caller;
	int			nest;
} OwnerCall;

extern OwnerCall owner_call_begin(void);
extern void owner_call_end(OwnerCall call);

/*
 * Starts a run whose row is locked; closes the ledger.  0A000: not all its
 * steps are for SQL handlers.
 */
extern void inline_workflow_begin(Ledger *ledger, Job *job);
/*
 * Runs its tasks one by one with run_task, until it has ended.  0A000: a task
 * waits for something else.
 */
extern void inline_workflow_run(const pg_uuid_t *run, void (*run_task) (const pg_uuid_t *id));

#endif
