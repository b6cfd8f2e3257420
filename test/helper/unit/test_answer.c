/*
 * test_answer.c
 *	  Checks of a warm tool's answers, and the limit that a tool has hit.
 */
#include <signal.h>
#include <stdlib.h>

#include "check.h"
#include "helper.h"

typedef struct Case
{
	const char *line;
	FrameVerdict want;
} Case;

static const Case cases[] = {
	{"{\"id\":\"j1\",\"result\":null}", FRAME_OUT_OK}, {" { \"result\" : [1] , \"id\" : \"j1\" } \r", FRAME_OUT_OK},
	{"{\"id\":\"j1\",\"error\":\"x\"}", FRAME_OUT_OK}, {"{\"id\":\"j1\",\"skip\":true}", FRAME_OUT_OK},
	{"{\"id\":\"x\",\"result\":1,\"id\":\"j1\"}", FRAME_OUT_OK},

	{"", FRAME_OUT_EMPTY}, {"  ", FRAME_OUT_EMPTY},
	{"x", FRAME_OUT_BAD_JSON}, {"{\"id\":\"j1\",\"result\":1", FRAME_OUT_BAD_JSON}, {"{\"id\":\"j1\"}}", FRAME_OUT_BAD_JSON},
	{"{\"id\":\"j1\",\"result\":\"\\u0000\"}", FRAME_OUT_NUL}, {"{\"id\":\"j1\",\"result\":\"\xFF\"}", FRAME_OUT_NOT_UTF8},
	{"1", FRAME_OUT_NO_ANSWER}, {"[]", FRAME_OUT_NO_ANSWER}, {"null", FRAME_OUT_NO_ANSWER}, {"{}", FRAME_OUT_NO_ANSWER},
	{"{\"id\":\"j1\"}", FRAME_OUT_NO_ANSWER}, {"{\"result\":1}", FRAME_OUT_NO_ANSWER},
	{"{\"id\":\"j2\",\"result\":1}", FRAME_OUT_NO_ANSWER}, {"{\"id\":\"j11\",\"result\":1}", FRAME_OUT_NO_ANSWER},
	{"{\"id\":\"j\",\"result\":1}", FRAME_OUT_NO_ANSWER}, {"{\"id\":1,\"result\":1}", FRAME_OUT_NO_ANSWER},
	{"{\"id\":[\"j1\"],\"result\":1}", FRAME_OUT_NO_ANSWER}, {"{\"x\":{\"id\":\"j1\"},\"result\":1}", FRAME_OUT_NO_ANSWER},
	{"{\"id\":\"j1\",\"x\":{\"result\":1}}", FRAME_OUT_NO_ANSWER},
	{"{\"id\":\"j1\",\"result\":1,\"id\":\"x\"}", FRAME_OUT_NO_ANSWER},
};

static void
test_answers(void)
{
	size_t		i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		char	   *why;
		FrameVerdict got = answer_check(cases[i].line, strlen(cases[i].line), 1000, "j1", &why);

		CHECK(got == cases[i].want && (why != NULL) == (got != FRAME_OUT_OK), cases[i].line);
		free(why);
	}
}

static void
test_size(void)
{
	char	   *why;
	const char *line = "{\"id\":\"j1\",\"result\":1e300}";

	CHECK(answer_check(line, strlen(line), 1000, "j1", &why) == FRAME_OUT_OK, "a number that fits when written out");
	free(why);
	CHECK(answer_check(line, strlen(line), 100, "j1", &why) == FRAME_OUT_TRUNCATED, "one that does not");
	free(why);
}

static FrameLimit
limit_of(uint8_t kind, int value, uint64_t memory_max, uint32_t cpu_seconds, uint64_t maxrss_kb, uint64_t cpu_us, const char *stderr_tail)
{
	Job			job = {0};
	FrameExit	result = {0};

	job.memory_max = memory_max;
	job.cpu_seconds = cpu_seconds;
	result.kind = kind;
	result.value = value;
	result.maxrss_kb = maxrss_kb;
	result.utime_us = cpu_us / 2;
	result.stime_us = cpu_us - cpu_us / 2;
	result.stderr_tail = frame_text(stderr_tail);
	return limit_hit(&job, &result);
}

static void
test_limits(void)
{
	const uint64_t mb = 1024 * 1024;

	CHECK(limit_of(FRAME_EXITED, 1, 64 * mb, 0, 60 * 1024, 0, "") == FRAME_LIMIT_MEMORY, "nearly all of its memory");
	CHECK(limit_of(FRAME_EXITED, 1, 64 * mb, 0, 30 * 1024, 0, "") == FRAME_LIMIT_NONE, "half of it");
	CHECK(limit_of(FRAME_EXITED, 1, 64 * mb, 0, 1024, 0, "x: Cannot allocate memory\n") == FRAME_LIMIT_MEMORY, "it says so");
	CHECK(limit_of(FRAME_EXITED, 1, 0, 0, 1 << 30, 0, "Cannot allocate memory") == FRAME_LIMIT_NONE, "without a limit of ours");
	CHECK(limit_of(FRAME_EXITED, 0, 64 * mb, 1, 64 * 1024, 2000000, "out of memory") == FRAME_LIMIT_NONE, "success hits none");
	CHECK(limit_of(FRAME_TIMEOUT, 143, 64 * mb, 1, 64 * 1024, 2000000, "out of memory") == FRAME_LIMIT_NONE, "nor what we have stopped");
	CHECK(limit_of(FRAME_SIGNALLED, SIGXCPU, 0, 5, 0, 4000000, "") == FRAME_LIMIT_CPU, "XCPU");
	CHECK(limit_of(FRAME_SIGNALLED, SIGKILL, 0, 5, 0, 5900000, "") == FRAME_LIMIT_CPU, "killed a second later");
	CHECK(limit_of(FRAME_EXITED, 9, 0, 5, 0, 3800000, "") == FRAME_LIMIT_CPU, "it has noticed");
	CHECK(limit_of(FRAME_EXITED, 9, 0, 5, 0, 3700000, "") == FRAME_LIMIT_NONE, "not yet");
	CHECK(limit_of(FRAME_EXITED, 2, 0, 0, 0, 0, "open: Too many open files\n") == FRAME_LIMIT_FILES, "files");
}

int
main(void)
{
	test_answers();
	test_size();
	test_limits();
	return done();
}
