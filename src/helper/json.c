/*
 * json.c
 *	  Checks JSON without recursion and without memory: one pass, one bit for
 *	  each level of nesting.
 */
#include "json.h"

#include <stdint.h>
#include <string.h>

#include "utf8.h"

typedef struct Scan
{
	const char *start;
	const char *at;
	const char *end;
	size_t		extra;			/* bytes that numbers gain when written out */
	int			depth;
	uint64_t	objects;		/* bit per open level: 1 for an object, 0
								 * for an array */
	JsonResult	result;
	JsonError	error;
} Scan;

/* Records the error. Returns false, so that callers can return the call. */
static bool
refuse(Scan *s, JsonResult result, const char *what)
{
	s->result = result;
	s->error.what = what;
	s->error.offset = (size_t) (s->at - s->start);
	return false;
}

static int
peek(const Scan *s)
{
	return s->at < s->end ? (unsigned char) *s->at : -1;
}

static void
skip_space(Scan *s)
{
	while (s->at < s->end && strchr(" \t\r\n", *s->at) && *s->at)
		s->at++;
}

/* Reports the most specific error at a place where `what` was expected. */
static bool
unexpected(Scan *s, const char *what)
{
	if (s->at == s->end)
		return refuse(s, JSON_BAD, "unexpected end");
	if (*s->at == '\0')
		return refuse(s, JSON_NUL, "zero byte");
	if (utf8_char(s->at, (size_t) (s->end - s->at)) == 0)
		return refuse(s, JSON_NOT_UTF8, "invalid UTF-8");
	return refuse(s, JSON_BAD, what);
}

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

/* Reads the four digits after \u; -1: there are no four. */
static int
scan_hex4(Scan *s)
{
	int			value = 0;
	int			i;

	for (i = 0; i < 4; i++)
	{
		int			digit = hex_digit(peek(s));

		if (digit < 0)
			return -1;
		value = value * 16 + digit;
		s->at++;
	}
	return value;
}

static bool
scan_unicode_escape(Scan *s)
{
	int			code = scan_hex4(s);

	if (code < 0)
		return unexpected(s, "expected four hexadecimal digits");
	if (code == 0)
		return refuse(s, JSON_NUL, "\\u0000 cannot be stored");
	if (code >= 0xDC00 && code <= 0xDFFF)
		return refuse(s, JSON_BAD, "low surrogate without a high one");
	if (code < 0xD800 || code > 0xDBFF)
		return true;
	if (s->end - s->at < 2 || s->at[0] != '\\' || s->at[1] != 'u')
		return refuse(s, JSON_BAD, "high surrogate without a low one");
	s->at += 2;
	code = scan_hex4(s);
	if (code < 0xDC00 || code > 0xDFFF)
		return refuse(s, JSON_BAD, "high surrogate without a low one");
	return true;
}

static bool
scan_escape(Scan *s)
{
	int			c = peek(s);

	if (c <= 0 || !strchr("\"\\/bfnrtu", c))
		return unexpected(s, "invalid escape sequence");
	s->at++;
	return c != 'u' || scan_unicode_escape(s);
}

static bool
scan_string(Scan *s)
{
	if (peek(s) != '"')
		return unexpected(s, "expected a string");
	s->at++;
	while (s->at < s->end)
	{
		unsigned char c = (unsigned char) *s->at;
		int			n;

		if (c == '"')
		{
			s->at++;
			return true;
		}
		if (c == '\\')
		{
			s->at++;
			if (!scan_escape(s))
				return false;
			continue;
		}
		n = utf8_char(s->at, (size_t) (s->end - s->at));
		if (c < 0x20 || n == 0)
			return unexpected(s, "control character in a string");
		s->at += n;
	}
	return refuse(s, JSON_BAD, "unexpected end in a string");
}

static int
scan_digits(Scan *s)
{
	const char *first = s->at;

	while (s->at < s->end && *s->at >= '0' && *s->at <= '9' && s->at - first <= JSON_MAX_NUMBER)
		s->at++;
	return (int) (s->at - first);
}

/*
 * Counts the bytes that a number gains: jsonb prints 1e5 as 100000 and 1e-5 as
 * 0.00001. length: without the sign.
 */
static void
count_number(Scan *s, int whole, int fraction, int exponent, size_t length)
{
	int			before = whole + exponent;
	int			after = fraction - exponent;
	size_t		printed = (size_t) (before > 1 ? before : 1) + (size_t) (after > 0 ? after + 1 : 0);

	if (printed > length)
		s->extra += printed - length;
}

static bool
scan_exponent(Scan *s, int *exponent)
{
	bool		minus = false;
	int			digits = 0;

	s->at++;
	if (peek(s) == '+' || peek(s) == '-')
		minus = *s->at++ == '-';
	while (peek(s) >= '0' && peek(s) <= '9' && digits++ < JSON_MAX_NUMBER)
	{
		if (*exponent <= JSON_MAX_EXPONENT)
			*exponent = *exponent * 10 + (*s->at - '0');
		s->at++;
	}
	if (digits == 0)
		return unexpected(s, "expected digits");
	if (*exponent > JSON_MAX_EXPONENT)
		return refuse(s, JSON_TOO_LARGE, "exponent too large");
	if (minus)
		*exponent = -*exponent;
	return true;
}

