/*
 * late_commit.c
 *	  Loaded into a session: its transactions are visible some time before the
 *	  callbacks at their commit run, as long as the data directory has a file
 *	  late_commit.
 */
#include "postgres.h"

#include <unistd.h>

#include "access/xact.h"
#include "fmgr.h"

PG_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);

static void
wait_for_gate(XactEvent event, void *arg)
{
	if (event != XACT_EVENT_COMMIT || !TransactionIdIsValid(GetTopTransactionIdIfAny()))
		return;
	while (access("late_commit", F_OK) == 0)
		pg_usleep(1000);
}

/* The last callback that is registered is the first one called. */
void
_PG_init(void)
{
	RegisterXactCallback(wait_for_gate, NULL);
}
