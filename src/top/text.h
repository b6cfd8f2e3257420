/*
 * text.h
 *	  Text for a terminal: buffers, escapes, widths in columns.
 */
#ifndef JOBQ_TOP_TEXT_H
#define JOBQ_TOP_TEXT_H

#include <stdbool.h>
#include <stddef.h>

typedef struct Buf
{
	char	   *s;				/* ends with a zero byte */
	size_t		len;
	size_t		size;
} Buf;

extern void *mem_more(void *p, size_t size);	/* ends the program without memory */
extern char *text_copy(const char *s);
extern void buf_add(Buf *buf, const char *s, size_t len);
extern void buf_str(Buf *buf, const char *s);
extern void buf_printf(Buf *buf, const char *format,...) __attribute__((format(printf, 2, 3)));
extern void buf_clear(Buf *buf);

/* Reads the locale of the environment: call it first. */
extern void text_setup(void);

/* The columns of s with its escapes. */
extern int	text_width(const char *s);

/*
 * Appends s with control bytes, bytes that are no text and invisible
 * characters as \xNN, cut to width columns with "+" at the end (width < 0:
 * whole).  Returns its columns.
 */
extern int	text_put(Buf *buf, const char *s, int width);

/* Numbers as short texts; seconds and count may be "", for unknown: "-". */
extern const char *text_duration(const char *seconds);
extern const char *text_count(const char *count);

#endif
