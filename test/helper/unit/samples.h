/*
 * samples.h
 *	  Frames for the tests: one of each type made from random numbers, and
 *	  their comparison.
 */
#ifndef SAMPLES_H
#define SAMPLES_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "frame.h"

/*
 * The source of a sample's choices: a seeded generator, or a fuzzer's bytes.
 */
typedef struct Source
{
	const uint8_t *data;		/* NULL: generator */
	size_t		len;
	uint64_t	seed;
} Source;

static inline uint8_t
sample_byte(Source *s)
{
	if (s->data)
	{
		if (s->len == 0)
			return 0;
		s->len--;
		return *s->data++;
	}
	s->seed = s->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint8_t) (s->seed >> 56);
}

static inline uint64_t
sample_u64(Source *s)
{
	uint64_t	value = 0;
	int			i;

	for (i = 0; i < 8; i++)
		value = value << 8 | sample_byte(s);
	return value;
}

static inline uint32_t
sample_u32(Source *s)
{
	return (uint32_t) sample_u64(s);
}

/* Makes a text with its bytes in room; the frame points into it. */
static inline FrameText
sample_text(Source *s, char *room, bool nul_allowed)
{
	FrameText	t;
	uint32_t	i;

	t.len = sample_byte(s) % 64;
	t.data = room;
	for (i = 0; i < t.len; i++)
	{
		room[i] = (char) sample_byte(s);
		if (!nul_allowed && room[i] == '\0')
			room[i] = 'x';
	}
	return t;
}

static inline FrameList
sample_list(Source *s, FrameBuf *buf, int least)
{
	int			n = least + sample_byte(s) % 4;
	char		room[64];

	buf->start = buf->end = 0;
	while (n-- > 0)
	{
		FrameText	t = sample_text(s, room, false);

		frame_buf_append(buf, t.data, t.len);
		frame_buf_append(buf, "", 1);
	}
	return frame_list(buf);
}

typedef struct SampleRoom
{
	char		t[4][64];
	FrameBuf	list[2];
} SampleRoom;

static inline void
sample_start(Source *s, FrameStart *m, SampleRoom *room)
{
	m->job = sample_u64(s);
	m->argv = sample_list(s, &room->list[0], 1);
	m->env = sample_list(s, &room->list[1], 0);
	m->tool_path = sample_text(s, room->t[0], false);
	m->stdin_data = sample_text(s, room->t[1], true);
	m->timeout_us = sample_u64(s);
	m->kill_grace_us = sample_u64(s);
	m->memory_max = sample_u64(s);
	m->max_output = sample_u32(s);
	m->stderr_tail = sample_u32(s);
	m->nofile = sample_u32(s);
	m->log_lines = sample_u32(s);
	m->cpu_seconds = sample_u32(s);
	m->output = sample_byte(s) % 3;
	m->warm = sample_u32(s);
	m->warm_max_jobs = sample_u32(s);
	m->warm_memory = sample_u64(s);
	m->warm_idle_us = sample_u64(s);
	m->pool = sample_u64(s);
	m->id = sample_text(s, room->t[2], true);
	m->stall_us = sample_u64(s);
}

static inline void
sample_exit(Source *s, FrameExit *m, SampleRoom *room)
{
	m->job = sample_u64(s);
	m->duration_us = sample_u64(s);
	m->utime_us = sample_u64(s);
	m->stime_us = sample_u64(s);
	m->maxrss_kb = sample_u64(s);
	m->stdout_bytes = sample_u64(s);
	m->stderr_bytes = sample_u64(s);
	m->value = (int32_t) sample_u32(s);
	m->left_processes = sample_u32(s);
	m->bad_lines = sample_u32(s);
	m->kind = 1 + sample_byte(s) % FRAME_STALLED;
	m->verdict = sample_byte(s) % (FRAME_OUT_NO_ANSWER + 1);
	m->limit = sample_byte(s) % (FRAME_LIMIT_FILES + 1);
	m->output = sample_text(s, room->t[0], true);
	m->stderr_tail = sample_text(s, room->t[1], true);
	m->message = sample_text(s, room->t[2], true);
	m->error = sample_text(s, room->t[3], true);
}

