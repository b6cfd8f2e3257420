/*
 * fuzz_web.c
 *	  The parsers of jobq-web.  An accepted head has one way to give a body; what
 *	  is decoded is UTF-8; the members of an object are JSON again, and so is a
 *	  text with hidden values; a cursor is accepted with the hash of its filter
 *	  alone.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "helper/utf8.h"
#include "web/address.h"
#include "web/arguments.h"
#include "web/guard.h"
#include "web/json.h"
#include "web/problem.h"
#include "web/query.h"

int			LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
expect(bool ok)
{
	if (!ok)
		abort();
}

static void
fuzz_head(char *text)
{
	static Head head;
	HeadFacts	facts;
	const char *reason;
	char	   *line;
	char	   *rest = text;
	int			lengths = 0;

	head = (Head) {.method = "POST",.target = "/",.version = "HTTP/1.1",.user_header = "x"};
	while ((line = strsep(&rest, "\n")) != NULL && head.nheaders < MAX_HEADERS)
	{
		char	   *colon = strchr(line, ':');

		if (!colon)
			continue;
		*colon = '\0';
		head.headers[head.nheaders++] = (Header) {line, strlen(line), colon + 1, strlen(colon + 1)};
		lengths += strcasecmp(line, "content-length") == 0;
	}
	if (guard_head(&head, &facts, &reason) != 0)
		expect(reason != NULL);
	else
		expect(facts.body <= MAX_BODY && lengths <= 1);
}

static void
fuzz_query(char *text)
{
	Query		q;
	int			i;

	if (query_split(text, &q))
		return;
	for (i = 0; i < q.count; i++)
	{
		expect(utf8_valid(q.list[i].name, strlen(q.list[i].name)));
		expect(utf8_valid(q.list[i].value, strlen(q.list[i].value)));
		expect(query_value(&q, q.list[i].name) == q.list[i].value);
	}
}

static void
fuzz_words(char *text)
{
	char		buffer[64];
	const char *role;
	const char *password;
	Networks	networks;
	Address		peer = unix_address;

	cookie_value(text, "a", buffer, 8);
	if (basic_split(text, buffer, sizeof(buffer), &role, &password))
		expect(*role && utf8_valid(role, strlen(role)) && utf8_valid(password, strlen(password)));
	networks_parse(text, &networks);
	networks_parse("unix, 10.0.0.0/8", &networks);
	forwarded_address(&networks, &peer, text);
}

static void
fuzz_json(const char *text, size_t len)
{
	static List keys = {.items = {{"a", NULL}},.count = 1};
	const char *place = text;
	JsonMember	m;
	Buf			out = {0};

	if (json_problem(text, len, NULL))
		return;
	place += strspn(place, " \t\r\n");
	while (*place == '{' || *place == ',')
	{
		if (!json_member(&place, text + len, &m))
			break;
		expect(json_problem(m.value, m.value_len, NULL) == NULL);
		free(json_string(m.value, m.value_len));
	}
	json_redact(&out, text, len, &keys);
	expect(json_problem(out.data, out.len, NULL) == NULL);
	buf_free(&out);
}

/* What arguments.c needs of others. */
static Config config;
const Config *web_config = &config;
static const char *refused;		/* the argument of the last reply */

void
problem_reply(Request *request, int status, const char *detail)
{
	(void) request;
	expect(status == 400 && detail != NULL);
	refused = NULL;
}

void
problem_argument(Request *request, const char *argument, const char *format,...)
{
	(void) request;
	(void) format;
	refused = strcmp(argument, "after") == 0 ? "after" : NULL;
}

/* Reads the arguments of a call of a list, from a query or a body; returns its hash. */
static bool
arguments_of(const Query *query, char *body, uint32_t *hash)
{
	static const Arg args[] = {
		{.name = "after",.type = ARG_CURSOR,.place = IN_QUERY}, {.name = "limit",.type = ARG_LIMIT,.place = IN_QUERY},
		{.name = "job_type",.type = ARG_TEXT,.place = IN_QUERY}, {.name = "parent",.type = ARG_UUID,.place = IN_QUERY},
		{.name = "action",.type = ARG_ACTION,.place = IN_BODY}, {.name = "weight",.type = ARG_NUMBER,.place = IN_BODY},
		{.name = "ids",.type = ARG_UUIDS,.place = IN_BODY}, {.name = "paused",.type = ARG_BOOL,.place = IN_BODY},
		{.name = "payload",.type = ARG_JSON,.place = IN_BODY}, {.name = "n",.type = ARG_BIGINT,.place = IN_BODY},
	{.place = IN_NONE}};
	static const Route route = {.method = "POST",.path = "/jobs",.args = args};
	Request		request = {.body = {.data = body,.len = body ? strlen(body) : 0}};
	Call		call = {.request = &request,.route = &route};
	bool		ok;

	if (query)
		call.query = *query;
	config.redact = (List) {.items = {{"a", NULL}},.count = 1};
	ok = call_arguments(&call);
	*hash = call_filter_hash(&call);
	expect(!ok || (call.limit >= 1 && call.limit <= 200));
	for (int i = 0; i < call.nargs; i++)
		free(call.values[i]);
	return ok;
}

static void
fuzz_arguments(char *text)
{
	Query		q;
	uint32_t	hash;
	char		cursor[512];

	arguments_of(NULL, text, &hash);
	if (query_split(text, &q))
		return;
	refused = NULL;
	if (arguments_of(&q, NULL, &hash) || !refused || strlen(query_value(&q, "after")) > 500)
		return;
	for (int i = 0; i < q.count; i++)
	{
		if (strcmp(q.list[i].name, "after") != 0)
			continue;
		snprintf(cursor, sizeof(cursor), "%s_%08x", q.list[i].value, hash);
		q.list[i].value = cursor;
	}
	if (strspn(cursor, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-_") != strlen(cursor))
		return;
	expect(arguments_of(&q, NULL, &hash));
	cursor[strlen(cursor) - 1] ^= 1;
	expect(!arguments_of(&q, NULL, &hash));
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char	   *text;

	if (size < 1 || size > 4096)
		return 0;
	text = malloc(size);
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	switch (data[0] >= 250 ? 4 : data[0] % 4)
	{
		case 4:
			fuzz_arguments(text);
			break;
		case 0:
			fuzz_head(text);
			break;
		case 1:
			fuzz_query(text);
			break;
		case 2:
			fuzz_words(text);
			break;
		default:
			fuzz_json(text, size - 1);
	}
	free(text);
	return 0;
}
