/*
 * notify.h
 *	  Listens on channels of PostgreSQL, with one connection a database.
 */
#ifndef JOBQ_WEB_NOTIFY_H
#define JOBQ_WEB_NOTIFY_H

#include "link.h"

/*
 * A channel was notified.  NULL: all channels asked for are listened to now,
 * or, lost, none any more.
 */
typedef void (*Heard) (const char *database, const char *channel, bool lost);

extern void notify_open(Heard heard);
/*
 * Listens on the channel from now on, by a connection of this person if there
 * is none yet.  True: it listens already.
 */
extern bool notify_listen(Person *person, const char *channel);
/* Nothing waits in this database any more. */
extern void notify_idle(const char *database);

#endif
