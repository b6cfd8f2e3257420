/*
 * query.c
 *	  Splits and decodes what clients send as text: targets, cookies, Basic.
 *
 * libmicrohttpd's own parsers are not used: they decode more than once can be
 * said, and take what is malformed for something else.
 */
#include "query.h"

#include <string.h>
#include <strings.h>

#include "helper/utf8.h"

static int
hex_digit(int c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

bool
percent_decode(char *s, bool plus)
{
	char	   *start = s;
	char	   *to = s;

	for (; *s; s++)
	{
		if (*s == '%')
		{
			int			high = hex_digit(s[1]);
			int			low = high < 0 ? -1 : hex_digit(s[2]);

			if (low < 0 || high * 16 + low == 0)
				return false;
			*to++ = (char) (high * 16 + low);
			s += 2;
		}
		else
			*to++ = plus && *s == '+' ? ' ' : *s;
	}
	*to = '\0';
	return utf8_valid(start, (size_t) (to - start));
}

const char *
query_value(const Query *query, const char *name)
{
	int			i;

	for (i = 0; i < query->count; i++)
	{
		if (strcmp(query->list[i].name, name) == 0)
			return query->list[i].value;
	}
	return NULL;
}

const char *
query_split(char *s, Query *query)
{
	query->count = 0;
	query->wrong = NULL;
	while (s && *s)
	{
		char	   *next = strchr(s, '&');
		char	   *value;

		if (next)
			*next++ = '\0';
		value = strchr(s, '=');
		if (value)
			*value++ = '\0';
		else
			value = s + strlen(s);
		if (query->count == MAX_PARAMETERS)
			return "the query string has more than 64 parameters";
		if (!percent_decode(s, true))
			return "the query string is not percent-encoded UTF-8";
		query->wrong = s;
		if (!percent_decode(value, true))
			return "the parameter is not percent-encoded UTF-8, or has a zero byte";
		if (*s && query_value(query, s))
			return "the parameter occurs twice";
		query->wrong = NULL;
		if (*s)
			query->list[query->count++] = (Parameter) {s, value};
		s = next;
	}
	return NULL;
}

bool
cookie_value(const char *header, const char *name, char *value, size_t size)
{
	size_t		name_len = strlen(name);

	while (header && *header)
	{
		size_t		len;

		header += strspn(header, " \t;");
		len = strcspn(header, ";");
		if (len > name_len && strncmp(header, name, name_len) == 0 && header[name_len] == '=')
		{
			len -= name_len + 1;
			if (len >= size)
				return false;
			memcpy(value, header + name_len + 1, len);
			value[len] = '\0';
			return true;
		}
		header += len;
	}
	return false;
}

static int
base64_digit(int c)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const char *at = c ? strchr(digits, c) : NULL;

	return at ? (int) (at - digits) : -1;
}

/* Decodes base64; -1: malformed, a zero byte, or too long. */
static long
base64_decode(const char *s, char *out, size_t size)
{
	unsigned	bits = 0;
	int			nbits = 0;
	size_t		len = 0;

	for (; base64_digit(*s) >= 0; s++)
	{
		bits = (bits << 6 | (unsigned) base64_digit(*s)) & 0xFFFFFF;
		nbits += 6;
		if (nbits >= 8)
		{
			nbits -= 8;
			if (len + 1 >= size || ((bits >> nbits) & 0xFF) == 0)
				return -1;
			out[len++] = (char) ((bits >> nbits) & 0xFF);
		}
	}
	out[len] = '\0';
	s += strspn(s, "=");
	return *s == '\0' ? (long) len : -1;
}

bool
basic_split(const char *header, char *buffer, size_t size, const char **name, const char **password)
{
	char	   *colon;
	long		len;

	if (strncasecmp(header, "basic ", 6) != 0)
		return false;
	header += 6;
	header += strspn(header, " ");
	len = base64_decode(header, buffer, size);
	if (len < 0 || !utf8_valid(buffer, (size_t) len))
		return false;
	colon = strchr(buffer, ':');
	if (!colon || colon == buffer)
		return false;
	*colon = '\0';
	*name = buffer;
	*password = colon + 1;
	return true;
}