static bool
scan_number(Scan *s)
{
	const char *first = s->at;
	bool		minus = peek(s) == '-';
	int			whole;
	int			fraction = 0;
	int			exponent = 0;

	s->at += minus;
	whole = peek(s) == '0' ? (s->at++, 1) : scan_digits(s);
	if (whole == 0)
		return unexpected(s, "expected digits");
	if (peek(s) == '.')
	{
		s->at++;
		fraction = scan_digits(s);
		if (fraction == 0)
			return unexpected(s, "expected digits");
	}
	if ((peek(s) == 'e' || peek(s) == 'E') && !scan_exponent(s, &exponent))
		return false;
	if (s->at - first > JSON_MAX_NUMBER)
		return refuse(s, JSON_TOO_LARGE, "number too long");
	count_number(s, whole, fraction, exponent, (size_t) (s->at - first) - minus);
	return true;
}

static bool
scan_word(Scan *s, const char *word)
{
	size_t		len = strlen(word);

	if ((size_t) (s->end - s->at) < len || memcmp(s->at, word, len) != 0)
		return unexpected(s, "expected a value");
	s->at += len;
	return true;
}

static bool
scan_scalar(Scan *s)
{
	int			c = peek(s);

	if (c == '"')
		return scan_string(s);
	if (c == '-' || (c >= '0' && c <= '9'))
		return scan_number(s);
	if (c == 't')
		return scan_word(s, "true");
	if (c == 'f')
		return scan_word(s, "false");
	if (c == 'n')
		return scan_word(s, "null");
	return unexpected(s, "expected a value");
}

static bool
scan_key(Scan *s)
{
	skip_space(s);
	if (!scan_string(s))
		return false;
	skip_space(s);
	if (peek(s) != ':')
		return unexpected(s, "expected \":\"");
	s->at++;
	return true;
}

static bool
in_object(const Scan *s)
{
	return (s->objects >> (s->depth - 1)) & 1;
}

/* Opens a level. *empty: it was closed at once. */
static bool
open_level(Scan *s, bool object, bool *empty)
{
	if (s->depth == JSON_MAX_DEPTH)
		return refuse(s, JSON_TOO_DEEP, "nested too deeply");
	s->at++;
	s->depth++;
	s->objects &= ~((uint64_t) 1 << (s->depth - 1));
	s->objects |= (uint64_t) object << (s->depth - 1);
	skip_space(s);
	*empty = peek(s) == (object ? '}' : ']');
	if (!*empty)
		return !object || scan_key(s);
	s->at++;
	s->depth--;
	return true;
}

/* Closes the levels that end after a value, up to a comma or level outer. */
static bool
close_levels(Scan *s, int outer)
{
	while (s->depth > outer)
	{
		bool		object = in_object(s);

		skip_space(s);
		if (peek(s) == ',')
		{
			s->at++;
			return !object || scan_key(s);
		}
		if (peek(s) != (object ? '}' : ']'))
			return unexpected(s, object ? "expected \",\" or \"}\"" : "expected \",\" or \"]\"");
		s->at++;
		s->depth--;
	}
	return true;
}

/* Scans one value with all its levels. */
static bool
scan_value(Scan *s)
{
	int			outer = s->depth;

	do
	{
		bool		closed = true;

		skip_space(s);
		if (peek(s) == '{' || peek(s) == '[')
		{
			if (!open_level(s, *s->at == '{', &closed))
				return false;
		}
		else if (!scan_scalar(s))
			return false;
		if (closed && !close_levels(s, outer))
			return false;
	} while (s->depth > outer);
	return true;
}

JsonResult
json_check(const char *s, size_t len, size_t max_bytes, JsonError *error)
{
	Scan		scan = {0};

	scan.start = scan.at = s;
	scan.end = s + len;
	skip_space(&scan);
	if (scan.at == scan.end)
		refuse(&scan, JSON_EMPTY, "nothing but white space");
	else if (scan_value(&scan))
	{
		skip_space(&scan);
		if (scan.at < scan.end)
			unexpected(&scan, "something follows the value");
		else if (len > max_bytes || scan.extra > max_bytes - len)
			refuse(&scan, JSON_TOO_LARGE, "numbers too long when written out");
	}
	if (error)
		*error = scan.error;
	return scan.result;
}

bool
json_find(const char *s, size_t len, const char *key, const char **value, size_t *value_len)
{
	Scan		scan = {0};
	size_t		key_len = strlen(key);
	bool		found = false;

	scan.start = scan.at = s;
	scan.end = s + len;
	skip_space(&scan);
	if (peek(&scan) != '{')
		return false;
	scan.depth = 1;				/* values may nest one level less */
	do
	{
		const char *name;
		bool		same;

		scan.at++;				/* brace or comma */
		skip_space(&scan);
		name = scan.at + 1;
		if (!scan_key(&scan))
			return found;
		same = (size_t) (scan.end - name) > key_len && memcmp(name, key, key_len) == 0 &&
			name[key_len] == '"';
		skip_space(&scan);
		name = scan.at;
		if (!scan_value(&scan))
			return found;
		if (same)
		{
			*value = name;
			*value_len = (size_t) (scan.at - name);
			found = true;
		}
		skip_space(&scan);
	} while (peek(&scan) == ',');
	return found;
}
