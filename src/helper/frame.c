/*
 * frame.c
 *	  Encodes and decodes the frames between exec worker and helper.
 *
 * Each message has one function that walks its fields in order, for both
 * directions, so that encoder and decoder can't differ.  A Codec either writes
 * to a FrameBuf or reads from a bounded range.  After the first failure all
 * further steps do nothing.
 */
#include "frame.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define RECV_STEP	(64 * 1024)
#define KEEP_SPACE	(1024 * 1024)	/* an empty buffer larger than this is
									 * freed */

typedef struct Codec
{
	FrameBuf   *out;			/* NULL: decoding */
	const char *in;
	const char *end;
	bool		failed;
} Codec;

/* ---- buffers ---- */

static bool
reserve(char **data, size_t *cap, size_t used, size_t more)
{
	size_t		want = *cap ? *cap : 4096;
	char	   *grown;

	if (more > SIZE_MAX / 4 || used > SIZE_MAX / 4)
		return false;
	if (*data && used + more <= *cap)
		return true;
	while (want < used + more)
		want *= 2;
	grown = realloc(*data, want);
	if (!grown)
		return false;
	*data = grown;
	*cap = want;
	return true;
}

/*
 * Moves the remaining bytes to the front, if that costs less than it has
 * saved.
 */
static void
compact(char *data, size_t *start, size_t *end)
{
	if (*start == 0 || *start < *end - *start)
		return;
	memmove(data, data + *start, *end - *start);
	*end -= *start;
	*start = 0;
}

static void
release_if_idle(char **data, size_t *cap, size_t *start, size_t *end)
{
	if (*start != *end)
		return;
	*start = *end = 0;
	if (*cap <= KEEP_SPACE)
		return;
	free(*data);
	*data = NULL;
	*cap = 0;
}

bool
frame_buf_append(FrameBuf *buf, const void *data, size_t len)
{
	if (buf->failed)
		return false;
	if (buf->data)
		compact(buf->data, &buf->start, &buf->end);
	if (!reserve(&buf->data, &buf->cap, buf->end, len))
	{
		buf->failed = true;
		return false;
	}
	if (len > 0)
		memcpy(buf->data + buf->end, data, len);
	buf->end += len;
	return true;
}

void
frame_buf_free(FrameBuf *buf)
{
	free(buf->data);
	memset(buf, 0, sizeof(*buf));
}

size_t
frame_pending(const FrameBuf *buf)
{
	return buf->end - buf->start;
}

bool
frame_list_append(FrameBuf *buf, const char *item)
{
	return frame_buf_append(buf, item, strlen(item) + 1);
}

FrameList
frame_list(const FrameBuf *buf)
{
	FrameList	list = {NULL, 0, 0};
	size_t		i;

	if (frame_pending(buf) == 0 || frame_pending(buf) > FRAME_MAX_LIMIT)
		return list;
	list.data = buf->data + buf->start;
	list.len = (uint32_t) frame_pending(buf);
	for (i = 0; i < list.len; i++)
		list.count += list.data[i] == '\0';
	return list;
}

const char *
frame_list_next(const FrameList *list, const char *item)
{
	const char *next = item ? item + strlen(item) + 1 : list->data;

	return list->len > 0 && next < list->data + list->len ? next : NULL;
}

FrameText
frame_text(const char *string)
{
	FrameText	result;

	result.data = string;
	result.len = string ? (uint32_t) strlen(string) : 0;
	return result;
}

/* ---- fields ---- */

static void
put(Codec *c, const void *data, size_t len)
{
	if (!c->failed && !frame_buf_append(c->out, data, len))
		c->failed = true;
}

static const char *
take(Codec *c, size_t len)
{
	const char *at = c->in;

	if (c->failed || (size_t) (c->end - c->in) < len)
	{
		c->failed = true;
		return NULL;
	}
	c->in += len;
	return at;
}

