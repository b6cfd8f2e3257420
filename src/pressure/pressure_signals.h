/*
 * pressure_signals.h
 *	  Pressure signals: load conditions that job types give way to (rows of
 *	  jobq.signals, and built-in ones).
 *
 * A built-in signal has no row; a bit in the database's shared memory says
 * whether it is active, which a new dispatcher finds as it is.  The dispatcher
 * sets `load` and `replication_lag` itself (builtin_signals.c), the disk watch
 * sets `disk` (disk_watch.c):
 *
 *	 signal_set_builtin(db, SIGNAL_DISK, level >= critical);
 *
 * at each measurement, from any process, inside or outside a transaction.  It
 * takes no lock and wakes the dispatcher when the signal has changed.
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
/* Returns the number of a built-in signal; -1: none of that name. */
extern int	builtin_signal(const char *name);

/*
 * Returns the statement that evaluates a condition: itself when it is a query,
 * else SELECT of the expression.
 */
extern char *signal_query(const char *condition);

#endif
