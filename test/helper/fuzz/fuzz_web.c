/*
 * fuzz_web.c
 *	  The parsers of jobq-web.  An accepted head has one way to give a body; what
 *	  is decoded is UTF-8; the members of an object are JSON again, and so is a
 *	  text with hidden values.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "helper/utf8.h"
#include "web/address.h"
#include "web/guard.h"
#include "web/json.h"
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

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char	   *text;

	if (size < 1 || size > 4096)
		return 0;
	text = malloc(size);
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	switch (data[0] % 4)
	{
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
