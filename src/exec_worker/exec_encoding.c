/*
 * exec_encoding.c
 *	  Converts text and JSON between a tool (UTF-8) and the database encoding.
 *
 * The helper sends valid UTF-8 without NUL, and JSON that json_check() accepts:
 * the one check of its syntax and bounds.  The bytes of text are checked again,
 * because invalid ones in a row would break every dump.  A character that the
 * database can't store becomes '?', so the conversion of text fails only by its length.
 * The conversion of JSON is exact or fails, except for errors that a tool reports.
 */
#include "jobq.h"

#include "access/xact.h"
#include "catalog/namespace.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "base/subtransaction.h"
#include "exec_worker/exec_internal.h"

/* Replaces each byte that is invalid in the encoding by '?'. */
static char *
only_valid(int encoding, const char *data, int len)
{
	char	   *out = palloc(len + 1);
	int			to = 0;
	int			from = 0;

	while (from < len)
	{
		int			good = pg_encoding_verifymbstr(encoding, data + from, len - from);

		memcpy(out + to, data + from, good);
		to += good;
		from += good;
		if (from < len)
		{
			out[to++] = '?';
			from++;
		}
	}
	out[to] = '\0';
	return out;
}

/* Converts UTF-8 to another encoding, with '?' for characters it lacks. */
static char *
convert_lossy(Oid proc, const char *data, int len)
{
	int			encoding = GetDatabaseEncoding();
	int			to = 0;
	int			space;
	char	   *out;

	/* an error of the data, which replaces the result */
	if (len > (int) ((MaxAllocSize - 1) / MAX_CONVERSION_GROWTH))
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("%d bytes are too long to convert to encoding %s", len,
						pg_encoding_to_char(encoding))));
	space = len * MAX_CONVERSION_GROWTH + 1;
	out = palloc(space);
	while (len > 0)
	{
		int			good = pg_do_encoding_conversion_buf(proc, PG_UTF8, encoding,
														 (unsigned char *) unconstify(char *, data),
														 len, (unsigned char *) out + to,
														 space - to, true);

		to += (int) strlen(out + to);
		data += good;
		len -= good;
		if (len > 0)
		{
			int			skip = Min(pg_utf_mblen((const unsigned char *) data), len);

			out[to++] = '?';
			data += skip;
			len -= skip;
		}
	}
	out[to] = '\0';
	return out;
}

/*
 * Returns palloc'd text, valid in the database encoding.  Runs in a
 * transaction.
 */
char *
text_from_utf8(const char *data, int len)
{
	int			encoding = GetDatabaseEncoding();
	char	   *valid = only_valid(PG_UTF8, data, len);
	Oid			proc;

	if (encoding == PG_UTF8 || encoding == PG_SQL_ASCII)
		return valid;
	proc = FindDefaultConversionProc(PG_UTF8, encoding);
	if (!OidIsValid(proc))
		return only_valid(encoding, valid, (int) strlen(valid));
	return convert_lossy(proc, valid, (int) strlen(valid));
}

char *
utf8_from_text(const char *text)
{
	return pg_server_to_any(text, (int) strlen(text), PG_UTF8);
}

/* Reads "\\u" with four digits at text, which ends in a NUL. false: none. */
static bool
unicode_escape(const char *text, unsigned int *code)
{
	return text[0] == '\\' && text[1] == 'u' && strspn(text + 2, "0123456789abcdefABCDEF") >= 4 &&
		sscanf(text + 2, "%4x", code) == 1;
}

/*
 * Replaces escapes of characters beyond ASCII by the characters: jsonb_in
 * can't convert escapes to every encoding.
 */
static char *
without_escapes(const char *data, int len)
{
	char	   *text = pnstrdup(data, len);
	char	   *out = palloc(len + 1);
	int			to = 0;

	while (*text)
	{
		unsigned int code;
		unsigned int low;

		if (!unicode_escape(text, &code) || code < 0x80)
		{
			/* the escaped character may be a backslash */
			if (text[0] == '\\' && text[1])
				out[to++] = *text++;
			out[to++] = *text++;
			continue;
		}
		text += 6;
		if (is_utf16_surrogate_first(code) && unicode_escape(text, &low))
		{
			code = surrogate_pair_to_codepoint(code, low);
			text += 6;
		}
		unicode_to_utf8(code, (unsigned char *) out + to);
		to += pg_utf_mblen((unsigned char *) out + to);
	}
	out[to] = '\0';
	return out;
}

typedef struct Parsing
{
	const char *data;
	int			len;
	int			encoding;
	Jsonb	   *result;
} Parsing;

static void
parse(void *arg)
{
	Parsing    *p = arg;
	char	   *text = pg_any_to_server(pnstrdup(p->data, p->len), p->len, p->encoding);

	p->result = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(text)));
}

/* Returns NULL and *why if jsonb refuses the text.  Runs in a transaction. */
static Jsonb *
parse_json(const char *data, int len, int encoding, char **why)
{
	Parsing		parsing = {data, len, encoding, NULL};
	ErrorData  *error = try_subtransaction(parse, &parsing);

	*why = NULL;
	if (error == NULL)
		return parsing.result;
	*why = error->detail ? psprintf("%s: %s", error->message, error->detail) : error->message;
	return NULL;
}

Jsonb *
json_from_utf8(const char *data, int len, char **why)
{
	return parse_json(data, len, PG_UTF8, why);
}

Jsonb *
json_from_utf8_lossy(const char *data, int len, char **why)
{
	char	   *text = without_escapes(data, len);

	text = text_from_utf8(text, (int) strlen(text));
	return parse_json(text, (int) strlen(text), GetDatabaseEncoding(), why);
}