static void
walk_uint(Codec *c, uint64_t *value, size_t width)
{
	unsigned char bytes[8];
	const char *at;
	size_t		i;

	if (c->out)
	{
		for (i = 0; i < width; i++)
			bytes[i] = (unsigned char) (*value >> (8 * i));
		put(c, bytes, width);
		return;
	}
	*value = 0;
	at = take(c, width);
	for (i = 0; at && i < width; i++)
		*value |= (uint64_t) (unsigned char) at[i] << (8 * i);
}

static void
walk_u64(Codec *c, uint64_t *value)
{
	walk_uint(c, value, 8);
}

static void
walk_u32(Codec *c, uint32_t *value)
{
	uint64_t	wide = *value;

	walk_uint(c, &wide, 4);
	*value = (uint32_t) wide;
}

static void
walk_i32(Codec *c, int32_t *value)
{
	uint32_t	bits;

	memcpy(&bits, value, sizeof(bits));
	walk_u32(c, &bits);
	memcpy(value, &bits, sizeof(bits));
}

/* Walks a code of an enum: first..last. */
static void
walk_code(Codec *c, uint8_t *value, int first, int last)
{
	uint64_t	wide = *value;

	walk_uint(c, &wide, 1);
	*value = (uint8_t) wide;
	if (*value < first || *value > last)
		c->failed = true;
}

static void
walk_text(Codec *c, FrameText *t, uint32_t max)
{
	walk_u32(c, &t->len);
	if (t->len > max)
		c->failed = true;
	if (c->out)
		put(c, t->data, t->len);
	else
		t->data = take(c, t->len);
	if (c->failed)
		t->len = 0;
}

/* Walks a text that becomes a C string in the helper. */
static void
walk_string(Codec *c, FrameText *t)
{
	walk_text(c, t, 65536);
	if (!c->failed && t->len > 0 && memchr(t->data, '\0', t->len))
		c->failed = true;
}

/* True if the count is the number of NULs, and the last byte one of them. */
static bool
list_is_sound(const FrameList *list)
{
	uint32_t	nuls = 0;
	uint32_t	i;

	if (list->count > FRAME_MAX_LIST)
		return false;
	if (list->len > 0 && list->data[list->len - 1] != '\0')
		return false;
	for (i = 0; i < list->len; i++)
		nuls += list->data[i] == '\0';
	return nuls == list->count;
}

static void
walk_list(Codec *c, FrameList *list)
{
	FrameText	bytes;

	bytes.data = list->data;
	bytes.len = list->len;
	walk_u32(c, &list->count);
	walk_text(c, &bytes, FRAME_MAX_LIMIT);
	list->data = bytes.data;
	list->len = bytes.len;
	if (!c->failed && !list_is_sound(list))
		c->failed = true;
	if (c->failed)
		list->count = list->len = 0;
}

/* ---- messages ---- */

static void
walk_hello(Codec *c, FrameHello *m)
{
	walk_u32(c, &m->max_frame);
	walk_u32(c, &m->max_jobs);
	walk_u32(c, &m->pid);
	walk_string(c, &m->workdir);
	if (m->max_frame > FRAME_MAX_LIMIT)
		c->failed = true;
}

static void
walk_start(Codec *c, FrameStart *m)
{
	walk_u64(c, &m->job);
	walk_list(c, &m->argv);
	walk_list(c, &m->env);
	walk_string(c, &m->tool_path);
	walk_text(c, &m->stdin_data, FRAME_MAX_LIMIT);
	walk_u64(c, &m->timeout_us);
	walk_u64(c, &m->kill_grace_us);
	walk_u64(c, &m->memory_max);
	walk_u32(c, &m->max_output);
	walk_u32(c, &m->stderr_tail);
	walk_u32(c, &m->nofile);
	walk_u32(c, &m->log_lines);
	walk_u32(c, &m->cpu_seconds);
	walk_code(c, &m->output, FRAME_OUTPUT_JSON, FRAME_OUTPUT_NONE);
	walk_u32(c, &m->warm);
	walk_u32(c, &m->warm_max_jobs);
	walk_u64(c, &m->warm_memory);
	walk_u64(c, &m->warm_idle_us);
	walk_u64(c, &m->pool);
	walk_text(c, &m->id, FRAME_MAX_ID);
	walk_u64(c, &m->stall_us);
	if (m->argv.count == 0)
		c->failed = true;
}

