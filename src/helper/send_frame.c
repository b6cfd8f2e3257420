/*
 * send_frame.c
 *	  Queues frames for the exec worker, in the version that it speaks.
 */
#include "helper.h"

void
send_frame(Helper *h, const Frame *frame)
{
	Frame		cut = *frame;

	cut.version = h->version;
	if (h->version == FRAME_OLD_VERSION && cut.type == FRAME_EXIT && cut.u.exit.kind == FRAME_OUTPUT_LIMIT)
		cut.u.exit.kind = FRAME_EXITED; /* with value 0, and a verdict that
										 * makes it a failure */
	if (h->lost || frame_encode(&h->out, &cut, h->max_frame) || h->out.failed)
		return;
	if (cut.type == FRAME_EXIT)
	{
		output_cut(&cut.u.exit);
		frame_encode(&h->out, &cut, h->max_frame);
	}
}
