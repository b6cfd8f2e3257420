/*
 * arguments.c
 *	  Reads and checks the arguments of a call, as the table of routes has them.
 *
 * An argument that the table does not list is an error, not ignored.  Numbers,
 * ids and booleans are checked here, so that the error names the argument; the
 * server checks intervals and times, and the functions all values.
 */
#include "arguments.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "problem.h"

#define DEFAULT_LIMIT	50
#define MAX_LIMIT		200
#define MAX_OFFSET		10000
#define MAX_NUMBER		1e38	/* of real, the smallest type of an argument */
#define MAX_CURSOR		512

const char *
arg_words(ArgType type)
{
	switch (type)
	{
		case ARG_ACTION:
			return "\"cancel\",\"retry\",\"purge\"";
		case ARG_LEVEL:
			return "\"debug\",\"info\",\"warning\",\"error\"";
		case ARG_SEVERITY:
			return "\"warning\",\"high\"";
		case ARG_SCHEDULE_STATUS:
			return "\"active\",\"paused\",\"finished\"";
		case ARG_KIND:
			return "\"sql\",\"exec\",\"pull\",\"workflow\"";
		default:
			return NULL;
	}
}

/* What a value in a body must begin with. */
static const char *
json_starts(ArgType type)
{
	switch (type)
	{
		case ARG_INT:
		case ARG_BIGINT:
		case ARG_NUMBER:
		case ARG_LIMIT:
		case ARG_OFFSET:
			return "-0123456789";
		case ARG_BOOL:
			return "tf";
		case ARG_TEXTS:
		case ARG_JSONS:
		case ARG_UUIDS:
			return "[";
		case ARG_JSON:
			return NULL;
		default:
			return "\"";
	}
}

static const char *
json_word(ArgType type)
{
	const char *starts = json_starts(type);

	return !starts ? "JSON" : *starts == '-' ? "a number" : *starts == 't' ? "true or false" :
		*starts == '[' ? "an array" : "a string";
}

static bool
is_uuid(const char *s, size_t len)
{
	size_t		i;

	for (i = 0; i < len; i++)
	{
		bool		dash = i == 8 || i == 13 || i == 18 || i == 23;

		if (dash ? s[i] != '-' : !strchr("0123456789abcdefABCDEF", s[i]))
			return false;
	}
	return len == 36;
}

/* True if the text is an integer, and in this range. */
static bool
is_int(const char *s, long long from, long long to)
{
	const char *digits = *s == '-' ? s + 1 : s;
	long long	n;

	if (*digits == '\0' || digits[strspn(digits, "0123456789")] != '\0')
		return false;
	errno = 0;
	n = strtoll(s, NULL, 10);
	return errno == 0 && n >= from && n <= to;
}

