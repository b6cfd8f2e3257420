/*
 * notify.h
 *	  Notifications for listeners outside: empty, gathered, sent by the dispatcher.
 */
#ifndef JOBQ_NOTIFY_H
#define JOBQ_NOTIFY_H

#include "shared/shmem.h"

#define EVENTS_CHANNEL	"jobq_events"
#define ALERTS_CHANNEL	"jobq_alerts"

/* In the dispatcher.  What a former one took and did not send is sent: something may be new. */
extern void notify_init(JobqDb *db);
/* Between turns: sends what is to be sent now. */
extern void notify_turn(MonoTime now);
/* When it has something to do next; DT_NOEND: nothing waits. */
extern MonoTime notify_next_timer(void);

#endif
