/*
 * test_frame.c
 *	  The codec: every message survives encoding and decoding, in pieces too;
 *	  malformed frames are refused.
 */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "samples.h"

static void
free_room(SampleRoom *room)
{
	frame_buf_free(&room->list[0]);
	frame_buf_free(&room->list[1]);
}

static void
test_round_trips(void)
{
	Source		source = {NULL, 0, 42};
	FrameBuf	buf = {0};
	SampleRoom	room = {0};
	int			seen[FRAME_LAST_TYPE + 1] = {0};
	bool		ok = true;
	int			i;

	for (i = 0; i < 20000; i++)
	{
		Frame		frame;
		Frame		back;

		sample_frame(&source, &frame, &room);
		buf.start = buf.end = 0;
		ok &= frame_encode(&buf, &frame, FRAME_MAX_DEFAULT);
		ok &= frame_decode(buf.data + 4, buf.end - 4, &back);
		ok &= same_frame(&frame, &back);
		seen[frame.type]++;
	}
	CHECK(ok, "20,000 random frames are the same after encoding and decoding");
	for (i = 1; i <= FRAME_LAST_TYPE; i++)
		ok &= seen[i] > 100;
	CHECK(ok, "all types were among them");
	frame_buf_free(&buf);
	free_room(&room);
}

/* Decodes the same stream in pieces of every small size. */
static void
test_pieces(void)
{
	Frame		frames[20];
	SampleRoom	room[20];
	FrameBuf	buf = {0};
	Source		source = {NULL, 0, 7};
	bool		ok = true;
	size_t		piece;
	int			i;

	memset(room, 0, sizeof(room));
	for (i = 0; i < 20; i++)
	{
		sample_frame(&source, &frames[i], &room[i]);
		frame_encode(&buf, &frames[i], FRAME_MAX_DEFAULT);
	}
	for (piece = 1; piece < 40; piece++)
	{
		FrameDecoder decoder;
		Frame		got;
		size_t		at;
		int			n = 0;

		frame_decoder_init(&decoder, FRAME_MAX_DEFAULT);
		for (at = 0; at < buf.end; at += piece)
		{
			frame_decoder_feed(&decoder, buf.data + at, buf.end - at < piece ? buf.end - at : piece);
			while (frame_decoder_next(&decoder, &got) == FRAME_READY)
				ok &= n < 20 && same_frame(&got, &frames[n++]);
		}
		ok &= n == 20 && frame_decoder_next(&decoder, &got) == FRAME_MORE;
		frame_decoder_free(&decoder);
	}
	CHECK(ok, "frames arrive whole from pieces of 1 to 39 bytes");
	frame_buf_free(&buf);
	for (i = 0; i < 20; i++)
		free_room(&room[i]);
}

/*
 * Checks that every prefix of a body is too short and every longer body too
 * long.
 */
static void
test_truncation(void)
{
	Source		source = {NULL, 0, 3};
	SampleRoom	room = {0};
	FrameBuf	buf = {0};
	bool		ok = true;
	int			i;

	for (i = 0; i < 500; i++)
	{
		Frame		frame;
		Frame		back;
		size_t		len;

		sample_frame(&source, &frame, &room);
		buf.start = buf.end = 0;
		frame_encode(&buf, &frame, FRAME_MAX_DEFAULT);
		for (len = 0; len < buf.end - 4; len++)
		{
			/* so that a sanitizer reports a byte read beyond it */
			char	   *exact = malloc(len + 1);

			memcpy(exact, buf.data + 4, len);
			ok &= !frame_decode(exact, len, &back);
			free(exact);
		}
		frame_buf_append(&buf, "x", 1);
		ok &= !frame_decode(buf.data + 4, buf.end - 4, &back);
	}
	CHECK(ok, "a body cut anywhere, or with a byte too many, is malformed");
	frame_buf_free(&buf);
	free_room(&room);
}

static FrameStatus
decode_bytes(const char *bytes, size_t len, const char **error)
{
	FrameDecoder decoder;
	FrameStatus status;
	Frame		frame;

	frame_decoder_init(&decoder, 1000);
	frame_decoder_feed(&decoder, bytes, len);
	status = frame_decoder_next(&decoder, &frame);
	*error = decoder.error ? decoder.error : "";
	frame_decoder_free(&decoder);
	return status;
}

static void
test_malformed(void)
{
	const char *why;

	CHECK(decode_bytes("\xff\xff\xff\xff", 4, &why) == FRAME_BAD && strcmp(why, "frame too long") == 0,
		  "a length of 4 GB is refused as soon as it is read");
	CHECK(decode_bytes("\xe9\x03\0\0", 4, &why) == FRAME_BAD, "so is one byte over the limit");
	CHECK(decode_bytes("\xe8\x03\0\0", 4, &why) == FRAME_MORE, "the limit itself is not");
	CHECK(decode_bytes("\1\0\0\0\2", 5, &why) == FRAME_BAD && strcmp(why, "frame too short") == 0, "too short");
	CHECK(decode_bytes("\2\0\0\0\3", 5, &why) == FRAME_BAD && strcmp(why, "unknown protocol version") == 0,
		  "another version is refused before its frame is whole");
	CHECK(decode_bytes("\2\0\0\0\2\0", 6, &why) == FRAME_BAD, "type 0");
	CHECK(decode_bytes("\2\0\0\0\2\x63", 6, &why) == FRAME_BAD, "unknown type");
	CHECK(decode_bytes("\x0b\0\0\0\2\3\0\0\0\0\0\0\0\0\0", 15, &why) == FRAME_BAD, "CANCEL cut short");
	CHECK(decode_bytes("", 0, &why) == FRAME_MORE, "nothing is nothing yet");
}

