/*
 * test_output.c
 *	  Bounded capture of streams, and the verdict on stdout.
 */
#include <stdlib.h>

#include "check.h"
#include "helper.h"

static void
test_capture(void)
{
	Capture		c = {0};
	int			i;

	c.max = 10;
	capture_add(&c, "abcdef", 6);
	capture_add(&c, "ghijkl", 6);
	capture_add(&c, "m", 1);
	CHECK(c.len == 10 && memcmp(c.data, "abcdefghij", 10) == 0 && c.total == 13, "the first bytes are kept, all are counted");
	free(c.data);
	memset(&c, 0, sizeof(c));
	c.max = 1000000;
	for (i = 0; i < 1000; i++)
		capture_add(&c, "0123456789", 10);
	CHECK(c.len == 10000 && c.cap < 40000, "memory grows with what is there");
	free(c.data);
}

static bool
ring_holds(const Ring *r, const char *want)
{
	char		out[64];
	size_t		n = ring_read(r, out);

	return n == strlen(want) && memcmp(out, want, n) == 0;
}

static void
test_ring(void)
{
	Ring		r = {0};
	int			i;

	r.size = 8;
	CHECK(ring_holds(&r, ""), "an empty ring");
	ring_add(&r, "abc", 3);
	CHECK(ring_holds(&r, "abc"), "not full");
	ring_add(&r, "defgh", 5);
	CHECK(ring_holds(&r, "abcdefgh"), "just full");
	ring_add(&r, "ij", 2);
	CHECK(ring_holds(&r, "cdefghij") && r.total == 10, "the last bytes");
	ring_add(&r, "0123456789abcdefghijk", 21);
	CHECK(ring_holds(&r, "defghijk") && r.total == 31, "more than fits at once");
	for (i = 0; i < 7; i++)
		ring_add(&r, "\xE2\x82\xAC", 3);
	CHECK(ring_holds(&r, "\xE2\x82\xAC\xE2\x82\xAC"), "no rest of a character at its beginning");
	free(r.data);
	memset(&r, 0, sizeof(r));
	ring_add(&r, "abc", 3);
	CHECK(r.total == 3 && !r.data, "a ring of no size only counts");
}

static char seen[256];

static void
note(void *arg, const char *line, size_t len, bool overlong)
{
	size_t		at = strlen(seen);

	(void) arg;
	snprintf(seen + at, sizeof(seen) - at, "<%.*s%s>", (int) len, line ? line : "", overlong ? "+" : "");
}

static bool
lines_are(const char *input, size_t piece, const char *want)
{
	Lines		l = {0};
	size_t		at;

	seen[0] = '\0';
	l.max = 5;
	for (at = 0; at < strlen(input); at += piece)
		lines_add(&l, input + at, strlen(input + at) < piece ? strlen(input + at) : piece, note, NULL);
	lines_end(&l, note, NULL);
	free(l.data);
	return strcmp(seen, want) == 0;
}

static void
test_lines(void)
{
	bool		ok = true;
	size_t		piece;

	for (piece = 1; piece < 20; piece++)
	{
		ok &= lines_are("ab\n\ncde\n", piece, "<ab><><cde>");
		ok &= lines_are("ab\ncd", piece, "<ab><cd>");
		ok &= lines_are("12345\n123456\nx\n", piece, "<12345><12345+><x>");
		ok &= lines_are("1234567890", piece, "<12345+>");
	}
	CHECK(ok, "lines come whole from pieces of any size; long ones are cut once");
}

static bool
judges(FrameOutputKind kind, const char *text, size_t len, FrameVerdict verdict, const char *output)
{
	Capture		c = {0};
	FrameExit	result = {0};
	bool		ok;

	c.max = 64;
	capture_add(&c, text, len);
	ok = output_judge(&c, kind, &result) && result.verdict == verdict && result.stdout_bytes == len &&
		result.output.len == strlen(output) && memcmp(result.output.data ? result.output.data : "", output, strlen(output)) == 0 &&
		(result.message.len > 0) == (verdict != FRAME_OUT_OK);
	output_free(&result);
	free(c.data);
	return ok;
}

#define JUDGES(kind, text, verdict, output) judges(kind, text, sizeof(text) - 1, verdict, output)

