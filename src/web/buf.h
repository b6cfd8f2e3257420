/*
 * buf.h
 *	  Memory, growing texts, the log and the clock.
 *
 * Nothing here fails: without memory the program ends, and its supervisor
 * starts it again.  The limits of connections and bodies bound what it takes.
 */
#ifndef JOBQ_WEB_BUF_H
#define JOBQ_WEB_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NEVER			UINT64_MAX
#define MS				UINT64_C(1)
#define SECOND			UINT64_C(1000)

/* A text with a zero byte after its end; all zero: empty. */
typedef struct Buf
{
	char	   *data;			/* NULL: nothing was added yet */
	size_t		len;
	size_t		cap;
} Buf;

extern void *mem_zero(size_t size);
extern void *mem_grow(void *p, size_t size);
extern char *mem_text(const char *s);
extern char *mem_copy(const char *s, size_t len);

extern void buf_add(Buf *b, const void *s, size_t len);
extern void buf_text(Buf *b, const char *s);
extern void buf_printf(Buf *b, const char *format,...) __attribute__((format(printf, 2, 3)));
/* Adds a string of JSON; malformed UTF-8 becomes U+FFFD. */
extern void buf_json(Buf *b, const char *s, size_t len);
extern void buf_free(Buf *b);
/* Frees a text that holds a password. */
extern void buf_wipe(Buf *b);

/* Milliseconds of the monotonic clock. */
extern uint64_t now_ms(void);

extern void log_line(const char *format,...) __attribute__((format(printf, 1, 2)));

#endif
