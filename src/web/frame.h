/*
 * frame.h
 *	  Events as streams send them, shared by those that still do.
 */
#ifndef JOBQ_WEB_FRAME_H
#define JOBQ_WEB_FRAME_H

#include "gzip.h"

typedef struct Frame
{
	char	   *text;
	size_t		len;
	char	   *packed;			/* a piece of gzip.h; NULL: not yet */
	size_t		packed_len;
	GzipSum		sum;
	int			refs;
} Frame;

/* Makes an event; data is JSON, and becomes one line. */
extern Frame *frame_event(const char *event, const char *data);
/* Packs it, if it is not. */
extern void frame_pack(Frame *frame);
extern Frame *frame_hold(Frame *frame);
extern void frame_release(Frame *frame);

#endif
