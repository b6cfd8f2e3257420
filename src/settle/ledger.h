/*
 * ledger.h
 *	  The tables that a settling transaction writes, opened on demand.
 */
#ifndef JOBQ_LEDGER_H
#define JOBQ_LEDGER_H

#include "shared/slots.h"
#include "tables/event_log.h"

typedef struct Ledger
{
	Table		queue;
	Table		dead;
	MemoryContext context;		/* the tables that are open live in it */
	bool		queue_open, dead_open;
	Partition	history;		/* the one last written */
	EventLog	events;
	Partition	alerts;
	Partition	artifacts;
	bool		together;		/* set for a batch: finished jobs may be moved at its end */
	int			nburied;		/* dead letters written, to be counted at the end */
	int			nmoves;			/* jobs to be moved from the queue to the open partition of history */
	ItemPointerData moved_from[JOBQ_CELLS];
	HeapTuple	moved_to[JOBQ_CELLS];
} Ledger;

extern void ledger_open(Ledger *ledger);	/* opens the queue only */
extern void ledger_close(Ledger *ledger);	/* also writes the rows that were gathered */
/* Opens the partition of that parent that holds ts. */
extern void ledger_open_partition(Ledger *ledger, Partition *p, const char *parent, TimestampTz ts);
/* Writes the row of a dead letter; the caller deletes the queue's row. */
extern void ledger_bury(Ledger *ledger, Datum *values, bool *nulls);
/* Moves a locked job to history: now, or with others. */
extern void ledger_move_to_history(Ledger *ledger, Job *job, Datum *values, bool *nulls);

/* The checked columns of jobq.dead_letter_count: see table_shape.h. */
extern const struct Shape dead_letter_count_shape;

#endif
