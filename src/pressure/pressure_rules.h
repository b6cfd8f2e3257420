/*
 * pressure_rules.h
 *	  What active signals do to job types, in the dispatcher's memory.
 */
#ifndef JOBQ_PRESSURE_RULES_H
#define JOBQ_PRESSURE_RULES_H

#include "shared/shmem.h"

extern void pressure_init(MemoryContext context, JobqDb *db);
/* Signals or rules have changed: read them again when pressure_turn is next called. */
extern void pressure_stale(void);
/* Is there anything to do for pressure_turn? */
extern bool pressure_due(MonoTime now);
/* Reads what is stale, ends what has lived its time, asks conditions.  Needs a transaction. */
extern void pressure_turn(TimestampTz now);
extern MonoTime pressure_next_timer(MonoTime now);

/* What the active signals say to a type: added to its priorities, and whether it may start at all. */
extern void pressure_on_type(int32 type_id, int *priority_adj, bool *block);
/* The weight budget that they leave: the smallest, jobq.max_weight among them; 0: none. */
extern int	pressure_max_weight(void);
/* Has a rule a use for this built-in signal? */
extern bool pressure_uses(int builtin);

/* builtin_signals.c: load and replication lag, at each sweep */
extern void watch_machine(JobqDb *db, MonoTime now);

/* signal_condition_worker.c, the dispatcher's side */
extern bool signal_worker_start(JobqDb *db, int32 signal);
/* One that takes too long is told to go. */
extern bool signal_worker_runs(MonoTime now);
/* DDL needs our tables or the database to itself: false while it isn't gone.  What it was asked is asked again. */
extern bool signal_worker_leave(void);
/* The condition of that signal is due. */
extern void pressure_ask_again(int32 signal);

#endif
