/*
 * progress.c
 *	  Parses lines of descriptor 3: one JSON object each, with a key of jobq's.
 */
#include <stdlib.h>
#include <string.h>

#include "helper.h"
#include "json.h"

/*
 * True if value is a JSON number (at most JSON_MAX_NUMBER characters) from 0
 * to max.
 */
static bool
is_number_to(double max, const char *value, size_t len)
{
	char		number[JSON_MAX_NUMBER + 1];
	double		parsed;

	if (len == 0 || len > JSON_MAX_NUMBER || (value[0] != '-' && (value[0] < '0' || value[0] > '9')))
		return false;
	memcpy(number, value, len);
	number[len] = '\0';
	parsed = strtod(number, NULL);
	return parsed >= 0 && parsed <= max;
}

bool
line_has_id(const char *line, size_t len, const char *id)
{
	const char *value;
	size_t		value_len;

	return json_find(line, len, "id", &value, &value_len) && value_len == strlen(id) + 2 && value[0] == '"' &&
		memcmp(value + 1, id, value_len - 2) == 0;
}

/*
 * True if the values of a reported failure have their types, which their first
 * characters show; null counts as missing.  The worker reads intervals.
 */
static bool
is_sound_error(const char *line, size_t len)
{
	/* a key, and the characters with which its value may begin */
	static const struct
	{
		const char *key;
		const char *first;
	}			types[] = {{"error", "\""}, {"code", "0123456789-\"n"}, {"retryable", "tfn"},
	{"retry_after", "0123456789\"n"}, {"details", "{n"}};
	const char *value;
	size_t		value_len;

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (json_find(line, len, types[i].key, &value, &value_len) && !strchr(types[i].first, value[0]))
			return false;
	return !json_find(line, len, "retry_after", &value, &value_len) || value[0] == '"' || value[0] == 'n' ||
		is_number_to(MAX_RETRY_AFTER, value, value_len);
}

bool
progress_kind(const char *line, size_t len, uint8_t *kind)
{
	const char *value;
	size_t		value_len;

	*kind = 0;
	if (json_check(line, len, 2 * FRAME_MAX_LINE, NULL) != JSON_OK)
		return false;
	while (len > 0 && strchr(" \t\r", *line))
	{
		line++;
		len--;
	}
	if (*line != '{')
		return false;
	if (json_find(line, len, "progress", &value, &value_len))
	{
		*kind = FRAME_EVENT_PROGRESS;
		return is_number_to(100, value, value_len);
	}
	if (json_find(line, len, "log", &value, &value_len))
	{
		*kind = FRAME_EVENT_LOG;
		return value[0] == '"';
	}
	if (json_find(line, len, "artifact", &value, &value_len))
	{
		*kind = FRAME_EVENT_ARTIFACT;
		return true;			/* the worker checks it, as jobq.record_artifact does */
	}
	if (json_find(line, len, "error", &value, &value_len))
	{
		*kind = NOTE_ERROR;
		return is_sound_error(line, len);
	}
	return true;
}
