/*
 * answer.c
 *	  Checks the line in which a warm instance answers a job:
 *	  {"id": ..., "result": ...}, or "error" or "skip" instead.
 *
 * The exec worker reads its content.  This file only checks that the line can
 * be the answer to this job.  An instance with another answer is out of step
 * and is killed.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "helper.h"
#include "json.h"

static FrameVerdict
refuse(FrameVerdict verdict, char **why, const char *format,...) __attribute__((format(printf, 3, 4)));

static FrameVerdict
refuse(FrameVerdict verdict, char **why, const char *format,...)
{
	va_list		args;

	va_start(args, format);
	if (vasprintf(why, format, args) < 0)
		*why = NULL;
	va_end(args);
	return verdict;
}

static bool
has_key(const char *line, size_t len, const char *key)
{
	const char *value;
	size_t		value_len;

	return json_find(line, len, key, &value, &value_len);
}

FrameVerdict
answer_check(const char *line, size_t len, size_t max, const char *id, char **why)
{
	JsonError	error;
	JsonResult	found = json_check(line, len, max, &error);

	*why = NULL;
	if (found == JSON_EMPTY)
		return refuse(FRAME_OUT_EMPTY, why, "the answer is an empty line");
	if (found != JSON_OK)
		return refuse(verdict_of(found), why, "the answer is not valid JSON: %s at byte %zu", error.what,
					  error.offset + 1);
	if (!line_has_id(line, len, id))
		return refuse(FRAME_OUT_NO_ANSWER, why, "the answer does not have the id of the job");
	if (!has_key(line, len, "result") && !has_key(line, len, "error") && !has_key(line, len, "skip"))
		return refuse(FRAME_OUT_NO_ANSWER, why,
					  "the answer has neither \"result\" nor \"error\" nor \"skip\"");
	return FRAME_OUT_OK;
}
