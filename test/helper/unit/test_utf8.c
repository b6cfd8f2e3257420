/*
 * test_utf8.c
 *	  Repair of text: known cases, and properties over random bytes.
 */
#include <stdint.h>
#include <stdlib.h>

#include "check.h"
#include "utf8.h"

#define FFFD "\xEF\xBF\xBD"

static bool
cleans_to(const char *in, size_t len, const char *want)
{
	char		out[256];
	size_t		n = utf8_clean(out, in, len, NULL, NULL);

	return n == strlen(want) && memcmp(out, want, n) == 0 && utf8_clean(NULL, in, len, NULL, NULL) == n;
}

static bool
escapes_to(const char *in, size_t len, size_t max, const char *want)
{
	char		out[256];
	size_t		n = utf8_escape_tail(out, max, in, len);

	return n == strlen(want) && memcmp(out, want, n) == 0;
}

#define CLEANS(in, want) cleans_to(in, sizeof(in) - 1, want)
#define ESCAPES(in, max, want) escapes_to(in, sizeof(in) - 1, max, want)

static void
test_valid(void)
{
	CHECK(utf8_valid("", 0) && utf8_valid("a\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80", 10), "one to four bytes");
	CHECK(!utf8_valid("\xC0\x80", 2) && !utf8_valid("\xE0\x9F\xBF", 3) && !utf8_valid("\xF0\x8F\xBF\xBF", 4),
		  "overlong forms");
	CHECK(utf8_valid("\xED\x9F\xBF", 3) && !utf8_valid("\xED\xA0\x80", 3) && !utf8_valid("\xED\xBF\xBF", 3),
		  "surrogates");
	CHECK(utf8_valid("\xF4\x8F\xBF\xBF", 4) && !utf8_valid("\xF4\x90\x80\x80", 4) && !utf8_valid("\xF5\x80\x80\x80", 4),
		  "beyond U+10FFFF");
	CHECK(!utf8_valid("\x80", 1) && !utf8_valid("\xFF", 1) && !utf8_valid("\xE2\x82", 2), "loose and missing bytes");
}

static void
test_clean(void)
{
	bool		malformed;
	bool		nul;
	char		out[16];

	CHECK(CLEANS("plain \xC3\xA4\n", "plain \xC3\xA4\n"), "valid text stays, newlines too");
	CHECK(CLEANS("a\0b\0", "ab"), "zero bytes are dropped");
	CHECK(CLEANS("a\xFFz", "a" FFFD "z"), "a bad byte is replaced");
	CHECK(CLEANS("\xE2\x82z", FFFD "z"), "the beginning of a character is one part");
	CHECK(CLEANS("\xF0\x9F\x98", FFFD), "also at the end");
	CHECK(CLEANS("\xE0\x80\x80", FFFD FFFD FFFD), "overlong: three parts");
	CHECK(CLEANS("\x1b[31m", "\x1b[31m"), "control characters are not its business");
	utf8_clean(out, "a\0", 2, &malformed, &nul);
	CHECK(!malformed && nul, "says that there was a zero byte");
	utf8_clean(out, "a\xFF", 2, &malformed, &nul);
	CHECK(malformed && !nul, "says that there was a bad byte");
}

static void
test_escape(void)
{
	CHECK(ESCAPES("a\tb\nc", 100, "a\tb\nc"), "tab and newline stay");
	CHECK(ESCAPES("\x1b[1m\r\x7f\0", 100, "\\x1b[1m\\x0d\\x7f\\x00"), "other control characters are shown");
	CHECK(ESCAPES("\xC2\x9B" "1m \xC2\xA0", 100, "\\u009b1m \xC2\xA0"), "the second set of them too");
	CHECK(ESCAPES("\xFF", 100, FFFD), "bad bytes are replaced");
	CHECK(ESCAPES("abcdef", 3, "def"), "the end is kept");
	CHECK(ESCAPES("a\xE2\x82\xAC", 2, ""), "a character is not cut");
	CHECK(ESCAPES("a\xE2\x82\xAC" "b", 4, "\xE2\x82\xAC" "b"), "but kept when it fits");
	CHECK(ESCAPES("\x01z", 4, "z"), "an escape is not cut either");
}

static void
test_prefix(void)
{
	CHECK(utf8_prefix("abc", 3, 10) == 3 && utf8_prefix("abc", 3, 2) == 2, "prefix");
	CHECK(utf8_prefix("a\xE2\x82\xAC", 4, 3) == 1 && utf8_prefix("a\xE2\x82\xAC", 4, 4) == 4, "cuts no character");
	CHECK(utf8_prefix("\xE2\x82\xAC", 3, 0) == 0, "of nothing");
}

static uint64_t seed = 99;

static void
fill(char *data, size_t len)
{
	static const unsigned char nasty[] = {0, 0x1b, '\n', '\\', 'x', 0x80, 0xBF, 0xC2, 0xE0, 0xED, 0xF0, 0xF4, 0xFF};
	size_t		i;

	for (i = 0; i < len; i++)
	{
		seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		data[i] = (char) (seed >> 60 < 10 ? nasty[(seed >> 33) % sizeof(nasty)] : seed >> 40);
	}
}

static void
test_properties(void)
{
	char		in[256];
	char		once[4 * 256];
	char		twice[4 * 256];
	bool		clean = true;
	bool		escape = true;
	int			i;

	for (i = 0; i < 100000; i++)
	{
		size_t		len = (size_t) i % sizeof(in);
		size_t		max = (size_t) (i / 7) % sizeof(once);
		size_t		a;
		size_t		b;

		fill(in, len);
		a = utf8_clean(once, in, len, NULL, NULL);
		clean &= a <= UTF8_CLEAN_MAX * len && utf8_valid(once, a) && !memchr(once, 0, a);
		b = utf8_clean(twice, once, a, NULL, NULL);
		clean &= a == b && memcmp(once, twice, a) == 0;
		a = utf8_escape_tail(once, max, in, len);
		escape &= a <= max && a <= UTF8_ESCAPE_MAX * len && utf8_valid(once, a) && !memchr(once, 0, a) &&
			!memchr(once, 0x1b, a);
		b = utf8_escape_tail(twice, max, once, a);
		escape &= a == b && memcmp(once, twice, a) == 0;
	}
	CHECK(clean, "100,000 random texts: cleaned they are valid, bounded, and stay as they are");
	CHECK(escape, "escaped too");
}

int
main(void)
{
	test_valid();
	test_clean();
	test_escape();
	test_prefix();
	test_properties();
	return done();
}
