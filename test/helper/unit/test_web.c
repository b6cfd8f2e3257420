/*
 * test_web.c
 *	  The parsers of jobq-web: heads, queries, cookies, Basic, addresses, JSON.
 */
#include <stdlib.h>

#include "check.h"
#include "web/address.h"
#include "web/guard.h"
#include "web/json.h"
#include "web/query.h"

/* Judges a head of headers "Name: value", one a line. */
static int
judge(const char *method, const char *target, const char *version, const char *lines, HeadFacts *facts)
{
	static char text[4096];
	static Head head;
	const char *reason;
	char	   *line;

	head = (Head) {.method = method, .target = target, .version = version, .user_header = "X-User"};
	snprintf(text, sizeof(text), "%s", lines);
	for (line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
	{
		char	   *colon = strchr(line, ':');
		char	   *value = colon + 1 + strspn(colon + 1, " ");

		head.headers[head.nheaders++] = (Header) {line, (size_t) (colon - line), value, strlen(value)};
		*colon = '\0';
	}
	return guard_head(&head, facts, &reason);
}

static void
test_guard(void)
{
	HeadFacts	f;

	CHECK(judge("GET", "/", "HTTP/1.1", "Host: a\nCookie: c\nX-USER: u", &f) == 0 && strcmp(f.cookie, "c") == 0 &&
		  strcmp(f.user, "u") == 0, "facts of a head");
	CHECK(judge("POST", "/", "HTTP/1.1", "Host: a\nContent-Length: 17", &f) == 0 && f.body == 17, "a length");
	CHECK(judge("POST", "/", "HTTP/1.1", "Host: a\nContent-Length: 2097152", &f) == 0, "the largest body");
	CHECK(judge("POST", "/", "HTTP/1.1", "Host: a\nContent-Length: 2097153", &f) == 413, "a larger one");
	CHECK(judge("POST", "/", "HTTP/1.1", "Host: a\nContent-Length: 1\ncontent-length: 1", &f) == 400, "two lengths");
	CHECK(judge("POST", "/", "HTTP/1.1", "Host: a\nContent-Length:", &f) == 400, "an empty length");
	CHECK(judge("POST", "/", "HTTP/1.1", "Host: a\nContent-Length: 1 ", &f) == 400, "a length with a space");
	CHECK(judge("GET", "/", "HTTP/1.1", "Host: a\nTRANSFER-ENCODING: x", &f) == 400, "another encoding");
	CHECK(judge("GET", "/", "HTTP/1.1", "Host: a\nX-User: a\nx-user: b", &f) == 400, "two users of a proxy");
	CHECK(judge("GET", "/\x7f", "HTTP/1.1", "Host: a", &f) == 400, "a target with a control character");
	CHECK(judge("G T", "/", "HTTP/1.1", "Host: a", &f) == 400, "a method with a space");
	CHECK(judge("GET", "*", "HTTP/1.1", "Host: a", &f) == 400, "a target that is no path");
}

static bool
decodes(const char *s, bool plus, const char *expected)
{
	char		text[64];

	snprintf(text, sizeof(text), "%s", s);
	return percent_decode(text, plus) && strcmp(text, expected) == 0;
}

static bool
is_refused(const char *s)
{
	char		text[64];

	snprintf(text, sizeof(text), "%s", s);
	return !percent_decode(text, false);
}

static void
test_query(void)
{
	char		text[] = "a=1&b=%26+x&&c&=d&e=f=g";
	char		twice[] = "a=1&%61=2";
	char		value[8];
	char		buffer[32];
	const char *role;
	const char *password;
	Query		q;

	CHECK(query_split(text, &q) == NULL && q.count == 4, "parameters");
	CHECK(strcmp(query_value(&q, "b"), "& x") == 0 && strcmp(query_value(&q, "c"), "") == 0 &&
		  strcmp(query_value(&q, "e"), "f=g") == 0 && !query_value(&q, "d"), "their values");
	CHECK(query_split(twice, &q) != NULL, "a name twice, once encoded");
	CHECK(decodes("%41+b", true, "A b") && decodes("a+b", false, "a+b") && decodes("%2541", false, "%41"), "decoded once");
	CHECK(is_refused("%") && is_refused("%4") && is_refused("%zz") && is_refused("%00") && is_refused("%ff"), "malformed");
	CHECK(cookie_value("x=1; ab=2;a=3", "a", value, sizeof(value)) && strcmp(value, "3") == 0, "a cookie");
	CHECK(!cookie_value("ab=2", "a", value, sizeof(value)) && !cookie_value("xa=2", "a", value, sizeof(value)), "no cookie");
	CHECK(!cookie_value("a=12345678", "a", value, sizeof(value)), "a long cookie");
	CHECK(basic_split("bAsIc YTpiOmM=", buffer, sizeof(buffer), &role, &password) && strcmp(role, "a") == 0 &&
		  strcmp(password, "b:c") == 0, "Basic");
	CHECK(!basic_split("Basic YWI=", buffer, sizeof(buffer), &role, &password), "without a colon");
	CHECK(!basic_split("Basic YTpiAGM=", buffer, sizeof(buffer), &role, &password), "with a zero byte");
	CHECK(!basic_split("Basic YTpi*", buffer, sizeof(buffer), &role, &password), "with other characters");
	CHECK(!basic_split("Basic YTphYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE=", buffer, sizeof(buffer), &role, &password),
		  "too long");
}

static const char *
client(const char *trusted, const char *peer, const char *forwarded)
{
	static char text[ADDRESS_TEXT];
	Networks	networks;
	Address		from;
	Address		found;

	networks_parse(trusted, &networks);
	address_parse(peer, &from);
	found = forwarded_address(&networks, &from, forwarded);
	address_text(&found, text);
	return text;
}

static void
test_addresses(void)
{
	Address		any;
	Networks	n;

	CHECK(address_parse("::", &any) && !is_loopback(&any), "the address of all is not loopback");
	CHECK(networks_parse("10.0.0.0/8, unix,::1", &n) && n.count == 3, "networks");
	CHECK(!networks_parse("10.0.0.0/33", &n) && !networks_parse("x", &n) && !networks_parse("::1/129", &n), "malformed ones");
	CHECK(strcmp(client("10.0.0.0/8", "10.1.1.1", "1.1.1.1, 2.2.2.2"), "2.2.2.2") == 0, "the last address");
	CHECK(strcmp(client("10.0.0.0/8", "10.1.1.1", "1.1.1.1, 10.9.9.9"), "1.1.1.1") == 0, "before trusted ones");
	CHECK(strcmp(client("10.0.0.0/8", "11.1.1.1", "1.1.1.1"), "11.1.1.1") == 0, "a peer that is not trusted");
	CHECK(strcmp(client("10.0.0.0/8", "10.1.1.1", "1.1.1.1, unix"), "10.1.1.1") == 0, "no socket from afar");
	CHECK(strcmp(client("unix", "unix", "[2001:db8::1]:80"), "2001:db8::1") == 0, "an address with a port");
	CHECK(strcmp(client("10.0.0.0/8", "10.1.1.1", ""), "10.1.1.1") == 0, "an empty header");
}

static bool
redacts(const char *text, const char *expected)
{
	static List keys = {.items = {{"p", NULL}},.count = 1};
	Buf			out = {0};
	bool		same;

	buf_add(&out, "", 0);
	json_redact(&out, text, strlen(text), &keys);
	same = strcmp(out.data, expected) == 0;
	buf_free(&out);
	return same;
}

static void
test_json(void)
{
	const char *text = " {\"a\" : [1,{\"b\":\"}\"}] , \"c\":\"\\\"\", \"d\":-1.5e3 }";
	const char *escapes = "\"a\\u00e9\\ud83d\\ude00\\n\\/\"";
	const char *place = text;
	JsonMember	m[4];
	char	   *s;
	int			n = 0;

	while (n < 4 && json_member(&place, text + strlen(text), &m[n]))
		n++;
	CHECK(n == 3 && m[0].value_len == 13 && m[1].value_len == 4 && m[2].value_len == 6, "members");
	place = "{}";
	CHECK(!json_member(&place, place + 2, &m[0]), "no members");
	s = json_string(escapes, strlen(escapes));
	CHECK(s && strcmp(s, "a\xC3\xA9\xF0\x9F\x98\x80\n/") == 0, "a string with escapes");
	free(s);
	CHECK(redacts("{\"p\":1,\"x\":{\"p\":{\"y\":[1]},\"z\":\"p\"}}",
				  "{\"p\":1,\"x\":{\"p\":\"[redacted]\",\"z\":\"p\"}}"), "values below the top are hidden");
	CHECK(redacts("{\"x\":[{\"p\" : null, \"q\":\"a\\\"p\\\":1\"}]}",
				  "{\"x\":[{\"p\" : \"[redacted]\", \"q\":\"a\\\"p\\\":1\"}]}"), "keys, not texts");
}

int
main(void)
{
	test_guard();
	test_query();
	test_addresses();
	test_json();
	return done();
}
