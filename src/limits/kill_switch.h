/*
 * kill_switch.h
 *	  The kill switch: a row of jobq.stopped keeps every job of the database from starting.
 */
#ifndef JOBQ_KILL_SWITCH_H
#define JOBQ_KILL_SWITCH_H

/* Has jobq.stop_all() been called?  *reason: palloc'd, NULL when none was given.  lock: NoLock when it is held. */
extern bool stop_is_on(char **reason, LOCKMODE lock);

/* The checked columns of jobq.stopped: see row_map.h. */
extern const struct Shape stopped_shape;

#endif