static void
walk_cancel(Codec *c, FrameCancel *m)
{
	walk_u64(c, &m->job);
	walk_u64(c, &m->grace_us);
	walk_code(c, &m->reason, FRAME_STOP_CANCEL, FRAME_STOP_TIMEOUT);
}

static void
walk_started(Codec *c, FrameStarted *m)
{
	walk_u64(c, &m->job);
	walk_u32(c, &m->pid);
}

static void
walk_event(Codec *c, FrameEvent *m)
{
	walk_u64(c, &m->job);
	walk_code(c, &m->kind, FRAME_EVENT_PROGRESS, FRAME_EVENT_STDERR);
	walk_text(c, &m->text, 4 * FRAME_MAX_LINE);
}

static void
walk_exit(Codec *c, FrameExit *m)
{
	walk_u64(c, &m->job);
	walk_u64(c, &m->duration_us);
	walk_u64(c, &m->utime_us);
	walk_u64(c, &m->stime_us);
	walk_u64(c, &m->maxrss_kb);
	walk_u64(c, &m->stdout_bytes);
	walk_u64(c, &m->stderr_bytes);
	walk_i32(c, &m->value);
	walk_u32(c, &m->left_processes);
	walk_u32(c, &m->bad_lines);
	walk_code(c, &m->kind, FRAME_EXITED, FRAME_STALLED);
	walk_code(c, &m->verdict, FRAME_OUT_OK, FRAME_OUT_NO_ANSWER);
	walk_code(c, &m->limit, FRAME_LIMIT_NONE, FRAME_LIMIT_FILES);
	walk_text(c, &m->output, FRAME_MAX_LIMIT);
	walk_text(c, &m->stderr_tail, FRAME_MAX_LIMIT);
	walk_text(c, &m->message, FRAME_MAX_LIMIT);
	walk_text(c, &m->error, FRAME_MAX_LINE);
}

static void
walk_message(Codec *c, Frame *frame)
{
	switch ((FrameType) frame->type)
	{
		case FRAME_HELLO:
			walk_hello(c, &frame->u.hello);
			return;
		case FRAME_START:
			walk_start(c, &frame->u.start);
			return;
		case FRAME_CANCEL:
			walk_cancel(c, &frame->u.cancel);
			return;
		case FRAME_SHUTDOWN:
			walk_u64(c, &frame->u.shutdown.grace_us);
			return;
		case FRAME_STARTED:
			walk_started(c, &frame->u.started);
			return;
		case FRAME_EVENT:
			walk_event(c, &frame->u.event);
			return;
		case FRAME_EXIT:
			walk_exit(c, &frame->u.exit);
			return;
		case FRAME_PING:
		case FRAME_PONG:
			return;
	}
	c->failed = true;
}

bool
frame_encode(FrameBuf *buf, const Frame *frame, uint32_t max_frame)
{
	static const char header[FRAME_HEADER] = {0};
	Frame		copy = *frame;
	Codec		c = {0};
	size_t		before;
	size_t		len;
	size_t		i;

	c.out = buf;
	put(&c, header, FRAME_HEADER);
	before = frame_pending(buf) - (c.failed ? 0 : FRAME_HEADER);
	walk_message(&c, &copy);
	len = frame_pending(buf) - before;
	if (c.failed || len - 4 > max_frame)
	{
		buf->end = buf->start + before;
		return false;
	}
	for (i = 0; i < 4; i++)
		buf->data[buf->start + before + i] = (char) ((len - 4) >> (8 * i));
	buf->data[buf->start + before + 4] = FRAME_VERSION;
	buf->data[buf->start + before + 5] = (char) frame->type;
	return true;
}

