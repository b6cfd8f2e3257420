/*
 * cron_parse.h
 *	  The text of cron expressions: parts of it, words, numbers, errors.  For the
 *	  parser's own files.
 */
#ifndef JOBQ_CRON_PARSE_H
#define JOBQ_CRON_PARSE_H

#include <string.h>

#include "schedule/cron.h"

/* A part of the text. */
typedef struct Part
{
	const char *at;
	int			len;
} Part;

/* Sets an error and returns false. */
static inline bool
fail(CronError *error, const char *field, Part value, const char *problem, const char *hint)
{
	error->field = field;
	error->value = value.at;
	error->len = value.len;
	error->problem = problem;
	error->hint = hint;
	return false;
}

static inline bool
is_space(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

static inline bool
is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static inline char
lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char) (c + 'a' - 'A') : c;
}

static inline bool
is_letter(char c)
{
	return lower(c) >= 'a' && lower(c) <= 'z';
}

/* Compares without case; word is in lower case. */
static inline bool
is_word(Part part, const char *word)
{
	if ((size_t) part.len != strlen(word))
		return false;
	for (int i = 0; i < part.len; i++)
	{
		if (lower(part.at[i]) != word[i])
			return false;
	}
	return true;
}

static inline bool
has_char(Part part, char c)
{
	return part.len > 0 && memchr(part.at, c, part.len) != NULL;
}

static inline Part
trimmed(Part part)
{
	while (part.len > 0 && is_space(part.at[0]))
		part.at++, part.len--;
	while (part.len > 0 && is_space(part.at[part.len - 1]))
		part.len--;
	return part;
}

/* Takes the text before a separator, or all of it, from *rest. */
static inline Part
take_until(Part *rest, char separator)
{
	const char *end = rest->len > 0 ? memchr(rest->at, separator, rest->len) : NULL;
	Part		taken = {rest->at, end == NULL ? rest->len : (int) (end - rest->at)};
	int			skip = taken.len + (end != NULL);

	rest->at += skip;
	rest->len -= skip;
	return taken;
}

/* Takes a word and the white space around it. */
static inline Part
take_word(Part *rest)
{
	Part		word;

	*rest = trimmed(*rest);
	word.at = rest->at;
	for (word.len = 0; word.len < rest->len && !is_space(rest->at[word.len]);)
		word.len++;
	rest->at += word.len;
	rest->len -= word.len;
	*rest = trimmed(*rest);
	return word;
}

/* Takes a number of digits; -1 if there is none.  Large ones become UINT32_MAX. */
static inline int64_t
take_number(Part *rest)
{
	int64_t		number = rest->len > 0 && is_digit(rest->at[0]) ? 0 : -1;

	while (rest->len > 0 && is_digit(rest->at[0]))
	{
		number = number * 10 + (rest->at[0] - '0');
		if (number > UINT32_MAX)
			number = UINT32_MAX;
		rest->at++;
		rest->len--;
	}
	return number;
}

/*
 * Sets the rule's interval: "90s", "1 hour 30 minutes", "1h30m", "1 day 02:00".
 */
extern bool cron_parse_interval(Part text, CronRule *rule, CronError *error);

/* True if the text has the form of an interval, legal or not. */
extern bool cron_is_interval(Part text);

#endif
