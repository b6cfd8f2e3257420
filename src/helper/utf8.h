/*
 * utf8.h
 *	  Bytes that a tool wrote, made into text that a database and a terminal can take.
 */
#ifndef JOBQ_UTF8_H
#define JOBQ_UTF8_H

#include <stdbool.h>
#include <stddef.h>

#define UTF8_CLEAN_MAX	3		/* output bytes per input byte, at most */
#define UTF8_ESCAPE_MAX 4

/* Length of the well-formed character (1..4) that begins at s, 0: there is none.  len > 0. */
extern int	utf8_char(const char *s, size_t len);

/* How many bytes the first malformed part at s has: what one U+FFFD stands for. */
extern int	utf8_bad_span(const char *s, size_t len);
extern bool utf8_valid(const char *s, size_t len);

/* The longest prefix of valid text that is at most max bytes and cuts no character. */
extern size_t utf8_prefix(const char *s, size_t len, size_t max);

/*
 * Replaces each malformed part by U+FFFD and drops NULs; all else stays.  Returns the length, at most
 * UTF8_CLEAN_MAX * len; out may be NULL to learn it.  Says what it met (both may be NULL).
 */
extern size_t utf8_clean(char *out, const char *in, size_t len, bool *malformed, bool *nul);

/*
 * For logs: as utf8_clean, and control characters but tab and newline become \xNN (C1: \u00NN), NUL
 * too.  Keeps the end of the text when it is longer than max; never part of a character or escape.
 */
extern size_t utf8_escape_tail(char *out, size_t max, const char *in, size_t len);

#endif
