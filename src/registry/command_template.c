/*
 * command_template.c
 *	  The command of an exec type: checked when it is defined, filled in when a
 *	  job is enqueued (so that the caller gets the error of a missing field) and
 *	  again when it starts (the type may have changed).
 *
 * One pass over each element copies literal text and values to a buffer.  This
 * file decides everything that a payload could do to an argument list: the
 * number of arguments (never changed by a value), whether one may look like an
 * option, and their length.
 */
#include "jobq.h"

#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/numeric.h"

#include "base/errors.h"
#include "registry/command_template.h"
#include "helper/program.h"

PG_FUNCTION_INFO_V1(jobq_check_command);
PG_FUNCTION_INFO_V1(jobq_program_trouble);

static bool
is_name_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/*
 * Length of the placeholder that begins at s, braces included; 0 when s is no
 * placeholder.  The text between the braces is names with single dots between
 * them.
 */
static int
placeholder_length(const char *s)
{
	const char *p = s + 1;

	if (*s != '{')
		return 0;
	for (;;)
	{
		if (!is_name_char(*p))
			return 0;
		while (is_name_char(*p))
			p++;
		if (*p == '}')
			return (int) (p - s) + 1;
		if (*p++ != '.')
			return 0;
	}
}

/* True if this element has a placeholder. */
static bool
has_placeholder(const char *element)
{
	const char *p;

	for (p = element; *p; p++)
	{
		if (p[0] == '{' && p[1] == '{')
			p++;
		else if (placeholder_length(p) > 0)
			return true;
	}
	return false;
}

/*
 * Returns the value at a path such as "a.b" in payload; NULL when it is not
 * there.
 */
static JsonbValue *
lookup(Jsonb *payload, const char *path, int len)
{
	JsonbContainer *object = &payload->root;
	JsonbValue *value = NULL;
	int			begin = 0;

	while (begin < len)
	{
		int			end = begin;

		while (end < len && path[end] != '.')
			end++;
		if (object == NULL || !JsonContainerIsObject(object))
			return NULL;
		value = getKeyJsonValueFromContainer(object, path + begin, end - begin, NULL);
		if (value == NULL)
			return NULL;
		object = value->type == jbvBinary ? value->val.binary.data : NULL;
		begin = end + 1;
	}
	return value;
}

/* Appends the text of a placeholder's value; len counts both braces. */
static void
append_value(StringInfo out, JobType *type, Jsonb *payload, const char *placeholder, int len)
{
	JsonbValue *value = lookup(payload, placeholder + 1, len - 2);
	int			begin = out->len;

	if (value == NULL || value->type == jbvNull)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"payload\": no value for placeholder \"%.*s\" in the command of job type \"%s\"",
						len, placeholder, type->name),
				 errhint("In the command \"{{\" is a brace: \"{%.*s\" is no placeholder.", len, placeholder)));
	switch (value->type)
	{
		case jbvString:
			appendBinaryStringInfo(out, value->val.string.val, value->val.string.len);
			break;
		case jbvNumeric:
			appendStringInfoString(out, DatumGetCString(DirectFunctionCall1(numeric_out,
																			NumericGetDatum(value->val.numeric))));
			break;
		case jbvBool:
			appendStringInfoString(out, value->val.boolean ? "true" : "false");
			break;
		default:
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("argument \"payload\": an object or array for placeholder \"%.*s\" in the command of job type \"%s\"",
							len, placeholder, type->name),
					 errhint("A placeholder takes a text, a number or a boolean.")));
	}
	/* begin, not the element's text: "{a}{b}" with an empty a begins with b */
	if (begin == 0 && out->len > 0 && out->data[0] == '-' && !type->allow_dash)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"payload\": value for placeholder \"%.*s\" in the command of job type \"%s\" begins with \"-\": \"%s\"",
						len, placeholder, type->name, pnstrdup(out->data, pg_mbcliplen(out->data, out->len, 64))),
				 errhint("Set options.allow_dash when the tool may take it for an option.")));
}

/* Appends one argument: the element with its placeholders filled in. */
static void
fill_in(StringInfo out, JobType *type, Jsonb *payload, const char *element)
{
	const char *p = element;

	resetStringInfo(out);
	while (*p)
	{
		int			len;

		if (p[0] == '{' && p[1] == '{')
		{
			appendStringInfoChar(out, '{');
			p += 2;
		}
		else if ((len = placeholder_length(p)) > 0)
		{
			append_value(out, type, payload, p, len);
			p += len;
		}
		else
			appendStringInfoChar(out, *p++);
	}
}

static void
check_total(JobType *type, Size total)
{
	if (total > JOBQ_MAX_ARGS_SIZE)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("arguments of a command of job type \"%s\" are longer than %d bytes",
						type->name, JOBQ_MAX_ARGS_SIZE)));
}

char	  **
command_build(JobType *type, Jsonb *payload, int *argc)
{
	char	  **argv = palloc0(sizeof(char *) * (type->ncommand + 1));
	StringInfoData out;
	Size		total = 0;
	int			i;

	initStringInfo(&out);
	for (i = 0; i < type->ncommand; i++)
	{
		const char *element = type->command[i];

		if (!JB_ROOT_IS_OBJECT(payload) && has_placeholder(element))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("argument \"payload\" must be an object for the placeholders in the command of job type \"%s\"",
							type->name),
					 errdetail("Argument %d of the command is \"%s\".", i, element)));
		fill_in(&out, type, payload, element);
		total += out.len + 1;
		check_total(type, total);
		argv[i] = pnstrdup(out.data, out.len);
		argv[i] = pg_server_to_any(argv[i], out.len, PG_UTF8);
	}
	pfree(out.data);
	*argc = type->ncommand;
	return argv;
}