bool
frame_decode(const char *body, size_t len, Frame *frame)
{
	Codec		c = {0};

	memset(frame, 0, sizeof(*frame));
	if (len < 2 || body[0] != FRAME_VERSION)
		return false;
	frame->type = (uint8_t) body[1];
	c.in = body + 2;
	c.end = body + len;
	walk_message(&c, frame);
	return !c.failed && c.in == c.end;
}

/* ---- stream ---- */

void
frame_decoder_init(FrameDecoder *decoder, uint32_t max_frame)
{
	memset(decoder, 0, sizeof(*decoder));
	decoder->max_frame = max_frame;
}

void
frame_decoder_free(FrameDecoder *decoder)
{
	free(decoder->data);
	memset(decoder, 0, sizeof(*decoder));
}

static bool
make_room(FrameDecoder *d, size_t len)
{
	release_if_idle(&d->data, &d->cap, &d->start, &d->end);
	if (d->data)
		compact(d->data, &d->start, &d->end);
	return reserve(&d->data, &d->cap, d->end, len);
}

bool
frame_decoder_feed(FrameDecoder *decoder, const char *data, size_t len)
{
	if (!make_room(decoder, len))
		return false;
	if (len > 0)
		memcpy(decoder->data + decoder->end, data, len);
	decoder->end += len;
	return true;
}

static FrameStatus
broken(FrameDecoder *decoder, const char *why)
{
	decoder->error = why;
	return FRAME_BAD;
}

FrameStatus
frame_decoder_next(FrameDecoder *decoder, Frame *frame)
{
	size_t		have = decoder->end - decoder->start;
	const char *at;
	uint32_t	len = 0;
	int			i;

	if (have < 4)
		return FRAME_MORE;
	at = decoder->data + decoder->start;
	for (i = 0; i < 4; i++)
		len |= (uint32_t) (unsigned char) at[i] << (8 * i);
	if (len < 2)
		return broken(decoder, "frame too short");
	if (len > decoder->max_frame)
		return broken(decoder, "frame too long");
	if (have >= 5 && at[4] != FRAME_VERSION)
		return broken(decoder, "unknown protocol version");
	if (have < 4 + (size_t) len)
		return FRAME_MORE;
	if (!frame_decode(at + 4, len, frame))
		return broken(decoder, "malformed frame");
	decoder->start += 4 + (size_t) len;
	return FRAME_READY;
}

static FrameIo
io_failure(void)
{
	if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
		return FRAME_IO_AGAIN;
	return FRAME_IO_ERROR;
}

FrameIo
frame_recv(FrameDecoder *decoder, int fd)
{
	ssize_t		got;

	if (!make_room(decoder, RECV_STEP))
	{
		errno = ENOMEM;
		return FRAME_IO_ERROR;
	}
	got = recv(fd, decoder->data + decoder->end, RECV_STEP, MSG_DONTWAIT);
	if (got < 0)
		return errno == ECONNRESET ? FRAME_IO_EOF : io_failure();
	if (got == 0)
		return FRAME_IO_EOF;
	decoder->end += (size_t) got;
	return FRAME_IO_DONE;
}

FrameIo
frame_send(FrameBuf *buf, int fd)
{
	while (frame_pending(buf) > 0)
	{
		ssize_t		sent = send(fd, buf->data + buf->start, frame_pending(buf),
								MSG_DONTWAIT | MSG_NOSIGNAL);

		if (sent < 0)
			return errno == EPIPE || errno == ECONNRESET ? FRAME_IO_EOF : io_failure();
		buf->start += (size_t) sent;
	}
	release_if_idle(&buf->data, &buf->cap, &buf->start, &buf->end);
	return FRAME_IO_DONE;
}
