/*
 * test_json.c
 *	  The validator: a table of texts with expected results, limits, and
 *	  json_find.
 */
#include <stdlib.h>

#include "check.h"
#include "json.h"

#define MAX 1000

typedef struct Case
{
	const char *doc;
	JsonResult	want;
} Case;

static const Case cases[] = {
	{"null", JSON_OK}, {"true", JSON_OK}, {"false", JSON_OK}, {" \t\r\n1 \n", JSON_OK},
	{"0", JSON_OK}, {"-0", JSON_OK}, {"-12.5e+3", JSON_OK}, {"1E400", JSON_OK}, {"1e-400", JSON_OK},
	{"\"\"", JSON_OK}, {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e4\"", JSON_OK}, {"\"\\ud83d\\ude00\"", JSON_OK},
	{"\"\xC3\xA4\x7f\"", JSON_OK}, {"[]", JSON_OK}, {"{}", JSON_OK}, {"[ ]", JSON_OK}, {"{ }", JSON_OK},
	{"[1,[2,{\"a\":[]}],\"x\"]", JSON_OK}, {" { \"a\" : 1 , \"b\" : [ true ] } ", JSON_OK},
	{"{\"a\":1,\"a\":2}", JSON_OK}, {"[[],{},[{}]]", JSON_OK},

	{"", JSON_EMPTY}, {" \n\t", JSON_EMPTY},

	{"nul", JSON_BAD}, {"truE", JSON_BAD}, {"nullx", JSON_BAD}, {"1 2", JSON_BAD}, {"01", JSON_BAD}, {"-", JSON_BAD},
	{"+1", JSON_BAD}, {".5", JSON_BAD}, {"1.", JSON_BAD}, {"1e", JSON_BAD}, {"1e+", JSON_BAD}, {"1.e1", JSON_BAD},
	{"0x10", JSON_BAD}, {"NaN", JSON_BAD}, {"Infinity", JSON_BAD}, {"-Infinity", JSON_BAD}, {"'a'", JSON_BAD},
	{"\"a", JSON_BAD}, {"\"a\nb\"", JSON_BAD}, {"\"\\x\"", JSON_BAD}, {"\"\\u12\"", JSON_BAD}, {"\"\\u12g4\"", JSON_BAD},
	{"\"\\ud83d\"", JSON_BAD}, {"\"\\ud83dx\"", JSON_BAD}, {"\"\\ud83d\\u0041\"", JSON_BAD}, {"\"\\ude00\"", JSON_BAD},
	{"\"\\", JSON_BAD}, {"\"\\u", JSON_BAD}, {"[", JSON_BAD}, {"]", JSON_BAD}, {"[1", JSON_BAD}, {"[1,]", JSON_BAD},
	{"[,1]", JSON_BAD}, {"[1 2]", JSON_BAD}, {"[1}", JSON_BAD}, {"{", JSON_BAD}, {"{\"a\"}", JSON_BAD},
	{"{\"a\":}", JSON_BAD}, {"{\"a\":1,}", JSON_BAD}, {"{,}", JSON_BAD}, {"{1:2}", JSON_BAD}, {"{a:1}", JSON_BAD},
	{"{\"a\":1]", JSON_BAD}, {"{\"a\" 1}", JSON_BAD}, {"[1]]", JSON_BAD}, {"//x\n1", JSON_BAD}, {"\v1", JSON_BAD},

	{"\"\\u0000\"", JSON_NUL}, {"{\"\\u0000\":1}", JSON_NUL}, {"\"a\\u0000b\"", JSON_NUL},
	{"\"\xFF\"", JSON_NOT_UTF8}, {"\xEF\xBB\xBF", JSON_BAD}, {"\xFF", JSON_NOT_UTF8}, {"\"\xED\xA0\x80\"", JSON_NOT_UTF8},
	{"\"\xC3", JSON_NOT_UTF8}, {"[1\xFF]", JSON_NOT_UTF8},

	{"1e401", JSON_TOO_LARGE}, {"1e-401", JSON_TOO_LARGE}, {"1e131071", JSON_TOO_LARGE},
	{"1e99999999999999999999999999", JSON_TOO_LARGE},
	{"11111111111111111111111111111111111111111111111111111111111111111", JSON_TOO_LARGE},
	{"1111111111111111111111111111111111111111111111111111111111111111", JSON_OK},
	{"0.11111111111111111111111111111111111111111111111111111111111111111", JSON_TOO_LARGE},
	{"[1e300,1e300,1e300]", JSON_OK}, {"[1e300,1e300,1e300,1e300]", JSON_TOO_LARGE},
	{"[1e-300,1e-300,1e-300,1e-300]", JSON_TOO_LARGE},
};

