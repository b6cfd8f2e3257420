/*
 * notify.h
 *	  Notifications for listeners outside: empty, gathered, sent by the
 *	  dispatcher.
 */
#ifndef JOBQ_NOTIFY_H
#define JOBQ_NOTIFY_H

#include "shared/shmem.h"

#define EVENTS_CHANNEL	"jobq_events"
#define ALERTS_CHANNEL	"jobq_alerts"

/*
 * Starts notifications in the dispatcher.  Bits that a former dispatcher took
 * and did not send are sent: they may be new.
 */
extern void notify_init(MemoryContext context, JobqDb *db);
/* Sends between turns, if notifications are due. */
extern void notify_turn(MonoTime now);
/* Returns when the next notifications are due; DT_NOEND: nothing waits. */
extern MonoTime notify_next_timer(MonoTime now);

#endif