void
command_check_payload(JobType *type, Jsonb *payload)
{
	bool		any = false;
	int			i;

	for (i = 0; i < type->ncommand && !any; i++)
		any = has_placeholder(type->command[i]);
	if (any)
	{
		char	  **argv = command_build(type, payload, &i);

		while (i > 0)
			pfree(argv[--i]);
		pfree(argv);
	}
}

/*
 * Checks argv[0]: an absolute path, or a plain file name that each start looks
 * up in jobq.tool_path.
 */
static void
check_program(const char *program)
{
	bool		plain = strchr(program, '/') == NULL &&
		strcmp(program, ".") != 0 && strcmp(program, "..") != 0;

	if (program[0] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"command\": the program \"\" is empty")));
	if (program[0] != '/' && !plain)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"command\": the program \"%s\" is a relative path", argument_shown(program)),
				 errhint("Give an absolute path, or a file name without a slash that jobq.tool_path leads to.")));
	if (has_placeholder(program))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"command\": the program \"%s\" has a placeholder", argument_shown(program)),
				 errhint("Placeholders may stand in the arguments.")));
}

/*
 * Returns the index of the script in the command of a shell or of awk; 0 when
 * there is none, or when it is one placeholder of a shell: the payload is the
 * script.
 */
static int
script_element(char **command, int n)
{
	static const char *const shells[] = {"sh", "bash", "dash", "ksh", "zsh", NULL};
	static const char *const awks[] = {"awk", "gawk", "mawk", "nawk", NULL};
	const char *slash = strrchr(command[0], '/');
	const char *program = slash ? slash + 1 : command[0];
	int			i;
	int			k;

	for (k = 0; shells[k]; k++)
	{
		for (i = 1; strcmp(program, shells[k]) == 0 && i + 1 < n && command[i][0] == '-'; i++)
		{
			if (command[i][1] != '-' && strchr(command[i], 'c'))
				return placeholder_length(command[i + 1]) == (int) strlen(command[i + 1]) ? 0 : i + 1;
		}
	}
	for (k = 0; awks[k]; k++)
	{
		for (i = 1; strcmp(program, awks[k]) == 0 && i < n; i++)
		{
			if (strcmp(command[i], "-f") == 0)
				return 0;
			if (command[i][0] != '-')
				return i;
			/* -F and -v have an argument: a part of the element, or the next one */
			if (strcmp(command[i], "-F") == 0 || strcmp(command[i], "-v") == 0)
				i++;
		}
	}
	return 0;
}

/*
 * Warns of a placeholder in a script: braces of the shell or of awk were meant,
 * or the text of a payload becomes a part of the script.
 */
static void
warn_of_script(char **command, int n)
{
	int			script = script_element(command, n);
	const char *p;
	int			len;

	for (p = command[script]; script > 0 && *p; p++)
	{
		if (p[0] == '{' && p[1] == '{')
			p++;
		else if ((len = placeholder_length(p)) > 0)
		{
			ereport(WARNING,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("argument \"command\": the script of \"%s\" has the placeholder \"%.*s\"", argument_shown(command[0]), len, p),
					 errhint("For braces of the script write \"{%.*s\". A value that is filled in becomes a part of the script: "
							 "give it as an argument behind the script.", len, p)));
			return;
		}
	}
}

/*
 * jobq_internal._check_command(command text[], warm boolean) RETURNS void:
 * refuses a command for create_job_type and alter_job_type.
 */
Datum
jobq_check_command(PG_FUNCTION_ARGS)
{
	ArrayType  *command = PG_GETARG_ARRAYTYPE_P(0);
	bool		warm = PG_GETARG_BOOL(1);
	Datum	   *elements;
	bool	   *nulls;
	char	  **texts;
	int			n;
	int			i;
	Size		total = 0;

	if (ARR_NDIM(command) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"command\" has %d dimensions, not one", ARR_NDIM(command))));
	deconstruct_array(command, TEXTOID, -1, false, TYPALIGN_INT, &elements, &nulls, &n);
	if (n == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"command\": \"{}\" is empty"),
				 errhint("Its first element is the program.")));
	if (n > JOBQ_MAX_ARGS)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("argument \"command\": %d elements are more than %d", n, JOBQ_MAX_ARGS)));
	texts = palloc(sizeof(char *) * n);
	for (i = 0; i < n; i++)
	{
		char	   *element;

		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("argument \"command\": element %d must not be NULL", i + 1)));
		element = texts[i] = TextDatumGetCString(elements[i]);
		total += strlen(element) + 1;
		if (total > JOBQ_MAX_ARGS_SIZE)
			argument_too_long("command", total, JOBQ_MAX_ARGS_SIZE);
		if (i == 0)
			check_program(element);
		if (warm && has_placeholder(element))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("argument \"command\": element \"%s\" of a warm tool has a placeholder", argument_shown(element)),
					 errhint("Its instances run one job after another, and read each payload from stdin.")));
	}
	warn_of_script(texts, n);
	PG_RETURN_VOID();
}

/*
 * jobq_internal._program_trouble(program text) RETURNS text: the reason why a
 * tool could not be started now, NULL when it could.  The lookup is that of a
 * start; on a file system that does not answer it waits.
 */
Datum
jobq_program_trouble(PG_FUNCTION_ARGS)
{
	char	   *program = text_to_cstring(PG_GETARG_TEXT_PP(0));
	const char *trouble = program_trouble(pg_server_to_any(program, (int) strlen(program), PG_UTF8),
										  frame_text(jobq_tool_path));

	if (trouble == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(trouble));
}
