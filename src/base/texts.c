/*
 * texts.c
 *	  Bounds and escapes of texts that are not jobq's own: see texts.h.
 */
#include "jobq.h"

#include "mb/pg_wchar.h"

#include "base/errors.h"
#include "base/json_build.h"
#include "base/json_size.h"
#include "base/texts.h"

#define MAX_LOG_TEXT	(2 * JOBQ_MAX_TEXT) /* a message with such a text is logged whole */
#define MAX_CONTEXT		(64 * 1024) /* of a context that is read */
#define MAX_DETAILS_TEXT	(4 * JOBQ_MAX_DETAILS)	/* of details as they are written out: escapes, digits */

static char *
cut(char *text, int limit)
{
	size_t		len = text ? strlen(text) : 0;
	char	   *note;
	int			keep;

	if (len <= (size_t) limit)
		return text;
	note = psprintf(" [cut: %zu bytes in all]", len);
	keep = pg_mbcliplen(text, (int) Min(len, INT_MAX), limit - (int) strlen(note));
	return psprintf("%s%s", pnstrdup(text, keep), note);
}

char *
bounded_text(char *text)
{
	return cut(text, JOBQ_MAX_TEXT);
}

bool
like_pattern_is_good(const char *pattern, int len)
{
	int			escapes = 0;

	while (escapes < len && pattern[len - 1 - escapes] == '\\')
		escapes++;
	return escapes % 2 == 0;
}

char *
bounded_code(char *code)
{
	if (code == NULL || strlen(code) <= JOBQ_MAX_CODE)
		return code;
	return pnstrdup(code, pg_mbcliplen(code, (int) strlen(code), JOBQ_MAX_CODE));
}

/* JSON can't be cut. */
Jsonb *
bounded_details(Jsonb *details)
{
	JsonBuild	b;

	if (details == NULL || (VARSIZE(details) <= JOBQ_MAX_DETAILS && json_fits(details, MAX_DETAILS_TEXT)))
		return details;
	json_begin_object(&b);
	json_add_bool(&b, "truncated", true);
	return json_end_object(&b);
}

/* ---------- errors ---------- */

/* Cuts a text; returns NULL for one that only repeats the message. */
static char *
unless_message(const ErrorData *edata, char *text)
{
	if (text == NULL || (edata->message && strcmp(text, edata->message) == 0))
		return NULL;
	return bounded_text(text);
}

static bool
has_line(const StringInfo lines, const char *line, int len)
{
	for (const char *p = lines->data; *p != '\0';)
	{
		int			n = (int) strcspn(p, "\n");

		if (n == len && memcmp(p, line, len) == 0)
			return true;
		p += n + (p[n] == '\n');
	}
	return false;
}

/*
 * Returns the context with each line once: a recursion repeats its lines as
 * often as it is deep.  A line that is the message is left out, which has its
 * own column.
 */
static char *
context_of_error(const ErrorData *edata)
{
	const char *context = edata->context;
	StringInfoData lines;

	if (context == NULL)
		return NULL;
	initStringInfo(&lines);
	for (const char *p = context; *p != '\0' && p - context < MAX_CONTEXT && lines.len <= JOBQ_MAX_TEXT;)
	{
		int			n = (int) strcspn(p, "\n");
		bool		is_message = edata->message && strlen(edata->message) == (size_t) n &&
			memcmp(p, edata->message, n) == 0;

		if (n > 0 && !is_message && !has_line(&lines, p, n))
		{
			if (lines.len > 0)
				appendStringInfoChar(&lines, '\n');
			appendBinaryStringInfo(&lines, p, n);
		}
		p += n + (p[n] == '\n');
	}
	return bounded_text(lines.data);
}

Jsonb *
details_of_error(const ErrorData *edata)
{
	JsonBuild	b;

	json_begin_object(&b);
	json_add_string(&b, "detail", unless_message(edata, edata->detail));
	json_add_string(&b, "hint", unless_message(edata, edata->hint));
	json_add_string(&b, "context", context_of_error(edata));
	return json_end_object(&b);
}

/* ---------- the log ---------- */

char *
log_text(const char *text)
{
	StringInfoData line;

	initStringInfo(&line);
	for (const unsigned char *p = (const unsigned char *) cut(unconstify(char *, text), MAX_LOG_TEXT); *p != '\0';)
	{
		int			len = control_len(p);

		if (len == 0)
		{
			appendStringInfoChar(&line, (char) *p++);
			continue;
		}
		p += len;
		if (p[-1] == '\n' || p[-1] == '\r' || p[-1] == '\t')
			appendStringInfoString(&line, p[-1] == '\n' ? "\\n" : p[-1] == '\r' ? "\\r" : "\\t");
		else
			appendStringInfo(&line, "\\x%02x", p[-1]);
	}
	return line.data;
}
