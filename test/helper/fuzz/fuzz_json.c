/*
 * fuzz_json.c
 *	  Z4: the JSON validator.  An accepted text is valid UTF-8 without NUL, and
 *	  within the limits of depth and of length when written out.  Each value
 *	  found in an object is accepted alone.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "helper.h"
#include "json.h"
#include "utf8.h"

#define MAX 4096

int			LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
expect(bool ok)
{
	if (!ok)
		abort();
}

/* Returns the depth, counted another way: brackets outside of strings. */
static int
depth_of(const char *s, size_t len)
{
	bool		in_string = false;
	int			depth = 0;
	int			deepest = 0;
	size_t		i;

	for (i = 0; i < len; i++)
	{
		if (in_string)
		{
			if (s[i] == '\\')
				i++;
			else if (s[i] == '"')
				in_string = false;
		}
		else if (s[i] == '"')
			in_string = true;
		else if (s[i] == '[' || s[i] == '{')
			deepest = ++depth > deepest ? depth : deepest;
		else if (s[i] == ']' || s[i] == '}')
			depth--;
	}
	expect(depth == 0 && !in_string);
	return deepest;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *s = (const char *) data;
	const char *value;
	JsonError	error;
	JsonResult	result = json_check(s, size, MAX, &error);
	size_t		len;
	uint8_t		kind;

	if (progress_kind(s, size, &kind) && kind == NOTE_ERROR)
		expect(json_check(s, size, 2 * FRAME_MAX_LINE, NULL) == JSON_OK &&
			   json_find(s, size, "error", &value, &len) && value[0] == '"');
	if (progress_kind(s, size, &kind) && kind == FRAME_EVENT_ARTIFACT)
		expect(json_find(s, size, "artifact", &value, &len));	/* the worker checks the rest */
	if (result != JSON_OK)
	{
		expect(error.what && error.offset <= size);
		json_find(s, size, "a", &value, &len);	/* must not crash; the
												 * result is undefined */
		return 0;
	}
	expect(size <= MAX && utf8_valid(s, size) && !memchr(s, 0, size));
	expect(depth_of(s, size) <= JSON_MAX_DEPTH);
	if (json_find(s, size, "a", &value, &len))
		expect(value >= s && value + len <= s + size && json_check(value, len, MAX, NULL) == JSON_OK);
	return 0;
}
