/*
 * fuzz_roundtrip.c
 *	  Z2: messages made from the fuzzer's bytes; decoding returns the encoded
 *	  message.
 */
#include "samples.h"

int			LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t none = 0;
	Source		source = {size ? data : &none, size, 0};
	SampleRoom	room = {0};
	FrameBuf	buf = {0};
	Frame		frame;
	Frame		back;

	sample_frame(&source, &frame, &room);
	if (!frame_encode(&buf, &frame, FRAME_MAX_DEFAULT))
		abort();
	if (!frame_decode(buf.data + 4, buf.end - 4, &back) || !same_frame(&frame, &back))
		abort();
	frame_buf_free(&buf);
	frame_buf_free(&room.list[0]);
	frame_buf_free(&room.list[1]);
	return 0;
}
