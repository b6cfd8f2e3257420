/*
 * output_capture.c
 *	  Keeps a tool's output in bounded memory: the beginning of stdout (up to
 *	  max_output), the end of stderr, lines.  Judges stdout when the tool has
 *	  ended.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "helper.h"
#include "json.h"
#include "utf8.h"

void
capture_add(Capture *c, const char *data, size_t len)
{
	size_t		room = c->max - c->len;

	c->total += len;
	if (len > room)
		len = room;
	if (len == 0 || c->failed)
		return;
	if (c->len + len > c->cap)
	{
		size_t		cap = c->cap ? c->cap * 2 : 4096;
		char	   *grown;

		while (cap < c->len + len)
			cap *= 2;
		if (cap > c->max)
			cap = c->max;
		grown = realloc(c->data, cap);
		if (!grown)
		{
			c->failed = true;
			return;
		}
		c->data = grown;
		c->cap = cap;
	}
	memcpy(c->data + c->len, data, len);
	c->len += len;
}

bool
capture_is_over(const Capture *c)
{
	return c->total > c->max || c->failed;
}

void
ring_add(Ring *r, const char *data, size_t len)
{
	if (r->size == 0 || (!r->data && !(r->data = malloc(r->size))))
	{
		r->total += len;
		return;
	}
	if (len > r->size)
	{
		r->total += len - r->size;
		data += len - r->size;
		len = r->size;
	}
	while (len > 0)
	{
		size_t		at = (size_t) (r->total % r->size);
		size_t		n = len < r->size - at ? len : r->size - at;

		memcpy(r->data + at, data, n);
		r->total += n;
		data += n;
		len -= n;
	}
}

/*
 * Copies the ring, oldest byte first.  When older bytes are gone, drops the
 * rest of a split character too.
 */
size_t
ring_read(const Ring *r, char *out)
{
	size_t		at;
	size_t		skip = 0;

	if (!r->data)
		return 0;
	if (r->total <= r->size)
	{
		memcpy(out, r->data, (size_t) r->total);
		return (size_t) r->total;
	}
	at = (size_t) (r->total % r->size);
	memcpy(out, r->data + at, r->size - at);
	memcpy(out + r->size - at, r->data, at);
	while (skip < 3 && skip < r->size && ((unsigned char) out[skip] & 0xC0) == 0x80)
		skip++;
	memmove(out, out + skip, r->size - skip);
	return r->size - skip;
}

static void
line_part(Lines *l, const char *data, size_t len)
{
	if (l->overlong || (!l->data && !(l->data = malloc(l->max))) || len > l->max - l->len)
	{
		if (!l->overlong && l->data && l->len < l->max)
		{
			memcpy(l->data + l->len, data, l->max - l->len);
			l->len = l->max;
		}
		l->overlong = true;
		return;
	}
	memcpy(l->data + l->len, data, len);
	l->len += len;
}

static void
line_complete(Lines *l, LineHandler handler, void *arg)
{
	handler(arg, l->data, l->data ? l->len : 0, l->overlong);
	l->len = 0;
	l->overlong = false;
}

void
lines_add(Lines *l, const char *data, size_t len, LineHandler handler, void *arg)
{
	while (len > 0)
	{
		const char *newline = memchr(data, '\n', len);
		size_t		n = newline ? (size_t) (newline - data) : len;

		line_part(l, data, n);
		if (newline)
		{
			line_complete(l, handler, arg);
			n++;
		}
		data += n;
		len -= n;
	}
}

void
lines_end(Lines *l, LineHandler handler, void *arg)
{
	if (l->len > 0 || l->overlong)
		line_complete(l, handler, arg);
}

/* ---- judgement ---- */

FrameVerdict
verdict_of(int result)
{
	switch ((JsonResult) result)
	{
		case JSON_OK:
			return FRAME_OUT_OK;
		case JSON_EMPTY:
			return FRAME_OUT_EMPTY;
		case JSON_BAD:
			return FRAME_OUT_BAD_JSON;
		case JSON_NOT_UTF8:
			return FRAME_OUT_NOT_UTF8;
		case JSON_NUL:
			return FRAME_OUT_NUL;
		case JSON_TOO_DEEP:
			return FRAME_OUT_TOO_DEEP;
		case JSON_TOO_LARGE:
			return FRAME_OUT_TRUNCATED;
	}
	return FRAME_OUT_BAD_JSON;
}

