/*
 * kill_switch.h
 *	  The kill switch: a row of jobq.stopped blocks the start of every job of
 *	  the database.
 */
#ifndef JOBQ_KILL_SWITCH_H
#define JOBQ_KILL_SWITCH_H

/*
 * True if jobq.stop_all() is in effect; `lock` is NoLock when it is held.
 * *reason: palloc'd, NULL when none was given.  since may be NULL.
 */
extern bool kill_switch_is_on(char **reason, TimestampTz *since, LOCKMODE lock);

/* The checked columns of jobq.stopped: see table_shape.h. */
extern const struct Shape stopped_shape;

#endif