static inline void
sample_frame(Source *s, Frame *f, SampleRoom *room)
{
	memset(f, 0, sizeof(*f));
	f->type = 1 + sample_byte(s) % FRAME_LAST_TYPE;
	switch ((FrameType) f->type)
	{
		case FRAME_HELLO:
			f->u.hello.max_frame = sample_u32(s) % (FRAME_MAX_LIMIT + 1U);
			f->u.hello.max_jobs = sample_u32(s);
			f->u.hello.pid = sample_u32(s);
			f->u.hello.workdir = sample_text(s, room->t[0], false);
			break;
		case FRAME_START:
			sample_start(s, &f->u.start, room);
			break;
		case FRAME_CANCEL:
			f->u.cancel.job = sample_u64(s);
			f->u.cancel.grace_us = sample_u64(s);
			f->u.cancel.reason = 1 + sample_byte(s) % 3;
			break;
		case FRAME_SHUTDOWN:
			f->u.shutdown.grace_us = sample_u64(s);
			break;
		case FRAME_STARTED:
			f->u.started.job = sample_u64(s);
			f->u.started.pid = sample_u32(s);
			break;
		case FRAME_EVENT:
			f->u.event.job = sample_u64(s);
			f->u.event.kind = 1 + sample_byte(s) % 4;
			f->u.event.text = sample_text(s, room->t[0], true);
			break;
		case FRAME_EXIT:
			sample_exit(s, &f->u.exit, room);
			break;
		case FRAME_PING:
		case FRAME_PONG:
			break;
	}
}

static inline bool
same_text(FrameText a, FrameText b)
{
	return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

static inline bool
same_list(FrameList a, FrameList b)
{
	return a.count == b.count && a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

static inline bool
same_start(const FrameStart *a, const FrameStart *b)
{
	return a->job == b->job && same_list(a->argv, b->argv) && same_list(a->env, b->env) &&
		same_text(a->tool_path, b->tool_path) && same_text(a->stdin_data, b->stdin_data) &&
		a->timeout_us == b->timeout_us && a->kill_grace_us == b->kill_grace_us &&
		a->memory_max == b->memory_max && a->max_output == b->max_output &&
		a->stderr_tail == b->stderr_tail && a->nofile == b->nofile && a->log_lines == b->log_lines &&
		a->cpu_seconds == b->cpu_seconds && a->output == b->output && a->warm == b->warm &&
		a->warm_max_jobs == b->warm_max_jobs && a->warm_memory == b->warm_memory &&
		a->warm_idle_us == b->warm_idle_us && a->pool == b->pool && same_text(a->id, b->id) && a->stall_us == b->stall_us;
}

static inline bool
same_exit(const FrameExit *a, const FrameExit *b)
{
	return a->job == b->job && a->duration_us == b->duration_us && a->utime_us == b->utime_us &&
		a->stime_us == b->stime_us && a->maxrss_kb == b->maxrss_kb && a->stdout_bytes == b->stdout_bytes &&
		a->stderr_bytes == b->stderr_bytes && a->value == b->value &&
		a->left_processes == b->left_processes && a->bad_lines == b->bad_lines && a->kind == b->kind &&
		a->verdict == b->verdict && a->limit == b->limit && same_text(a->output, b->output) &&
		same_text(a->stderr_tail, b->stderr_tail) && same_text(a->message, b->message) && same_text(a->error, b->error);
}

static inline bool
same_frame(const Frame *a, const Frame *b)
{
	if (a->type != b->type)
		return false;
	switch ((FrameType) a->type)
	{
		case FRAME_HELLO:
			return a->u.hello.max_frame == b->u.hello.max_frame && a->u.hello.max_jobs == b->u.hello.max_jobs &&
				a->u.hello.pid == b->u.hello.pid && same_text(a->u.hello.workdir, b->u.hello.workdir);
		case FRAME_START:
			return same_start(&a->u.start, &b->u.start);
		case FRAME_CANCEL:
			return a->u.cancel.job == b->u.cancel.job && a->u.cancel.grace_us == b->u.cancel.grace_us &&
				a->u.cancel.reason == b->u.cancel.reason;
		case FRAME_SHUTDOWN:
			return a->u.shutdown.grace_us == b->u.shutdown.grace_us;
		case FRAME_STARTED:
			return a->u.started.job == b->u.started.job && a->u.started.pid == b->u.started.pid;
		case FRAME_EVENT:
			return a->u.event.job == b->u.event.job && a->u.event.kind == b->u.event.kind &&
				same_text(a->u.event.text, b->u.event.text);
		case FRAME_EXIT:
			return same_exit(&a->u.exit, &b->u.exit);
		case FRAME_PING:
		case FRAME_PONG:
			return true;
	}
	return false;
}

#endif