static bool
is_cursor(const char *s)
{
	return strlen(s) <= MAX_CURSOR &&
		strspn(s, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-_") == strlen(s);
}

/* True if all elements are strings, of a UUID each. */
static bool
are_strings(const char *array, bool uuids)
{
	const char *end = array + strlen(array);
	JsonMember	m;

	while (json_element(&array, end, &m))
	{
		if (*m.value != '"' || (uuids && !is_uuid(m.value + 1, m.value_len - 2)))
			return false;
	}
	return true;
}

static bool
is_word(const char *bare, size_t len, const char *words)
{
	const char *word = words;

	while ((word = strchr(word, '"')) != NULL)
	{
		size_t		n = strcspn(word + 1, "\"");

		if (n == len && memcmp(word + 1, bare, n) == 0)
			return true;
		word += n + 2;
	}
	return false;
}

static bool
refuse(Call *call, const Arg *arg, const char *value, const char *what)
{
	size_t		quote = arg->place == IN_BODY && value[0] == '"';
	size_t		len = strlen(value) - 2 * quote;

	problem_argument(call->request, arg->name, "argument \"%s\": \"%.*s\" is %s %s", arg->name,
					 (int) (len < 60 ? len : 60), value + quote, arg_words(arg->type) ? "none of" : "not", what);
	return false;
}

static int
arg_named(const Call *call, const char *name, size_t len, ArgPlace place)
{
	int			i;

	for (i = 0; i < call->nargs; i++)
	{
		const Arg  *arg = &call->route->args[i];

		if (arg->place == place && strlen(arg->name) == len && memcmp(arg->name, name, len) == 0)
			return i;
	}
	return -1;
}

/*
 * Refuses what readers are shown in place of a hidden value: it would replace
 * the value.  Holders of a lease are shown all values.
 */
static bool
check_redacted(Call *call, const Arg *arg, const char *value)
{
	if (arg_named(call, "lease_token", 11, IN_BODY) >= 0 || !json_has_redacted(value, strlen(value), &web_config->redact))
		return true;
	problem_argument(call->request, arg->name, "argument \"%s\" has a value that was hidden (\"[redacted]\")", arg->name);
	return false;
}

/* Checks what the value says; bare: without the quotes of JSON. */
static bool
check_value(Call *call, const Arg *arg, const char *value)
{
	size_t		quote = arg->place == IN_BODY && value[0] == '"';
	const char *bare = value + quote;
	size_t		len = strlen(value) - 2 * quote;

	switch (arg->type)
	{
		case ARG_UUID:
			return is_uuid(bare, len) || refuse(call, arg, value, "a UUID");
		case ARG_INT:
			return is_int(bare, INT32_MIN, INT32_MAX) || refuse(call, arg, value, "an integer of 32 bits");
		case ARG_BIGINT:
			return is_int(bare, INT64_MIN, INT64_MAX) || refuse(call, arg, value, "an integer of 64 bits");
		case ARG_NUMBER:
			return (strtod(bare, NULL) <= MAX_NUMBER && strtod(bare, NULL) >= -MAX_NUMBER) ||
				refuse(call, arg, value, "a number of single precision");
		case ARG_LIMIT:
			call->limit = is_int(bare, 1, MAX_LIMIT) ? atoi(bare) : 0;
			return call->limit > 0 || refuse(call, arg, value, "in 1..200");
		case ARG_OFFSET:
			return is_int(bare, 0, MAX_OFFSET) || refuse(call, arg, value, "in 0..10000");
		case ARG_TEXTS:
			return are_strings(value, false) || refuse(call, arg, value, "an array of strings");
		case ARG_UUIDS:
			return are_strings(value, true) || refuse(call, arg, value, "an array of UUIDs");
		case ARG_BOOL:
			return strcmp(value, "true") == 0 || strcmp(value, "false") == 0 || refuse(call, arg, value, "true or false");
		case ARG_ACTION:
		case ARG_LEVEL:
		case ARG_SEVERITY:
		case ARG_SCHEDULE_STATUS:
		case ARG_KIND:
			return is_word(bare, len, arg_words(arg->type)) || refuse(call, arg, value, arg_words(arg->type));
		case ARG_CURSOR:
			return is_cursor(bare) || refuse(call, arg, value, "the next of a list");
		case ARG_JSON:
			if (arg->place == IN_BODY)
				return check_redacted(call, arg, value);
			return !json_problem(value, len, NULL) || refuse(call, arg, value, "JSON");
		default:
			return true;
	}
}

static bool
unknown(Call *call, const char *name, size_t len)
{
	char	   *word = mem_copy(name, len < 60 ? len : 60);

	problem_argument(call->request, word, "argument \"%s\" is unknown", word);
	free(word);
	return false;
}

static bool
take_path(Call *call)
{
	int			n = 0;
	int			i;

	for (i = 0; i < call->nargs; i++)
	{
		const Arg  *arg = &call->route->args[i];

		if (arg->place != IN_PATH)
			continue;
		call->given[i] = true;
		call->values[i] = mem_text(call->in_path[n++]);
		if (!check_value(call, arg, call->values[i]))
			return false;
	}
	return true;
}

static bool
take_query(Call *call)
{
	int			i;

	for (i = 0; i < call->query.count; i++)
	{
		const Parameter *p = &call->query.list[i];
		int			n = arg_named(call, p->name, strlen(p->name), IN_QUERY);

		if (n < 0)
			return unknown(call, p->name, strlen(p->name));
		if (*p->value == '\0' && call->route->args[n].type != ARG_TEXT)
			continue;			/* a form's empty field */
		call->given[n] = true;
		call->values[n] = mem_text(p->value);
		if (!check_value(call, &call->route->args[n], p->value))
			return false;
	}
	return true;
}

static bool
take_member(Call *call, const JsonMember *member)
{
	int			n = arg_named(call, member->name, member->name_len, IN_BODY);
	const Arg  *arg;
	const char *starts;

	if (n < 0)
		return unknown(call, member->name, member->name_len);
	arg = &call->route->args[n];
	starts = json_starts(arg->type);
	if (call->given[n])
	{
		problem_argument(call->request, arg->name, "argument \"%s\" occurs twice", arg->name);
		return false;
	}
	call->given[n] = true;
	if (*member->value == 'n')
		return true;			/* null */
	call->values[n] = mem_copy(member->value, member->value_len);
	if (starts && !strchr(starts, *member->value))
	{
		problem_argument(call->request, arg->name, "argument \"%s\" must be %s", arg->name, json_word(arg->type));
		return false;
	}
	return check_value(call, arg, call->values[n]);
}

/* Finds the argument of a body that is not valid from this place on; false: in none. */
static bool
argument_at(const Buf *body, size_t offset, JsonMember *member)
{
	const char *place = body->data;
	const char *end = body->data + offset;
	bool		found = false;

	/* up to there it is valid, and a value that begins is the last one */
	while (json_member(&place, end, member))
		found = member->value + member->value_len == end && json_problem(member->value, member->value_len, NULL);
	return found;
}

static void
refuse_body(Call *call, const char *problem, size_t offset)
{
	const Buf  *body = &call->request->body;
	JsonMember	member;
	Buf			detail = {0};

	buf_printf(&detail, "the body is not JSON that jobq accepts: %s", problem);
	if (argument_at(body, offset, &member))
	{
		char	   *name = mem_copy(member.name, member.name_len < 60 ? member.name_len : 60);

		problem_argument(call->request, name, "%s", detail.data);
		free(name);
	}
	else
		problem_reply(call->request, 400, detail.data);
	buf_free(&detail);
}

static bool
take_body(Call *call)
{
	const Buf  *body = &call->request->body;
	const char *place = body->data;
	size_t		offset;
	const char *problem = body->len > 0 ? json_problem(body->data, body->len, &offset) : NULL;
	JsonMember	member;

	if (body->len == 0)
		return true;
	if (problem)
	{
		refuse_body(call, problem, offset);
		return false;
	}
	if (body->data[strspn(body->data, " \t\r\n")] != '{')
	{
		problem_reply(call->request, 400, "the body is not a JSON object");
		return false;
	}
	while (json_member(&place, body->data + body->len, &member))
	{
		if (!take_member(call, &member))
			return false;
	}
	return true;
}

/* FNV-1a, with the zero byte at the end. */
static uint32_t
add_to_hash(uint32_t hash, const char *text)
{
	do
		hash = (hash ^ (unsigned char) *text) * 16777619u;
	while (*text++);
	return hash;
}

uint32_t
call_filter_hash(const Call *call)
{
	uint32_t	hash = add_to_hash(2166136261u, call->route->path);
	int			i;

	for (i = 0; i < call->nargs; i++)
	{
		const Arg  *arg = &call->route->args[i];

		if (arg->type != ARG_LIMIT && arg->type != ARG_CURSOR && call->values[i])
			hash = add_to_hash(add_to_hash(hash, arg->name), call->values[i]);
	}
	return hash;
}

/* A cursor is a key, an underscore and the hash of its list's filter. */
static bool
take_cursor(Call *call)
{
	int			i;

	for (i = 0; i < call->nargs; i++)
	{
		const Arg  *arg = &call->route->args[i];
		char	   *value = call->values[i];
		char	   *mark;
		char		hash[9];

		if (arg->type != ARG_CURSOR || !value)
			continue;
		mark = strrchr(value, '_');
		snprintf(hash, sizeof(hash), "%08x", call_filter_hash(call));
		if (!mark || strcmp(mark + 1, hash) != 0)
			return refuse(call, arg, value, "the next of this list with this filter");
		*mark = '\0';
	}
	return true;
}

static bool
check_missing(Call *call)
{
	int			i;

	for (i = 0; i < call->nargs; i++)
	{
		const Arg  *arg = &call->route->args[i];

		if (arg->type == ARG_LIMIT && !call->given[i])
			call->limit = DEFAULT_LIMIT;
		if (arg->required && !call->values[i])
		{
			problem_argument(call->request, arg->name, "argument \"%s\" is missing", arg->name);
			return false;
		}
	}
	return true;
}

bool
call_arguments(Call *call)
{
	const Arg  *args = call->route->args;

	for (call->nargs = 0; args && args[call->nargs].place != IN_NONE; call->nargs++)
		;
	return take_path(call) && take_query(call) && take_body(call) && check_missing(call) && take_cursor(call);
}
