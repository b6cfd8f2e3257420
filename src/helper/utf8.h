/*
 * utf8.h
 *	  Turns bytes of a tool into text that databases and terminals accept.
 */
#ifndef JOBQ_UTF8_H
#define JOBQ_UTF8_H

#include <stdbool.h>
#include <stddef.h>

#define UTF8_CLEAN_MAX	3		/* output bytes per input byte, at most */
#define UTF8_ESCAPE_MAX 4

/*
 * Returns the length (1..4) of the well-formed character at s, 0: none.  len >
 * 0.
 */
extern int	utf8_char(const char *s, size_t len);

/* Returns the length of the malformed part at s, for one U+FFFD. */
extern int	utf8_bad_span(const char *s, size_t len);
extern bool utf8_valid(const char *s, size_t len);

/*
 * Returns the length of the longest prefix of valid text that has at most max
 * bytes and splits no character.
 */
extern size_t utf8_prefix(const char *s, size_t len, size_t max);

/*
 * Replaces each malformed part by U+FFFD and drops NULs.  Returns the length,
 * at most UTF8_CLEAN_MAX * len.  out may be NULL to compute the length only.
 * malformed and nul (both may be NULL) report what was found.
 */
extern size_t utf8_clean(char *out, const char *in, size_t len, bool *malformed, bool *nul);

/*
 * Does the same for logs: control characters except tab and newline become
 * \xNN (C1: \u00NN), NUL too.  A text longer than max keeps its end; no
 * character or escape is split.
 */
extern size_t utf8_escape_tail(char *out, size_t max, const char *in, size_t len);

#endif
