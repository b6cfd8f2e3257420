/*
 * frame.c
 *	  Events as streams send them, shared by those that still do.
 */
#include "frame.h"

#include <stdlib.h>
#include <string.h>

#include "buf.h"

Frame *
frame_event(const char *event, const char *data)
{
	Frame	   *frame = mem_zero(sizeof(Frame));
	Buf			text = {0};
	size_t		from;
	char	   *c;

	buf_printf(&text, "event: %s\ndata: ", event);
	from = text.len;
	buf_text(&text, data);
	for (c = text.data + from; (c = strchr(c, '\n')) != NULL;)
		*c = ' ';
	buf_text(&text, "\n\n");
	frame->text = mem_copy(text.data, text.len);
	frame->len = text.len;
	frame->refs = 1;
	buf_free(&text);
	return frame;
}

void
frame_pack(Frame *frame)
{
	if (!frame->packed)
		frame->packed = gzip_piece(frame->text, frame->len, &frame->packed_len, &frame->sum);
}

Frame *
frame_hold(Frame *frame)
{
	frame->refs++;
	return frame;
}

void
frame_release(Frame *frame)
{
	if (!frame || --frame->refs > 0)
		return;
	free(frame->text);
	free(frame->packed);
	free(frame);
}
