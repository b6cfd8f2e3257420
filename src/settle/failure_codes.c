/*
 * failure_codes.c
 *	  options.permanent_codes and options.retry_codes, both lists of LIKE patterns on error_code.
 *
 * permanent_codes apply to every code.  retry_codes apply only to codes of a
 * handler or tool (Outcome.code_given): with such a list, given codes that
 * match none of it are permanent.  Codes of jobq's own (timeout, server_crash,
 * helper_lost, signal:KILL, bad_output, 57P01, the SQLSTATE of an attempt that
 * did not reach its handler or could not be stored) are unknown to the author
 * of the type, so these failures are retried.
 */
#include "jobq.h"

#include "catalog/pg_collation.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"

#include "base/texts.h"
#include "settle/failure_codes.h"

/* True if the text of a JSON string, a LIKE pattern, matches the code. */
static bool
pattern_matches(const JsonbValue *pattern, const char *code)
{
	text	   *like;

	/* one that an older release has stored matches nothing */
	if (!like_pattern_is_good(pattern->val.string.val, pattern->val.string.len))
		return false;
	like = cstring_to_text_with_len(pattern->val.string.val, pattern->val.string.len);

	return DatumGetBool(DirectFunctionCall2Coll(textlike, C_COLLATION_OID, CStringGetTextDatum(code),
												PointerGetDatum(like)));
}

/*
 * True if a pattern of the list under that key matches the code; *is_given:
 * the type has such a list.
 */
static bool
list_matches(const JobType *type, const char *key, const char *code, bool *is_given)
{
	JsonbValue	list;
	JsonbIterator *it;
	JsonbIteratorToken token;
	JsonbValue	pattern;

	*is_given = getKeyJsonValueFromContainer(&type->options->root, key, (int) strlen(key), &list) != NULL &&
		list.type == jbvBinary && JsonContainerIsArray(list.val.binary.data);
	if (!*is_given)
		return false;
	it = JsonbIteratorInit(list.val.binary.data);
	while ((token = JsonbIteratorNext(&it, &pattern, true)) != WJB_DONE)
	{
		if (token == WJB_ELEM && pattern.type == jbvString && pattern_matches(&pattern, code))
			return true;
	}
	return false;
}

bool
failure_code_is_permanent(const JobType *type, const Outcome *o)
{
	bool		is_given;

	if (o->code == NULL)
		return false;
	if (list_matches(type, "permanent_codes", o->code, &is_given))
		return true;
	return o->code_given && !list_matches(type, "retry_codes", o->code, &is_given) && is_given;
}
