/*
 * buf.c
 *	  Memory, growing texts, the log and the clock.
 */
#include "buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "helper/utf8.h"

#define MAX_LOG_LINE 1024

static void *
checked(void *p)
{
	if (p)
		return p;
	log_line("out of memory");
	exit(1);
}

void *
mem_zero(size_t size)
{
	return checked(calloc(1, size ? size : 1));
}

void *
mem_grow(void *p, size_t size)
{
	return checked(realloc(p, size));
}

char *
mem_copy(const char *s, size_t len)
{
	char	   *copy = mem_zero(len + 1);

	memcpy(copy, s, len);
	return copy;
}

char *
mem_text(const char *s)
{
	return mem_copy(s, strlen(s));
}

void
buf_add(Buf *b, const void *s, size_t len)
{
	if (b->len + len + 1 > b->cap)
	{
		b->cap = (b->len + len + 1) * 2;
		b->data = mem_grow(b->data, b->cap);
	}
	if (len > 0)
		memcpy(b->data + b->len, s, len);
	b->len += len;
	b->data[b->len] = '\0';
}

void
buf_text(Buf *b, const char *s)
{
	buf_add(b, s, strlen(s));
}

void
buf_printf(Buf *b, const char *format,...)
{
	va_list		args;
	int			n;

	va_start(args, format);
	n = vsnprintf(NULL, 0, format, args);
	va_end(args);
	if (n <= 0)
		return;
	buf_add(b, "", 0);
	if (b->len + (size_t) n + 1 > b->cap)
	{
		b->cap = (b->len + (size_t) n + 1) * 2;
		b->data = mem_grow(b->data, b->cap);
	}
	va_start(args, format);
	vsnprintf(b->data + b->len, (size_t) n + 1, format, args);
	va_end(args);
	b->len += (size_t) n;
}

void
buf_json(Buf *b, const char *s, size_t len)
{
	buf_add(b, "\"", 1);
	while (len > 0)
	{
		unsigned char c = (unsigned char) *s;
		int			n = utf8_char(s, len);

		if (n == 0)
		{
			n = utf8_bad_span(s, len);
			buf_text(b, "\xEF\xBF\xBD");
		}
		else if (c == '"' || c == '\\')
			buf_printf(b, "\\%c", c);
		else if (c < 0x20 || c == 0x7F)
			buf_printf(b, "\\u%04x", c);
		else
			buf_add(b, s, (size_t) n);
		s += n;
		len -= (size_t) n;
	}
	buf_add(b, "\"", 1);
}

void
buf_free(Buf *b)
{
	free(b->data);
	*b = (Buf) {0};
}

void
buf_wipe(Buf *b)
{
	if (b->data)
		explicit_bzero(b->data, b->cap);
	buf_free(b);
}

uint64_t
now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t) ts.tv_sec * 1000 + (uint64_t) ts.tv_nsec / 1000000;
}

/* Writes one line to standard error; what others sent is shown without control characters. */
void
log_line(const char *format,...)
{
	char		line[MAX_LOG_LINE];
	va_list		args;
	int			n = snprintf(line, sizeof(line), "jobq-web: ");
	int			i;

	va_start(args, format);
	n += vsnprintf(line + n, sizeof(line) - (size_t) n - 1, format, args);
	va_end(args);
	if (n > (int) sizeof(line) - 2)
		n = (int) sizeof(line) - 2;
	for (i = 0; i < n; i++)
	{
		if ((unsigned char) line[i] < 0x20 || line[i] == 0x7F)
			line[i] = ' ';
	}
	line[n++] = '\n';
	if (write(STDERR_FILENO, line, (size_t) n) < 0)
		return;					/* no other place to report it */
}
