/*
 * fuzz_frame.c
 *	  Z1: bytes into the frame decoder, in pieces of the size in the first
 *	  byte.  No crash, no byte read beyond the input, no memory beyond the
 *	  bytes that came.  An accepted frame encodes again.
 */
#include <stdint.h>
#include <stdlib.h>

#include "frame.h"

int			LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
encode_again(const Frame *frame)
{
	FrameBuf	buf = {0};
	Frame		back;

	if (!frame_encode(&buf, frame, FRAME_MAX_LIMIT) || !frame_decode(buf.data + 4, buf.end - 4, &back))
		abort();
	frame_buf_free(&buf);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	FrameDecoder decoder;
	FrameStatus status = FRAME_MORE;
	Frame		frame;
	size_t		piece;
	size_t		at;

	if (size == 0)
		return 0;
	piece = (size_t) data[0] + 1;
	frame_decoder_init(&decoder, FRAME_MAX_DEFAULT);
	for (at = 1; at < size && status != FRAME_BAD; at += piece)
	{
		size_t		n = size - at < piece ? size - at : piece;

		if (!frame_decoder_feed(&decoder, (const char *) data + at, n))
			abort();
		if (decoder.cap > 2 * size + 8192)
			abort();
		while ((status = frame_decoder_next(&decoder, &frame)) == FRAME_READY)
			encode_again(&frame);
	}
	if (status == FRAME_BAD && !decoder.error)
		abort();
	frame_decoder_free(&decoder);
	return 0;
}
