/*
 * queue_frame.c
 *	  Queues frames for the exec worker.
 */
#include "helper.h"

void
queue_frame(Helper *h, const Frame *frame)
{
	Frame		cut = *frame;

	if (h->lost || frame_encode(&h->out, frame, h->max_frame) || h->out.failed)
		return;
	if (cut.type == FRAME_EXIT)
	{
		output_cut(&cut.u.exit);
		frame_encode(&h->out, &cut, h->max_frame);
	}
}
