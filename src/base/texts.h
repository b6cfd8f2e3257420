/*
 * texts.h
 *	  Bounds of texts that handlers and tools write, and what of them reaches the server's log.
 */
#ifndef JOBQ_TEXTS_H
#define JOBQ_TEXTS_H

#define JOBQ_MAX_TEXT		8192	/* error_msg, each text of error_details */
#define JOBQ_MAX_CODE		255		/* error_code */
#define JOBQ_MAX_DETAILS	(32 * 1024)		/* error_details, as stored */

/*
 * Cuts a text to JOBQ_MAX_TEXT bytes, whole characters and a note; returns a
 * shorter one, or NULL, as it is.
 */
extern char *bounded_text(char *text);

/*
 * Replaces details that are too large by {"truncated": true}, returns others
 * as they are.
 */
extern Jsonb *bounded_details(Jsonb *details);

/*
 * Cuts a code to JOBQ_MAX_CODE bytes, whole characters; returns a shorter one,
 * or NULL, as it is.
 */
extern char *bounded_code(char *code);

/* False for a LIKE pattern whose last character is an escape, which LIKE refuses. */
extern bool like_pattern_is_good(const char *pattern, int len);

/*
 * error_details of an error: detail, hint and context, cut, without
 * repetitions.
 */
extern Jsonb *details_of_error(const ErrorData *edata);

/*
 * Returns the text with control characters escaped, cut, for one line of the
 * log.
 */
extern char *log_text(const char *text);

#endif
