/*
 * gzip.c
 *	  Packs replies, with zlib.
 *
 * The fastest level: a list of jobs or an overview of a thousand types becomes a
 * tenth within milliseconds.  Larger replies than MAX_BYTES would hold up the
 * loop, and go as they are.
 *
 * An event goes to hundreds of streams, so it is packed once.  A piece refers to
 * no bytes before it and ends at a byte (Z_FULL_FLUSH), so that pieces make one
 * reply in the order in which each stream sends them.  Their sums are combined
 * for its end.
 */
#include "gzip.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define MIN_BYTES	1400		/* of a packet */
#define MAX_BYTES	(1024 * 1024)
#define RAW			(-15)		/* windowBits: no header, no end */
#define WITH_HEADER	(15 + 16)

bool
header_lists(const char *header, const char *word)
{
	size_t		len = strlen(word);
	const char *c;

	for (c = header ? strstr(header, word) : NULL; c; c = strstr(c + len, word))
	{
		const char *end = c + len + strspn(c + len, " ");

		if ((c == header || c[-1] == ' ' || c[-1] == ',') && (*end == '\0' || *end == ',' || *end == ';'))
			return strncmp(end, ";q=0", 4) != 0 || strspn(end + 4, ".0") != strcspn(end + 4, ", ");
	}
	return false;
}

bool
gzip_is_taken(const Request *request)
{
	return header_lists(request->facts.accept_encoding, "gzip");
}

static char *
pack(const char *text, size_t len, int bits, int flush, size_t *packed_len)
{
	z_stream	z = {0};
	size_t		room;
	char	   *to;

	if (deflateInit2(&z, Z_BEST_SPEED, Z_DEFLATED, bits, 8, Z_DEFAULT_STRATEGY) != Z_OK)
	{
		log_line("out of memory");
		exit(1);
	}
	room = deflateBound(&z, len) + 16;	/* the mark of a flush */
	to = mem_grow(NULL, room);
	z.next_in = (Bytef *) text;
	z.avail_in = (uInt) len;
	z.next_out = (Bytef *) to;
	z.avail_out = (uInt) room;
	deflate(&z, flush);
	*packed_len = room - z.avail_out;
	deflateEnd(&z);
	return to;
}

void
gzip_reply(Request *request)
{
	Buf		   *body = &request->reply.body;
	char	   *packed;
	size_t		len;

	if (body->len < MIN_BYTES || body->len > MAX_BYTES)
		return;
	reply_header(request, "Vary", "Accept-Encoding");
	if (!gzip_is_taken(request))
		return;
	packed = pack(body->data, body->len, WITH_HEADER, Z_FINISH, &len);
	reply_header(request, "Content-Encoding", "gzip");
	buf_free(body);
	*body = (Buf) {.data = packed,.len = len,.cap = len};
}

char *
gzip_piece(const char *text, size_t len, size_t *packed_len, GzipSum *sum)
{
	char	   *packed = pack(text, len, RAW, Z_FULL_FLUSH, packed_len);

	sum->crc = (uint32_t) crc32(crc32(0, NULL, 0), (const Bytef *) text, (uInt) len);
	sum->len = (uint32_t) len;
	return packed;
}

void
gzip_add(GzipSum *sum, GzipSum piece)
{
	sum->crc = (uint32_t) crc32_combine(sum->crc, piece.crc, piece.len);
	sum->len += piece.len;
}

/* An empty last block, the sum and the length, the low byte first. */
void
gzip_end(GzipSum sum, char *to)
{
	int			i;

	to[0] = 3;
	to[1] = 0;
	for (i = 0; i < 4; i++)
	{
		to[2 + i] = (char) (sum.crc >> 8 * i);
		to[6 + i] = (char) (sum.len >> 8 * i);
	}
}
