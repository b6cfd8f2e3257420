/*
 * json_accepted.c
 *	  Prints texts that the JSON validator accepts, one a line in hexadecimal:
 *	  jsonb must accept each.  They come from a grammar and are then changed a
 *	  little, so that they are close to the limits.
 *	  json_accepted COUNT [SEED]
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"

#define ROOM 4096

static uint64_t seed = 1;
static char doc[ROOM];
static size_t used;

static uint32_t
dice(uint32_t sides)
{
	seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t) (seed >> 33) % sides;
}

static void
add(const char *s)
{
	size_t		n = strlen(s);

	if (used + n < ROOM)
	{
		memcpy(doc + used, s, n);
		used += n;
	}
}

static void
add_number(void)
{
	static const char *const parts[] = {"0", "-0", "7", "-12", "99999999999999999999", "0.5", "1.000", "-3.25"};
	static const char *const ends[] = {"", "", "e0", "E5", "e-7", "e+12", "e400", "e-400", "e308"};

	add(parts[dice(8)]);
	add(ends[dice(9)]);
}

static void
add_string(void)
{
	static const char *const parts[] = {"a", "\\n", "\\u00e4", "\\ud83d\\ude00", "\xC3\xA4", "\xF0\x9F\x98\x80", "\\\"", "\\/",
	"\\u0001", "\x7f", " ", "\\uFFFF", "\xED\x9F\xBF", "\xEF\xBF\xBF", "\\\\", "\\u0000", "\\ud800"};
	uint32_t	n = dice(5);

	add("\"");
	while (n-- > 0)
		add(parts[dice(dice(10) ? 15 : 17)]);
	add("\"");
}

static void
add_value(int depth)
{
	static const char *const words[] = {"true", "false", "null"};
	static const char *const gaps[] = {"", "", " ", "\n\t", "\r"};
	uint32_t	kind = dice(depth > 66 ? 3 : 6);
	bool		object = kind == 4;
	uint32_t	n = kind == 5 ? 1 : dice(4);

	add(gaps[dice(5)]);
	if (kind == 0)
		add(words[dice(3)]);
	else if (kind == 1)
		add_number();
	else if (kind == 2)
		add_string();
	else
	{
		add(object ? "{" : "[");
		while (n-- > 0)
		{
			if (object)
			{
				add_string();
				add(":");
			}
			add_value(depth + 1);
			add(n ? "," : "");
		}
		add(object ? "}" : "]");
	}
	add(gaps[dice(5)]);
}

static void
damage(void)
{
	uint32_t	n = dice(3);

	while (n-- > 0 && used > 0)
		doc[dice((uint32_t) used)] = (char) (dice(2) ? "{}[]\",:\\0eE+-.u "[dice(16)] : (int) dice(256));
}

int
main(int argc, char **argv)
{
	long		count = argc > 1 ? atol(argv[1]) : 100000;
	long		refused = 0;
	size_t		i;

	seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	while (count > 0)
	{
		used = 0;
		add_value(0);
		damage();
		if (json_check(doc, used, ROOM, NULL) != JSON_OK)
		{
			refused++;
			continue;
		}
		for (i = 0; i < used; i++)
			printf("%02x", (unsigned char) doc[i]);
		putchar('\n');
		count--;
	}
	fprintf(stderr, "%ld texts were refused\n", refused);
	return 0;
}
