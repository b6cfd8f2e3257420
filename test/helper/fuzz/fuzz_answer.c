/*
 * fuzz_answer.c
 *	  Lines of a warm tool, in pieces.  An accepted answer is bounded JSON with
 *	  the job's id and a result, error or skip.  For all pieces, no line is
 *	  longer than the limit.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "helper.h"
#include "json.h"

#define MAX 512

int			LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
expect(bool ok)
{
	if (!ok)
		abort();
}

static void
one_line(void *arg, const char *line, size_t len, bool overlong)
{
	const char *text = line ? line : "";
	const char *value;
	size_t		value_len;
	char	   *why;

	(void) arg;
	expect(len <= MAX);
	if (overlong)
		return;
	if (answer_check(text, len, MAX, "j", &why) == FRAME_OUT_OK)
	{
		expect(!why && json_check(text, len, MAX, NULL) == JSON_OK);
		expect(json_find(text, len, "id", &value, &value_len) && value_len == 3 && memcmp(value, "\"j\"", 3) == 0);
	}
	else
		expect(why && strlen(why) > 0);
	free(why);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	Lines		lines = {0};
	size_t		piece = size > 0 ? 1 + data[0] % 64 : 1;
	size_t		at;

	lines.max = MAX;
	for (at = 0; at < size; at += piece)
		lines_add(&lines, (const char *) data + at, size - at < piece ? size - at : piece, one_line, NULL);
	lines_end(&lines, one_line, NULL);
	free(lines.data);
	return 0;
}
