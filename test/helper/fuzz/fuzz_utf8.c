/*
 * fuzz_utf8.c
 *	  Z3: the functions that repair text.  Their output is valid UTF-8 without
 *	  NUL, bounded, unchanged by a second call, and has equal beginnings for
 *	  texts with equal beginnings.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "helper.h"
#include "utf8.h"

int			LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
expect(bool ok)
{
	if (!ok)
		abort();
}

static void
check_clean(const char *in, size_t len)
{
	char	   *once = malloc(UTF8_CLEAN_MAX * len + 1);
	char	   *again = malloc(UTF8_CLEAN_MAX * UTF8_CLEAN_MAX * len + 1);
	bool		malformed;
	bool		nul;
	size_t		n = utf8_clean(once, in, len, &malformed, &nul);
	size_t		half = utf8_prefix(in, len, len / 2);
	size_t		m;

	expect(n <= UTF8_CLEAN_MAX * len && utf8_valid(once, n) && !memchr(once, 0, n));
	expect(n == utf8_clean(NULL, in, len, NULL, NULL));
	expect(malformed == !utf8_valid(in, len) && nul == (memchr(in, 0, len) != NULL));
	expect(utf8_clean(again, once, n, NULL, NULL) == n && memcmp(once, again, n) == 0);
	if (utf8_valid(in, half))
	{
		m = utf8_clean(again, in, half, NULL, NULL);
		expect(m <= n && memcmp(once, again, m) == 0);
	}
	free(once);
	free(again);
}

static void
check_escape(const char *in, size_t len, size_t max)
{
	char	   *once = malloc(max + 1);
	char	   *again = malloc(max + 1);
	size_t		n = utf8_escape_tail(once, max, in, len);
	size_t		i;

	expect(n <= max && n <= UTF8_ESCAPE_MAX * len && utf8_valid(once, n));
	for (i = 0; i < n; i++)
		expect((unsigned char) once[i] >= 0x20 || once[i] == '\n' || once[i] == '\t');
	expect(utf8_escape_tail(again, max, once, n) == n && memcmp(once, again, n) == 0);
	free(once);
	free(again);
}

/* Checks that the ring keeps the end of its input, for all pieces. */
static void
check_ring(const char *in, size_t len, size_t size)
{
	Ring		ring = {0};
	char	   *out = malloc(size + 1);
	size_t		at;
	size_t		n;

	ring.size = size;
	for (at = 0; at < len; at += size / 2 + 1)
		ring_add(&ring, in + at, len - at < size / 2 + 1 ? len - at : size / 2 + 1);
	n = ring_read(&ring, out);
	expect(ring.total == len && n <= len && n <= size && n + 3 >= (len < size ? len : size));
	expect(n == 0 || memcmp(out, in + len - n, n) == 0);
	free(out);
	free(ring.data);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 2)
		return 0;
	check_clean((const char *) data + 1, size - 1);
	check_escape((const char *) data + 1, size - 1, data[0]);
	check_escape((const char *) data + 1, size - 1, UTF8_ESCAPE_MAX * size);
	check_ring((const char *) data + 1, size - 1, data[0] % 64);
	return 0;
}
