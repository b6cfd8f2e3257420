/*
 * pressure_signals.h
 *	  Signals: facts about the machine that job types give way to (rows of jobq.signals, and the built-in ones).
 *
 * A built-in signal has no row; whether it is active is a bit in the database's shared memory, which a new
 * dispatcher finds as it is.  `load` and `replication_lag` are set by the dispatcher itself (builtin_signals.c), `disk` by
 * whoever measures the disks (disk_watch.c):
 *
 *	 signal_set_builtin(db, SIGNAL_DISK, level >= critical);
 *
 * at each measurement, from any process, inside or outside a transaction.  It takes no lock and wakes the
 * dispatcher when the signal has changed.
 */
#ifndef JOBQ_PRESSURE_SIGNALS_H
#define JOBQ_PRESSURE_SIGNALS_H

#include "shared/shmem.h"

typedef enum BuiltinSignal
{
	SIGNAL_LOAD,
	SIGNAL_DISK,
	SIGNAL_REPLICATION_LAG
} BuiltinSignal;
#define JOBQ_BUILTIN_SIGNALS	(SIGNAL_REPLICATION_LAG + 1)

extern const char *const builtin_signal_names[JOBQ_BUILTIN_SIGNALS];

extern void signal_set_builtin(JobqDb *db, BuiltinSignal which, bool active);
extern bool signal_is_set(JobqDb *db, BuiltinSignal which);
/* -1: none of that name */
extern int	builtin_signal(const char *name);

/* The statement that asks a condition: itself when it is a query, else SELECT of the expression. */
extern char *signal_query(const char *condition);

#endif