/*
 * Checks a copy of exactly that length, so that a sanitizer reports a byte
 * read beyond it.
 */
static JsonResult
result_of(const char *doc, size_t len)
{
	char	   *exact = malloc(len ? len : 1);
	JsonResult	result;

	memcpy(exact, doc, len);
	result = json_check(exact, len, MAX, NULL);
	free(exact);
	return result;
}

static void
test_table(void)
{
	char		name[128];
	size_t		i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		snprintf(name, sizeof(name), "case %zu", i);
		CHECK(result_of(cases[i].doc, strlen(cases[i].doc)) == cases[i].want, name);
	}
	CHECK(result_of("1\0", 2) == JSON_NUL, "a zero byte after the value");
	CHECK(result_of("\"a\0\"", 4) == JSON_NUL, "a zero byte in a string");
	CHECK(result_of("\0", 1) == JSON_NUL, "a zero byte alone");
}

static JsonResult
nested(int depth, char open, char close)
{
	char		doc[300];

	memset(doc, open, (size_t) depth);
	memset(doc + depth, close, (size_t) depth);
	return result_of(doc, 2 * (size_t) depth);
}

static void
test_limits(void)
{
	char		doc[2048];
	JsonError	error;

	CHECK(nested(JSON_MAX_DEPTH, '[', ']') == JSON_OK, "64 levels");
	CHECK(nested(JSON_MAX_DEPTH + 1, '[', ']') == JSON_TOO_DEEP, "65 levels");
	memset(doc, ' ', sizeof(doc));
	doc[0] = '1';
	CHECK(json_check(doc, MAX, MAX, NULL) == JSON_OK, "as long as the limit");
	CHECK(json_check(doc, MAX + 1, MAX, NULL) == JSON_TOO_LARGE, "longer");
	CHECK(json_check("[1, x]", 6, MAX, &error) == JSON_BAD && error.offset == 4 &&
		  strcmp(error.what, "expected a value") == 0, "says where and what");
}

static bool
finds(const char *doc, const char *key, const char *want)
{
	const char *value;
	size_t		len;

	if (!json_find(doc, strlen(doc), key, &value, &len))
		return want == NULL;
	return want && len == strlen(want) && memcmp(value, want, len) == 0;
}

static void
test_find(void)
{
	CHECK(finds("{\"a\":1,\"b\": {\"a\":2} ,\"c\":[3]}", "a", "1"), "first");
	CHECK(finds("{\"a\":1,\"b\": {\"a\":2} ,\"c\":[3]}", "b", "{\"a\":2}"), "an object");
	CHECK(finds("{\"a\":1,\"b\": {\"a\":2} ,\"c\":[3]}", "c", "[3]"), "last");
	CHECK(finds(" { \"a\" : \"x,y}\" } ", "a", "\"x,y}\""), "white space and braces in strings");
	CHECK(finds("{\"a\":1,\"a\":2}", "a", "2"), "of duplicates the last");
	CHECK(finds("{\"b\":{\"a\":2}}", "a", NULL) && finds("{}", "a", NULL) && finds("{ }", "a", NULL), "no such key");
	CHECK(finds("{\"ab\":1}", "a", NULL) && finds("{\"a\":1}", "ab", NULL), "whole names only");
	CHECK(finds("[1]", "a", NULL) && finds("1", "a", NULL) && finds("", "a", NULL), "no object");
}

int
main(void)
{
	test_table();
	test_limits();
	test_find();
	return done();
}
