/*
 * json.c
 *	  Reads the members of a JSON object, and hides values in JSON text.
 *
 * src/helper/json.c checks a text first: the functions here read valid JSON
 * only, without recursion.
 */
#include "json.h"

#include <stdlib.h>
#include <string.h>

#include "helper/json.h"

#define HIDDEN "\"[redacted]\""

const char *
json_problem(const char *text, size_t len, size_t *offset)
{
	JsonError	error = {0, NULL};
	bool		good = json_check(text, len, SIZE_MAX, &error) == JSON_OK;

	if (offset)
		*offset = error.offset;
	return good ? NULL : error.what ? error.what : "not valid";
}

static const char *
skip_space(const char *s, const char *end)
{
	while (s < end && (*s == ' ' || *s == '\t' || *s == '\r' || *s == '\n'))
		s++;
	return s;
}

/* Returns the place behind the string that begins here. */
static const char *
skip_string(const char *s, const char *end)
{
	for (s++; s < end && *s != '"'; s++)
	{
		if (*s == '\\' && s + 1 < end)
			s++;
	}
	return s < end ? s + 1 : end;
}

/* Returns the place behind the value that begins here. */
static const char *
skip_value(const char *s, const char *end)
{
	size_t		depth = 0;

	do
	{
		if (s < end && *s == '"')
		{
			s = skip_string(s, end);
			continue;
		}
		if (s < end && (*s == '{' || *s == '['))
			depth++;
		else if (s < end && (*s == '}' || *s == ']'))
			depth--;
		else
		{
			/* a number, a word, or what is between values */
			while (s < end && !strchr("\"{}[],", *s) && (depth > 0 || !strchr(" \t\r\n", *s)))
				s++;
			if (depth > 0 && s < end && *s == ',')
				s++;
			continue;
		}
		s++;
	} while (s < end && depth > 0);
	return s;
}

bool
json_member(const char **place, const char *end, JsonMember *member)
{
	const char *s = skip_space(*place, end);

	if (s >= end || (*s != '{' && *s != ','))
		return false;
	s = skip_space(s + 1, end);
	if (s >= end || *s != '"')
		return false;			/* {} */
	member->name = s + 1;
	s = skip_string(s, end);
	member->name_len = (size_t) (s - 1 - member->name);
	s = skip_space(s, end);
	s = skip_space(s + 1, end); /* the colon */
	member->value = s;
	s = skip_value(s, end);
	member->value_len = (size_t) (s - member->value);
	*place = s;
	return true;
}

bool
json_element(const char **place, const char *end, JsonMember *member)
{
	const char *s = skip_space(*place, end);

	if (s >= end || (*s != '[' && *s != ','))
		return false;
	s = skip_space(s + 1, end);
	if (s >= end || *s == ']')
		return false;			/* [] */
	member->value = s;
	s = skip_value(s, end);
	member->value_len = (size_t) (s - member->value);
	*place = s;
	return true;
}

static unsigned
hex4(const char *s)
{
	char		digits[5] = {s[0], s[1], s[2], s[3], '\0'};

	return (unsigned) strtoul(digits, NULL, 16);
}

static void
add_utf8(Buf *b, unsigned c)
{
	char		bytes[4] = {(char) (0xF0 | c >> 18), (char) (0x80 | (c >> 12 & 63)), (char) (0x80 | (c >> 6 & 63)),
	(char) (0x80 | (c & 63))};

	if (c < 0x80)
		bytes[3] = (char) c;
	else if (c < 0x800)
		bytes[2] = (char) (0xC0 | c >> 6);
	else if (c < 0x10000)
		bytes[1] = (char) (0xE0 | c >> 12);
	buf_add(b, bytes + (c < 0x80 ? 3 : c < 0x800 ? 2 : c < 0x10000 ? 1 : 0), c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4);
}

/* Adds the character of the escape at s; returns the place behind it. */
static const char *
add_escape(Buf *b, const char *s)
{
	static const char plain[] = "b\bf\fn\nr\rt\t";
	const char *at;
	unsigned	c;

	if (*s != 'u')
	{
		for (at = plain; *at && *at != *s; at += 2)
			;
		buf_add(b, *at ? at + 1 : s, 1);
		return s + 1;
	}
	c = hex4(s + 1);
	s += 5;
	if (c >= 0xD800 && c <= 0xDBFF)
	{
		c = 0x10000 + ((c - 0xD800) << 10) + (hex4(s + 2) - 0xDC00);
		s += 6;
	}
	add_utf8(b, c);
	return s;
}

char *
json_string(const char *value, size_t len)
{
	const char *end = value + len - 1;
	Buf			text = {0};

	if (len < 2 || *value != '"')
		return NULL;
	buf_add(&text, "", 0);
	for (value++; value < end;)
	{
		if (*value == '\\')
			value = add_escape(&text, value + 1);
		else
			buf_add(&text, value++, 1);
	}
	return text.data;
}

static bool
is_hidden(const List *keys, const char *name, size_t len)
{
	int			i;

	for (i = 0; i < keys->count; i++)
	{
		if (strlen(keys->items[i].name) == len && memcmp(keys->items[i].name, name, len) == 0)
			return true;
	}
	return false;
}

typedef struct Scan
{
	const char *place;
	const char *end;
	size_t		depth;
} Scan;

/*
 * Finds the next value of these keys at this depth or below; NULL: none.  A
 * string followed by a colon is a key.  No object or array is remembered: only
 * how deep the text is, as brackets balance.
 */
static const char *
next_hidden(Scan *scan, size_t min_depth, const List *keys)
{
	const char *end = scan->end;

	while (scan->place < end)
	{
		const char *key = scan->place;
		const char *next;

		if (*key == '{' || *key == '[')
			scan->depth++;
		else if (*key == '}' || *key == ']')
			scan->depth--;
		scan->place = *key == '"' ? skip_string(key, end) : key + 1;
		if (*key != '"' || scan->depth < min_depth)
			continue;
		next = skip_space(scan->place, end);
		if (next >= end || *next != ':' || !is_hidden(keys, key + 1, (size_t) (scan->place - key) - 2))
			continue;
		next = skip_space(next + 1, end);
		scan->place = skip_value(next, end);
		return next;
	}
	return NULL;
}

void
json_redact(Buf *out, const char *text, size_t len, const List *keys)
{
	Scan		scan = {.place = text,.end = text + len};
	const char *from = text;
	const char *value;

	while ((value = next_hidden(&scan, 2, keys)) != NULL)
	{
		buf_add(out, from, (size_t) (value - from));
		buf_text(out, HIDDEN);
		from = scan.place;
	}
	buf_add(out, from, (size_t) (scan.end - from));
}

bool
json_has_redacted(const char *text, size_t len, const List *keys)
{
	Scan		scan = {.place = text,.end = text + len};
	const char *value;
	size_t		hidden = strlen(HIDDEN);

	while ((value = next_hidden(&scan, 1, keys)) != NULL)
	{
		if ((size_t) (scan.place - value) == hidden && memcmp(value, HIDDEN, hidden) == 0)
			return true;
		scan.place = value;		/* keys within it */
	}
	return false;
}
