/*
 * hand_out.h
 *	  Hands out jobs in order.
 */
#ifndef JOBQ_HAND_OUT_H
#define JOBQ_HAND_OUT_H

#include "lanes/queue_scan.h"
#include "limits/type_state.h"

/*
 * Hands out in lane order until no executor can take more; scan may be NULL.
 */
extern void hand_out_ready(QueueScan *scan, TimestampTz now);

/* True if fewer jobs run than jobq.max_concurrent. */
extern bool hand_out_has_room(void);
/* Returns type_closed_rates(), with the starts known that decide. */
extern uint32 hand_out_closed_rates(TypeState *t, TimestampTz now);

#endif