static bool
encodes(Frame *frame)
{
	FrameBuf	buf = {0};
	bool		ok = frame_encode(&buf, frame, FRAME_MAX_DEFAULT);

	if (!ok)
		ok = frame_pending(&buf) != 0;	/* a refused frame leaves no bytes */
	frame_buf_free(&buf);
	return ok;
}

static void
test_lists(void)
{
	Frame		frame = {0};
	FrameList	list = {"a\0b\0", 4, 2};
	FrameBuf	buf = {0};
	const char *item;

	frame.type = FRAME_START;
	CHECK(!encodes(&frame), "START without argv is refused");
	frame.u.start.argv = list;
	CHECK(encodes(&frame), "two arguments");
	frame.u.start.argv.count = 3;
	CHECK(!encodes(&frame), "a count that is not the number of strings");
	frame.u.start.argv.count = 1;
	CHECK(!encodes(&frame), "nor less");
	frame.u.start.argv.count = 2;
	frame.u.start.argv.len = 3;
	CHECK(!encodes(&frame), "a last string without its end");

	frame_list_append(&buf, "one");
	frame_list_append(&buf, "");
	frame_list_append(&buf, "three");
	list = frame_list(&buf);
	CHECK(list.count == 3 && list.len == 11, "a list is built");
	item = frame_list_next(&list, NULL);
	CHECK(item && strcmp(item, "one") == 0, "first");
	item = frame_list_next(&list, item);
	CHECK(item && strcmp(item, "") == 0, "empty strings count");
	item = frame_list_next(&list, item);
	CHECK(item && strcmp(item, "three") == 0 && !frame_list_next(&list, item), "last, then the end");
	frame_buf_free(&buf);
	list = frame_list(&buf);
	CHECK(list.count == 0 && !frame_list_next(&list, NULL), "an empty list");
}

static void
test_limits(void)
{
	Frame		frame = {0};
	FrameBuf	buf = {0};
	char	   *big = calloc(1, 2000);

	frame.type = FRAME_EXIT;
	frame.u.exit.kind = FRAME_EXITED;
	CHECK(frame_encode(&buf, &frame, 1000), "a small EXIT");
	frame.u.exit.output.data = big;
	frame.u.exit.output.len = 2000;
	CHECK(!frame_encode(&buf, &frame, 1000), "one over the limit is not encoded");
	frame.u.exit.output.len = 10;
	CHECK(frame_encode(&buf, &frame, 1000), "the queue goes on after it");
	frame.u.exit.kind = 99;
	CHECK(!frame_encode(&buf, &frame, 1000), "a kind that does not exist is not encoded");
	free(big);
	frame_buf_free(&buf);
}

/* Sends in both directions through a socket that is full most of the time. */
static void
test_socket(void)
{
	int			ends[2];
	FrameBuf	out = {0};
	FrameDecoder in;
	Frame		frame = {0};
	Frame		got;
	char	   *big = malloc(300000);
	int			sent = 0;
	int			received = 0;
	bool		ok = true;
	bool		was_full = false;

	memset(big, 'x', 300000);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair");
	frame_decoder_init(&in, FRAME_MAX_DEFAULT);
	frame.type = FRAME_EXIT;
	frame.u.exit.kind = FRAME_EXITED;
	frame.u.exit.output.data = big;
	frame.u.exit.output.len = 300000;
	while (received < 50)
	{
		if (sent < 50)
		{
			frame.u.exit.job = (uint64_t) sent++;
			ok &= frame_encode(&out, &frame, FRAME_MAX_DEFAULT);
		}
		was_full |= frame_send(&out, ends[0]) == FRAME_IO_AGAIN;
		while (frame_recv(&in, ends[1]) == FRAME_IO_DONE)
			while (frame_decoder_next(&in, &got) == FRAME_READY)
				ok &= got.u.exit.job == (uint64_t) received++ && got.u.exit.output.len == 300000;
	}
	CHECK(ok && was_full, "50 large frames arrive in order through a socket that fills up");
	CHECK(out.cap <= 1024 * 1024 && in.cap <= 2 * 1024 * 1024, "buffers do not stay large");
	CHECK(frame_recv(&in, ends[1]) == FRAME_IO_AGAIN, "an empty socket would block");
	close(ends[0]);
	CHECK(frame_recv(&in, ends[1]) == FRAME_IO_EOF, "a closed one is at its end");
	frame_encode(&out, &frame, FRAME_MAX_DEFAULT);
	CHECK(frame_send(&out, ends[1]) == FRAME_IO_EOF, "sending to it raises no signal");
	CHECK(frame_send(&out, -1) == FRAME_IO_ERROR && errno == EBADF, "other errors are told");
	close(ends[1]);
	free(big);
	frame_buf_free(&out);
	frame_decoder_free(&in);
}

int
main(void)
{
	test_round_trips();
	test_pieces();
	test_truncation();
	test_malformed();
	test_lists();
	test_limits();
	test_socket();
	return done();
}
