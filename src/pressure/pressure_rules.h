/*
 * pressure_rules.h
 *	  Effects of active signals on job types, in the dispatcher's memory.
 */
#ifndef JOBQ_PRESSURE_RULES_H
#define JOBQ_PRESSURE_RULES_H

#include "shared/shmem.h"

extern void pressure_init(MemoryContext context, JobqDb *db);
/* Makes the next pressure_turn read signals and rules again. */
extern void pressure_stale(void);
/* True if pressure_turn has anything to do. */
extern bool pressure_due(MonoTime now);

/*
 * Reads stale tables, ends signals whose ttl is over, starts evaluations;
 * needs a transaction.  True if the effect on types may have changed: the
 * caller applies it (admission_press).
 */
extern bool pressure_turn(TimestampTz now);
extern MonoTime pressure_next_timer(MonoTime now);

/*
 * Returns the effect of active signals on a type: a change of its priorities,
 * and whether they block it.
 */
extern void pressure_on_type(int32 type_id, int *priority_adj, bool *block);

/* Returns a signal that blocks the type now; NULL: none. */
extern const char *pressure_blocking_signal(int32 type_id);

/*
 * Returns the smallest weight budget of active signals and jobq.max_weight; 0:
 * none.
 */
extern int	pressure_max_weight(void);
/* True if a rule uses this built-in signal. */
extern bool pressure_uses(int builtin);

/* The checked columns of jobq.signals, jobq.pressure_rules: see table_shape.h. */
extern const struct Shape signals_shape;
extern const struct Shape pressure_rules_shape;

#endif
