/*
 * min_batch.c
 *	  The gates of types with options.min_batch: see min_batch.h.
 */
#include "jobq.h"

#include "lanes/ready_queue.h"
#include "limits/min_batch.h"
#include "limits/type_state.h"

static dlist_head shut_gates = DLIST_STATIC_INIT(shut_gates);

void
batch_gate_init(BatchGate *gate)
{
	memset(gate, 0, sizeof(BatchGate));
	dlist_init(&gate->groups);
}

void
batch_gate_open(BatchGate *gate)
{
	if (!gate->shut)
		return;
	gate->shut = false;
	dlist_delete(&gate->node);
	groups_unpark(&gate->groups);
}

void
batch_gate_load(BatchGate *gate, int jobs, int64 wait_us)
{
	if (gate->jobs == jobs && gate->wait_us == wait_us)
		return;
	gate->jobs = jobs;
	gate->wait_us = wait_us;
	batch_gate_open(gate);
}

void
batch_gate_forget_groups(BatchGate *gate)
{
	dlist_init(&gate->groups);
	batch_gate_open(gate);
}

void
batch_gate_shut(TypeState *t, int missing, TimestampTz until)
{
	BatchGate  *gate = &t->batch;
	uint64		enough = t->lanes.published + missing;

	if (!gate->shut)
		dlist_push_tail(&shut_gates, &gate->node);
	gate->until = gate->shut ? Min(gate->until, until) : until;
	gate->enough = gate->shut ? Min(gate->enough, enough) : enough;
	gate->shut = true;
}

bool
batch_gate_keeps(TypeState *t)
{
	if (t->batch.shut && t->lanes.published >= t->batch.enough)
		batch_gate_open(&t->batch);
	return t->batch.shut;
}

void
batch_gates_turn(TimestampTz now)
{
	dlist_mutable_iter it;

	dlist_foreach_modify(it, &shut_gates)
	{
		BatchGate  *gate = dlist_container(BatchGate, node, it.cur);

		if (gate->until <= now)
			batch_gate_open(gate);
	}
}

TimestampTz
batch_gates_next_timer(void)
{
	TimestampTz next = DT_NOEND;
	dlist_iter	it;

	dlist_foreach(it, &shut_gates)
		next = Min(next, dlist_container(BatchGate, node, it.cur)->until);
	return next;
}
