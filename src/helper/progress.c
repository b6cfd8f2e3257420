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

/* A key, and the characters with which its value may begin. */
typedef struct ValueType
{
	const char *key;
	const char *first;
} ValueType;

/* True if each of these keys that the object has is of its type. */
static bool
has_types(const char *object, size_t len, const ValueType *types, size_t n)
{
	const char *value;
	size_t		value_len;

	for (size_t i = 0; i < n; i++)
		if (json_find(object, len, types[i].key, &value, &value_len) && !strchr(types[i].first, value[0]))
			return false;
	return true;
}

/*
 * True if the values of a reported failure have their types, which their first
 * characters show; null counts as missing.  The worker reads intervals.
 */
static bool
is_sound_error(const char *line, size_t len)
{
	static const ValueType types[] = {{"error", "\""}, {"code", "0123456789-\"n"}, {"retryable", "tfn"},
	{"retry_after", "0123456789\"n"}, {"details", "{n"}};
	const char *value;
	size_t		value_len;

	if (!has_types(line, len, types, sizeof(types) / sizeof(types[0])))
		return false;
	return !json_find(line, len, "retry_after", &value, &value_len) || value[0] == '"' || value[0] == 'n' ||
		is_number_to(MAX_RETRY_AFTER, value, value_len);
}

/*
 * True if it is an object with a key, and the other values have their types.
 * The worker reads the values.
 */
static bool
is_sound_artifact(const char *object, size_t len)
{
	static const ValueType types[] = {{"key", "\""}, {"kind", "\"n"}, {"bucket", "\"n"}, {"size_bytes", "0123456789n"},
	{"content_type", "\"n"}, {"checksum", "\"n"}};
	const char *value;
	size_t		value_len;

	return object[0] == '{' && json_find(object, len, "key", &value, &value_len) &&
		has_types(object, len, types, sizeof(types) / sizeof(types[0]));
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
		return is_sound_artifact(value, value_len);
	}
	if (json_find(line, len, "error", &value, &value_len))
	{
		*kind = NOTE_ERROR;
		return is_sound_error(line, len);
	}
	return true;
}
