/*
 * stream.h
 *	  GET stream: server-sent events.
 */
#ifndef JOBQ_WEB_STREAM_H
#define JOBQ_WEB_STREAM_H

#include "route.h"

extern void streams_open(void);
/* Ends all streams: this program is about to end. */
extern void streams_end(void);
/* Ends the streams of a session. */
extern void stream_session_ended(const Session *session, const char *reason);
extern void stream_get(Call *call);

#endif
