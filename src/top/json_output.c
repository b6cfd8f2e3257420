/*
 * json_output.c
 *	  The output of --json.
 *
 * The server makes the JSON of each part.  DEL and the control characters of
 * C1, which JSON allows in a string and a terminal may obey, are escaped here.
 * A database of encoding SQL_ASCII may hold bytes that are no UTF-8: each
 * becomes U+FFFD.
 */
#include "top/json_output.h"

#include <stdlib.h>
#include <string.h>

#include "helper/utf8.h"
#include "top/feed.h"
#include "top/link.h"

/* Appends JSON in one line, with control characters escaped. */
static void
put_json(Buf *out, const char *json)
{
	size_t		len = strlen(json);
	char	   *clean = mem_more(NULL, UTF8_CLEAN_MAX * len + 1);

	len = utf8_clean(clean, json, len, NULL, NULL);
	for (size_t i = 0; i < len; i++)
	{
		unsigned char c = (unsigned char) clean[i];
		unsigned char c1 = c == 0xc2 && i + 1 < len ? (unsigned char) clean[i + 1] : 0;

		if (c == 0x7f)
			buf_str(out, "\\u007f");
		else if (c == '\n')
			buf_str(out, " ");
		else if (c1 >= 0x80 && c1 < 0xa0)
		{
			buf_printf(out, "\\u%04x", c1);
			i++;
		}
		else
			buf_add(out, clean + i, 1);
	}
	free(clean);
}

/* Appends a text as a JSON string. */
static void
put_string(Buf *out, const char *s)
{
	static Buf	json;

	buf_clear(&json);
	buf_str(&json, "\"");
	for (; *s; s++)
	{
		if ((unsigned char) *s < 0x20)
			buf_printf(&json, "\\u%04x", *s);
		else
			buf_printf(&json, "%s%c", *s == '"' || *s == '\\' ? "\\" : "", *s);
	}
	buf_str(&json, "\"");
	put_json(out, json.s);
}

/* The parts that could not be read, with their reasons. */
static void
put_unavailable(Buf *out)
{
	const char *comma = "";

	buf_str(out, ", \"unavailable\": {");
	for (int id = 0; id < N_ROUND; id++)
	{
		const Part *part = feed_part(id);

		if (!part->error)
			continue;
		buf_printf(out, "%s\"%s\": {\"sqlstate\": \"%s\", \"message\": ", comma, part_names[id], part->sqlstate);
		put_string(out, part->error);
		buf_str(out, "}");
		comma = ", ";
	}
	buf_str(out, "}");
}

void
json_output(Buf *out)
{
	buf_str(out, "{\"place\": ");
	put_string(out, link_place());
	for (int id = 0; id < N_ROUND; id++)
	{
		buf_printf(out, ", \"%s\": ", part_names[id]);
		put_json(out, part_rows(id) > 0 ? part_value(id, 0, PART_JSON) : "null");
	}
	put_unavailable(out);
	buf_str(out, "}\n");
}
