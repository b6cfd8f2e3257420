/*
 * artifact_key.c
 *	  The keys of artifacts: their check, and jobq.build_key.
 *
 * A key becomes a path below some directory, or the name of an object in a
 * bucket.  It is not escaped anywhere, so it has only characters that mean
 * themselves in both, and no element that leads out of the directory.  The
 * check looks at bytes: no encoding, no case, no normal form can change its
 * answer.
 */
#include "jobq.h"

#include "utils/builtins.h"
#include "utils/fmgrprotos.h"

#include "base/errors.h"
#include "settle/artifact_key.h"

PG_FUNCTION_INFO_V1(jobq_build_key);

static bool
is_plain(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		c == '.' || c == '_' || c == '-';
}

/*
 * True if these bytes are one element: ASCII letters, digits, ".", "_", "-",
 * and neither "." nor "..".
 */
static bool
artifact_element_is_sound(const char *element, Size len)
{
	if (len == 0 || len > ARTIFACT_MAX_ELEMENT)
		return false;
	if (element[0] == '.' && (len == 1 || (len == 2 && element[1] == '.')))
		return false;
	for (Size i = 0; i < len; i++)
	{
		if (!is_plain(element[i]))
			return false;
	}
	return true;
}

bool
artifact_key_is_sound(const char *key)
{
	int			elements = 0;

	if (strlen(key) > ARTIFACT_MAX_KEY)
		return false;
	for (;;)
	{
		Size		len = strcspn(key, "/");

		if (++elements > ARTIFACT_MAX_ELEMENTS || !artifact_element_is_sound(key, len))
			return false;
		if (key[len] == '\0')
			return true;
		key += len + 1;
	}
}

bool
artifact_kind_is_known(const char *kind)
{
	return strcmp(kind, "input") == 0 || strcmp(kind, "output") == 0 || strcmp(kind, "log") == 0;
}

/* Returns an argument that must be an element of a key; NULL: it is NULL. */
static char *
element_argument(FunctionCallInfo fcinfo, int i, const char *name)
{
	char	   *value;

	if (PG_ARGISNULL(i))
		return NULL;
	value = text_to_cstring(PG_GETARG_TEXT_PP(i));
	if (strlen(value) > ARTIFACT_MAX_ELEMENT)
		argument_too_long(name, strlen(value), ARTIFACT_MAX_ELEMENT);
	if (!artifact_element_is_sound(value, strlen(value)))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"%s\": \"%s\" is no element of an artifact key", name, argument_shown(value)),
				 errhint("An element has 1 to 128 letters, digits, \".\", \"_\" and \"-\", and is neither \".\" nor \"..\".")));
	return value;
}

/* Returns the folder of a kind. */
static const char *
folder_of(FunctionCallInfo fcinfo, int i)
{
	char	   *kind;

	if (PG_ARGISNULL(i))
		argument_is_null("kind");
	kind = text_to_cstring(PG_GETARG_TEXT_PP(i));
	if (!artifact_kind_is_known(kind))
		argument_no_choice("kind", kind, ARTIFACT_KINDS);
	return psprintf("%ss", kind);
}

/* jobq.build_key(job_id, task_key, kind, ext, name) */
Datum
jobq_build_key(PG_FUNCTION_ARGS)
{
	const char *folder;
	char	   *task;
	char	   *ext;
	char	   *name;
	char	   *file;

	if (PG_ARGISNULL(0))
		argument_is_null("job_id");
	if (PG_ARGISNULL(4))
		argument_is_null("name");
	folder = folder_of(fcinfo, 2);
	task = element_argument(fcinfo, 1, "task_key");
	ext = element_argument(fcinfo, 3, "ext");
	name = element_argument(fcinfo, 4, "name");
	if (ext != NULL && ext[0] == '.')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"ext\": \"%s\" begins with a dot", argument_shown(ext)),
				 errhint("Leave the dot out: build_key adds it.")));
	file = ext ? psprintf("%s.%s", name, ext) : name;
	if (strlen(file) > ARTIFACT_MAX_ELEMENT)
		argument_too_long("name", strlen(file), ARTIFACT_MAX_ELEMENT);
	PG_RETURN_TEXT_P(cstring_to_text(psprintf("%s/%s/%s%s%s", folder,
											  DatumGetCString(DirectFunctionCall1(uuid_out, PG_GETARG_DATUM(0))),
											  task ? task : "", task ? "/" : "", file)));
}