static bool
keep_message(FrameExit *result, const char *format, const char *what, unsigned long long number)
{
	char		line[256];

	snprintf(line, sizeof(line), format, what, number);
	result->message.data = strdup(line);
	result->message.len = result->message.data ? (uint32_t) strlen(line) : 0;
	return result->message.data != NULL;
}

/*
 * Copies the (repaired) text of data into the result, max bytes of it at most.
 */
static bool
keep_text(FrameExit *result, const char *data, size_t len, size_t max, bool *malformed, bool *nul)
{
	size_t		n = utf8_clean(NULL, data, len, NULL, NULL);
	char	   *text = malloc(n + 1);

	if (!text)
		return false;
	utf8_clean(text, data, len, malformed, nul);
	result->output.data = text;

	result->output.len = (uint32_t) utf8_prefix(text, n, max);
	return true;
}

static bool
keep_bad(const Capture *c, FrameExit *result)
{
	return keep_text(result, c->data ? c->data : "", c->len < FRAME_BAD_OUTPUT ? c->len : FRAME_BAD_OUTPUT,
					 FRAME_BAD_OUTPUT, NULL, NULL);
}

static bool
judge_json(const Capture *c, FrameExit *result)
{
	const char *start = c->data;
	const char *end = c->data + c->len;
	JsonError	error;
	JsonResult	found = json_check(c->data ? c->data : "", c->len, c->max, &error);

	result->verdict = verdict_of(found);
	if (found == JSON_EMPTY)
		return keep_message(result, "stdout is empty%s", "", 0);
	if (found != JSON_OK)
		return keep_message(result, "stdout is not valid JSON: %s at byte %llu", error.what,
							(unsigned long long) error.offset + 1) && keep_bad(c, result);
	while (strchr(" \t\r\n", *start))
		start++;
	while (strchr(" \t\r\n", end[-1]))
		end--;
	return keep_text(result, start, (size_t) (end - start), SIZE_MAX, NULL, NULL);
}

static bool
judge_text(const Capture *c, FrameExit *result)
{
	bool		malformed;
	bool		nul;

	if (!keep_text(result, c->data ? c->data : "", c->len, SIZE_MAX, &malformed, &nul))
		return false;
	result->verdict = FRAME_OUT_OK;
	if (malformed)
		result->verdict = FRAME_OUT_NOT_UTF8;
	else if (nul)
		result->verdict = FRAME_OUT_NUL;
	return result->verdict == FRAME_OUT_OK ||
		keep_message(result, "stdout %s", malformed ? "is not valid UTF-8" : "has zero bytes", 0);
}

bool
output_judge(const Capture *c, FrameOutputKind kind, FrameExit *result)
{
	result->stdout_bytes = c->total;
	result->verdict = FRAME_OUT_OK;
	if (kind == FRAME_OUTPUT_NONE)
		return true;
	if (capture_is_over(c))
	{
		result->verdict = FRAME_OUT_TRUNCATED;
		return keep_message(result, "%s is longer than the limit of %llu bytes (max_output)",
							c->name ? c->name : "stdout", (unsigned long long) c->max) &&
			keep_bad(c, result);
	}
	return kind == FRAME_OUTPUT_JSON ? judge_json(c, result) : judge_text(c, result);
}

bool
output_tail(const Ring *r, FrameExit *result)
{
	char	   *raw = malloc(r->size + 1);
	char	   *text = malloc(r->size + 1);

	result->stderr_bytes = r->total;
	if (raw && text)
	{
		result->stderr_tail.data = text;

		result->stderr_tail.len = (uint32_t) utf8_escape_tail(text, r->size, raw, ring_read(r, raw));
		free(raw);
		return true;
	}
	free(raw);
	free(text);
	return false;
}

/*
 * Truncates the output of a frame that would be too long, as if it were over
 * the limit.
 */
void
output_cut(FrameExit *result)
{
	result->verdict = FRAME_OUT_TRUNCATED;
	result->output.len = (uint32_t) utf8_prefix(result->output.data, result->output.len, FRAME_BAD_OUTPUT);
}

void
output_free(FrameExit *result)
{
	free((char *) result->output.data);
	free((char *) result->stderr_tail.data);
	free((char *) result->message.data);
}
