/*
 * gzip.h
 *	  Replies in gzip, for clients that take it.
 */
#ifndef JOBQ_WEB_GZIP_H
#define JOBQ_WEB_GZIP_H

#include "http.h"

/* True if a header that is a list names the word, and not with q=0. */
extern bool header_lists(const char *header, const char *word);

/* True if the client takes gzip. */
extern bool gzip_is_taken(const Request *request);
/* Packs the body of the reply, if that is worth it. */
extern void gzip_reply(Request *request);

/*
 * A reply of pieces that are packed once for many streams: this beginning, the
 * pieces in any order, the end.
 */
#define GZIP_BEGIN		"\x1f\x8b\x08\0\0\0\0\0\0\xff"
#define GZIP_BEGIN_LEN	10
#define GZIP_END_LEN	10

typedef struct GzipSum
{
	uint32_t	crc;
	uint32_t	len;			/* of what was packed */
} GzipSum;

/* Packs a piece, and sets its sum. */
extern char *gzip_piece(const char *text, size_t len, size_t *packed_len, GzipSum *sum);
/* Adds the sum of the next piece to that of a reply. */
extern void gzip_add(GzipSum *sum, GzipSum piece);
extern void gzip_end(GzipSum sum, char *to);

#endif