static void
test_judgement(void)
{
	char		long_text[65];

	memset(long_text, '1', sizeof(long_text));
	CHECK(JUDGES(FRAME_OUTPUT_JSON, " {\"a\":1}\n", FRAME_OUT_OK, "{\"a\":1}"), "json without the space around it");
	CHECK(JUDGES(FRAME_OUTPUT_JSON, "", FRAME_OUT_EMPTY, "") && JUDGES(FRAME_OUTPUT_JSON, " \n", FRAME_OUT_EMPTY, ""), "nothing");
	CHECK(JUDGES(FRAME_OUTPUT_JSON, "hello", FRAME_OUT_BAD_JSON, "hello"), "no json");
	CHECK(JUDGES(FRAME_OUTPUT_JSON, "\"\xFF\"", FRAME_OUT_NOT_UTF8, "\"\xEF\xBF\xBD\""), "invalid UTF-8");
	CHECK(JUDGES(FRAME_OUTPUT_JSON, "1\0", FRAME_OUT_NUL, "1"), "zero byte");
	CHECK(judges(FRAME_OUTPUT_JSON, long_text, 64, FRAME_OUT_OK, "1111111111111111111111111111111111111111111111111111111111111111"), "as long as allowed");
	CHECK(judges(FRAME_OUTPUT_JSON, long_text, 65, FRAME_OUT_TRUNCATED, "1111111111111111111111111111111111111111111111111111111111111111"), "longer");
	CHECK(JUDGES(FRAME_OUTPUT_TEXT, " a\n", FRAME_OUT_OK, " a\n") && JUDGES(FRAME_OUTPUT_TEXT, "", FRAME_OUT_OK, ""), "text as it is");
	CHECK(JUDGES(FRAME_OUTPUT_TEXT, "a\xFF", FRAME_OUT_NOT_UTF8, "a\xEF\xBF\xBD"), "text with a bad byte");
	CHECK(JUDGES(FRAME_OUTPUT_TEXT, "a\0b", FRAME_OUT_NUL, "ab"), "text with a zero byte");
	CHECK(JUDGES(FRAME_OUTPUT_NONE, "\xFF", FRAME_OUT_OK, ""), "nothing was asked for");
}

static bool
line_is(const char *line, bool good, uint8_t want)
{
	uint8_t		kind;
	bool		ok = progress_kind(line, strlen(line), &kind);

	return ok == good && (!ok || kind == want);
}

static void
test_progress(void)
{
	CHECK(line_is("{\"progress\": 40, \"data\": {}}", true, FRAME_EVENT_PROGRESS), "progress");
	CHECK(line_is("{\"progress\": 0}", true, FRAME_EVENT_PROGRESS) && line_is("{\"progress\":1e2}\r", true, FRAME_EVENT_PROGRESS), "0 to 100");
	CHECK(line_is("{\"progress\": 101}", false, 0) && line_is("{\"progress\": -1}", false, 0) &&
		  line_is("{\"progress\": \"5\"}", false, 0) && line_is("{\"progress\": null}", false, 0), "no other progress");
	CHECK(line_is("  {\"log\": \"x\", \"level\": \"info\"}", true, FRAME_EVENT_LOG) && line_is("{\"log\": 1}", false, 0), "log");
	CHECK(line_is("{\"artifact\": {\"key\": \"a/b\"}}", true, FRAME_EVENT_ARTIFACT) &&
		  line_is("{\"artifact\": 1, \"log\": \"x\"}", true, FRAME_EVENT_LOG), "artifact, unless it is a log");
	CHECK(line_is("{\"error\": \"x\", \"code\": \"c\", \"retryable\": true, \"retry_after\": 1.5, \"details\": {}}", true, NOTE_ERROR), "error");
	CHECK(line_is("{\"error\": 1}", false, 0) && line_is("{\"error\": \"x\", \"code\": []}", false, 0) &&
		  line_is("{\"error\": \"x\", \"retryable\": 1}", false, 0) && line_is("{\"error\": \"x\", \"retry_after\": -1}", false, 0) &&
		  line_is("{\"error\": \"x\", \"details\": []}", false, 0), "no other error");
	CHECK(line_is("{\"x\": 1}", true, 0) && line_is("{}", true, 0), "unknown keys are ignored");
	CHECK(line_is("[1]", false, 0) && line_is("x", false, 0) && line_is("{\"log\": \"x\"", false, 0), "lines that are no object");
}

int
main(void)
{
	test_capture();
	test_ring();
	test_lines();
	test_judgement();
	test_progress();
	return done();
}
