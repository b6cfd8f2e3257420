/*
 * utf8.c
 *	  Checks and repairs UTF-8.
 *
 * Well-formed is table 3-7 of the Unicode standard, like pg_utf8_islegal.  A
 * malformed part is a "maximal subpart", as browsers replace it.
 */
#include "utf8.h"

#include <string.h>

static const char replacement[] = "\xEF\xBF\xBD";

/*
 * Returns the length of the character with lead byte c, 0: no lead byte.  *low
 * and *high: range of the second byte, which excludes overlong forms,
 * surrogates, and values beyond U+10FFFF.
 */
static int
lead(unsigned char c, unsigned char *low, unsigned char *high)
{
	*low = 0x80;
	*high = 0xBF;
	if (c < 0x80)
		return 1;
	if (c >= 0xC2 && c <= 0xDF)
		return 2;
	if (c >= 0xE0 && c <= 0xEF)
	{
		if (c == 0xE0)
			*low = 0xA0;
		if (c == 0xED)
			*high = 0x9F;
		return 3;
	}
	if (c >= 0xF0 && c <= 0xF4)
	{
		if (c == 0xF0)
			*low = 0x90;
		if (c == 0xF4)
			*high = 0x8F;
		return 4;
	}
	return 0;
}

/*
 * Returns the number of bytes at s that fit a character.  *want: its full
 * length (0: no lead byte).
 */
static int
fitting(const char *s, size_t len, int *want)
{
	unsigned char low;
	unsigned char high;
	int			n = 1;

	*want = lead((unsigned char) s[0], &low, &high);
	while (n < *want && (size_t) n < len)
	{
		unsigned char c = (unsigned char) s[n];

		if (c < low || c > high)
			break;
		low = 0x80;
		high = 0xBF;
		n++;
	}
	return n;
}

int
utf8_char(const char *s, size_t len)
{
	int			want;
	int			n = fitting(s, len, &want);

	return n == want ? n : 0;
}

int
utf8_bad_span(const char *s, size_t len)
{
	int			want;

	return fitting(s, len, &want);
}

bool
utf8_valid(const char *s, size_t len)
{
	size_t		i = 0;

	while (i < len)
	{
		int			n = utf8_char(s + i, len - i);

		if (n == 0)
			return false;
		i += (size_t) n;
	}
	return true;
}

size_t
utf8_prefix(const char *s, size_t len, size_t max)
{
	if (len <= max)
		return len;
	while (max > 0 && ((unsigned char) s[max] & 0xC0) == 0x80)
		max--;
	return max;
}

size_t
utf8_clean(char *out, const char *in, size_t len, bool *malformed, bool *nul)
{
	size_t		i = 0;
	size_t		used = 0;

	if (malformed)
		*malformed = false;
	if (nul)
		*nul = false;
	while (i < len)
	{
		int			n = utf8_char(in + i, len - i);

		if (n == 0)
		{
			if (out)
				memcpy(out + used, replacement, 3);
			used += 3;
			i += (size_t) utf8_bad_span(in + i, len - i);
			if (malformed)
				*malformed = true;
			continue;
		}
		if (in[i] == '\0')
		{
			if (nul)
				*nul = true;
		}
		else
		{
			if (out)
				memcpy(out + used, in + i, (size_t) n);
			used += (size_t) n;
		}
		i += (size_t) n;
	}
	return used;
}

static int
hex_escape(char *unit, const char *prefix, unsigned char byte)
{
	static const char digits[] = "0123456789abcdef";
	int			n = (int) strlen(prefix);

	memcpy(unit, prefix, (size_t) n);
	unit[n++] = digits[byte >> 4];
	unit[n++] = digits[byte & 15];
	return n;
}

/*
 * Writes the escape of the first character (or malformed part) of in.  *eaten:
 * the bytes consumed.
 */
static int
escape_unit(char *unit, const char *in, size_t len, int *eaten)
{
	unsigned char c = (unsigned char) in[0];

	*eaten = utf8_char(in, len);
	if (*eaten == 0)
	{
		*eaten = utf8_bad_span(in, len);
		memcpy(unit, replacement, 3);
		return 3;
	}
	if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7F)
		return hex_escape(unit, "\\x", c);
	if (c == 0xC2 && (unsigned char) in[1] < 0xA0)
		return hex_escape(unit, "\\u00", (unsigned char) in[1]);
	memcpy(unit, in, (size_t) *eaten);
	return *eaten;
}

size_t
utf8_escape_tail(char *out, size_t max, const char *in, size_t len)
{
	char		unit[8];
	size_t		total = 0;
	size_t		used = 0;
	size_t		i;
	int			eaten;

	for (i = 0; i < len; i += (size_t) eaten)
		total += (size_t) escape_unit(unit, in + i, len - i, &eaten);
	for (i = 0; i < len; i += (size_t) eaten)
	{
		int			n = escape_unit(unit, in + i, len - i, &eaten);

		if (total <= max)
		{
			memcpy(out + used, unit, (size_t) n);
			used += (size_t) n;
		}
		else
			total -= (size_t) n;
	}
	return used;
}
