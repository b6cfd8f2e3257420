/*
 * hand_out_stop.h
 *	  The reasons for which a database hands out nothing.
 */
#ifndef JOBQ_HAND_OUT_STOP_H
#define JOBQ_HAND_OUT_STOP_H

#include "shared/shmem.h"

extern void stop_init(JobqDb *db);

/* The reasons for which a database hands out nothing: a bit each. */
#define STOP_IDENTITY	0x1
#define STOP_SWITCH		0x2
#define STOP_DRAIN		0x4
#define STOP_RELOAD		0x8
#define STOP_LEASES		0x10	/* they are being read: limits count them */
extern uint32 hand_out_stops(void);
/* True if there is none. */
extern bool may_hand_out(void);

/*
 * Reads whether the queue is this database's; true if its id has changed: the
 * queue must be read again.
 */
extern bool identity_changed(void);
/* True if it has a home row that is its own: it is no restored dump, also not one under way. */
extern bool identity_is_ours(void);
/* Reads the kill switch; its table is locked. */
extern void read_stop(void);

/*
 * Reads whether a drain runs; before the publications: a drain that has ended
 * has published its row.
 */
extern void read_drain(void);

/*
 * While stopped or draining: takes back jobs that have not begun, and wakes
 * sessions that wait for the end of running jobs.
 */
extern void stop_turn(void);

/*
 * True if a reload was requested, and all cancels requested before it are
 * served.
 */
extern bool reload_is_due(void);

/*
 * Ends all executors and this process; the launcher starts the next dispatcher
 * at once.
 */
extern void reload(void);

#endif
