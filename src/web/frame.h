/*
 * frame.h
 *	  Events as streams send them, shared by those that still do.
 */
#ifndef JOBQ_WEB_FRAME_H
#define JOBQ_WEB_FRAME_H

#include <stddef.h>

typedef struct Frame
{
	char	   *text;
	size_t		len;
	int			refs;
} Frame;

/* Makes an event; data is JSON, and becomes one line. */
extern Frame *frame_event(const char *event, const char *data);
extern Frame *frame_hold(Frame *frame);
extern void frame_release(Frame *frame);

#endif
