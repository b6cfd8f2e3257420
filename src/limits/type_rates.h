/*
 * type_rates.h
 *	  The rates of a job type: its own and those of the shared limits that it
 *	  names.
 */
#ifndef JOBQ_TYPE_RATES_H
#define JOBQ_TYPE_RATES_H

#include "limits/type_state.h"

/*
 * True if starts that are not noted yet may decide which limit is closed: note
 * them first.
 */
extern bool type_needs_starts(TypeState *t, TimestampTz now);

/*
 * Returns the limits with a full window, a bit for each number of type_limit();
 * 0: one job of a type that is `rated` may start.
 */
extern uint32 type_closed_rates(TypeState *t, TimestampTz now);
/* Counts a job that is handed out, */
extern void type_take(TypeState *t);
/* a job that has started, */
extern void type_note_start(TypeState *t, TimestampTz started);
/* a job that came back without having started, */
extern void type_refund(TypeState *t);
/* a job that was handed out before the rates were read again. */
extern void type_retake(TypeState *t);

#endif
