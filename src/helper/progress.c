/*
 * progress.c
 *	  Lines that a tool writes to descriptor 3: one JSON object each, with a key that jobq knows.
 */
#include <stdlib.h>
#include <string.h>

#include "helper.h"
#include "json.h"

/* A JSON number (at most JSON_MAX_NUMBER characters) from 0 to 100. */
static bool
is_percentage(const char *value, size_t len)
{
	char		number[JSON_MAX_NUMBER + 1];
	double		parsed;

	if (len == 0 || len > JSON_MAX_NUMBER || (value[0] != '-' && (value[0] < '0' || value[0] > '9')))
		return false;
	memcpy(number, value, len);
	number[len] = '\0';
	parsed = strtod(number, NULL);
	return parsed >= 0 && parsed <= 100;
}

bool
line_has_id(const char *line, size_t len, const char *id)
{
	const char *value;
	size_t		value_len;

	return json_find(line, len, "id", &value, &value_len) && value_len == strlen(id) + 2 && value[0] == '"' &&
		memcmp(value + 1, id, value_len - 2) == 0;
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
		return is_percentage(value, value_len);
	}
	if (json_find(line, len, "log", &value, &value_len))
	{
		*kind = FRAME_EVENT_LOG;
		return value[0] == '"';
	}
	if (json_find(line, len, "artifact", &value, &value_len))
	{
		*kind = FRAME_EVENT_ARTIFACT;
		return value[0] == '{';
	}
	return true;
}
