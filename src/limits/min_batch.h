/*
 * min_batch.h
 *	  Types whose jobs wait until a claim gets a batch: options.min_batch.
 *
 * claimers.c hands out all jobs that a claim can get and takes them back if
 * they are too few.  Then the gate of the type is shut: its groups of lanes are
 * parked until the oldest job has waited long enough, until so many jobs as
 * were missing have been published, or until the next claim asks.
 */
#ifndef JOBQ_MIN_BATCH_H
#define JOBQ_MIN_BATCH_H

#include "lanes/lanes.h"

struct TypeState;

typedef struct BatchGate
{
	int			jobs;			/* options.min_batch; 0: none */
	int64		wait_us;
	bool		shut;
	TimestampTz until;			/* shut: the oldest job has waited long enough */
	uint64		enough;			/* shut: LaneType.published when there may be a batch */
	dlist_head	groups;			/* parked */
	dlist_node	node;			/* shut: in the list of gates */
} BatchGate;

extern void batch_gate_init(BatchGate *gate);
/* Sets the option; a change opens the gate. */
extern void batch_gate_load(BatchGate *gate, int jobs, int64 wait_us);
/* Forgets parked groups: lanes are about to be forgotten. */
extern void batch_gate_forget_groups(BatchGate *gate);

/* Shuts the gate of the type until `until`, or until so many more jobs come. */
extern void batch_gate_shut(struct TypeState *t, int missing, TimestampTz until);
extern void batch_gate_open(BatchGate *gate);
/* True if the gate is shut and there can't be a batch yet. */
extern bool batch_gate_keeps(struct TypeState *t);

/* Opens the gates whose time has come. */
extern void batch_gates_turn(TimestampTz now);
/* Returns when the next gate opens by time; DT_NOEND: none is shut. */
extern TimestampTz batch_gates_next_timer(void);

#endif
