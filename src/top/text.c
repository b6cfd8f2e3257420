/*
 * text.c
 *	  Text for a terminal: buffers, escapes, widths in columns.
 *
 * All text of the database comes as UTF-8 and may hold anything.  Only
 * printable characters reach the terminal; in a locale other than UTF-8 only
 * those of ASCII.  Characters without a glyph that turn or hide text around
 * them are escaped, too.
 */
#include "top/text.h"

#include <langinfo.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <wchar.h>
#include <wctype.h>

static bool is_utf8;

void *
mem_more(void *p, size_t size)
{
	p = realloc(p, size);
	if (!p)
	{
		fputs("jobq-top: out of memory\n", stderr);
		exit(3);
	}
	return p;
}

char *
text_copy(const char *s)
{
	size_t		size = strlen(s) + 1;

	return memcpy(mem_more(NULL, size), s, size);
}

void
buf_add(Buf *buf, const char *s, size_t len)
{
	if (buf->len + len + 1 > buf->size)
	{
		buf->size = 2 * buf->size + len + 256;
		buf->s = mem_more(buf->s, buf->size);
	}
	memcpy(buf->s + buf->len, s, len);
	buf->len += len;
	buf->s[buf->len] = '\0';
}

void
buf_str(Buf *buf, const char *s)
{
	buf_add(buf, s, strlen(s));
}

void
buf_printf(Buf *buf, const char *format,...)
{
	va_list		args;
	char	   *s;
	int			len;

	va_start(args, format);
	len = vasprintf(&s, format, args);
	va_end(args);
	if (len < 0)
		return;
	buf_add(buf, s, (size_t) len);
	free(s);
}

void
buf_clear(Buf *buf)
{
	buf->len = 0;
	buf_add(buf, "", 0);
}

void
text_setup(void)
{
	setlocale(LC_CTYPE, "");
	is_utf8 = strcasecmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

/* True for characters without a glyph that turn or hide others. */
static bool
is_hidden(wchar_t c)
{
	return (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
		(c >= 0x2060 && c <= 0x206f) || c == 0xfeff || c == 0xad || c == 0x061c;
}

/* Takes one character off *s into out; returns its columns. */
static int
next_glyph(const char **s, char out[8])
{
	unsigned char first = (unsigned char) **s;
	wchar_t		c = (wchar_t) first;
	size_t		n = 1;
	int			width = first >= 0x20 && first < 0x7f ? 1 : -1;

	if (is_utf8 && first >= 0x80)
	{
		mbstate_t	state = {0};

		n = mbrtowc(&c, *s, strlen(*s), &state);
		if (n > 0 && n <= 4 && !is_hidden(c) && iswprint((wint_t) c))
			width = wcwidth(c);
	}
	if (width < 0)
	{
		*s += 1;
		return snprintf(out, 8, "\\x%02x", first);
	}
	memcpy(out, *s, n);
	out[n] = '\0';
	*s += n;
	return width;
}

int
text_width(const char *s)
{
	char		glyph[8];
	int			width = 0;

	while (*s)
		width += next_glyph(&s, glyph);
	return width;
}

int
text_put(Buf *buf, const char *s, int width)
{
	char		glyph[8];
	int			used = 0;
	bool		cut = width >= 0 && text_width(s) > width;

	if (cut && width == 0)
		return 0;
	while (*s)
	{
		int			n = next_glyph(&s, glyph);

		if (cut && used + n > width - 1)
		{
			buf_str(buf, "+");
			return used + 1;
		}
		buf_str(buf, glyph);
		used += n;
	}
	return used;
}

const char *
text_duration(const char *seconds)
{
	static char text[32];
	double		s = strtod(seconds, NULL);

	if (!*seconds)
		return "-";
	if (s < 100)
		snprintf(text, sizeof(text), "%.0fs", s);
	else if (s < 100 * 60)
		snprintf(text, sizeof(text), "%.0fm", s / 60);
	else if (s < 48 * 3600)
		snprintf(text, sizeof(text), "%.0fh", s / 3600);
	else
		snprintf(text, sizeof(text), "%.0fd", s / 86400);
	return text;
}

const char *
text_count(const char *count)
{
	static char text[32];
	double		n = strtod(count, NULL);

	if (!*count)
		return "-";
	if (n < 10e3)
		snprintf(text, sizeof(text), "%.0f", n);
	else if (n < 10e6)
		snprintf(text, sizeof(text), "%.1fk", n / 1e3);
	else
		snprintf(text, sizeof(text), "%.1fM", n / 1e6);
	return text;
}
