/*
 * tool_env.c
 *	  The environment of tools: names that they can't be given, and the file
 *	  that jobq.tool_env_file names.
 *
 * Exec workers read the file at each start of a tool that passes a name on, so
 * a new value needs no reload.  The launcher reads it when it starts and at
 * each reload, only to tell which lines are of no use.
 */
#include "jobq.h"

#include "lib/stringinfo.h"
#include "storage/fd.h"

#include "base/tool_env.h"

#define MAX_FILE (256 * 1024)	/* the search for two lines of one name is quadratic */

bool
tool_env_is_name(const char *name, size_t len)
{
	size_t		i;

	for (i = 0; i < len; i++)
	{
		char		c = name[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (i > 0 && c >= '0' && c <= '9')))
			return false;
	}
	return len > 0;
}

/*
 * Python's variables are refused but these: a new release of Python may bring
 * another one that loads code.
 */
static bool
python_loads_code(const char *name)
{
	static const char *const harmless[] = {"PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONIOENCODING",
		"PYTHONUTF8", "PYTHONCOERCECLOCALE", "PYTHONHASHSEED", "PYTHONFAULTHANDLER", "PYTHONOPTIMIZE",
		"PYTHONNOUSERSITE", "PYTHONSAFEPATH", "PYTHONMALLOC", "PYTHONTRACEMALLOC", "PYTHONASYNCIODEBUG",
		"PYTHONINTMAXSTRDIGITS", NULL};
	int			i;

	for (i = 0; harmless[i]; i++)
	{
		if (strcmp(name, harmless[i]) == 0)
			return false;
	}
	return strncmp(name, "PYTHON", 6) == 0;
}

bool
tool_env_refused(const char *name)
{
	return strncmp(name, "LD_", 3) == 0 || strncmp(name, "JOBQ_", 5) == 0 || strcmp(name, "PATH") == 0 ||
		strcmp(name, "IFS") == 0 || strcmp(name, "ENV") == 0 || strcmp(name, "BASH_ENV") == 0 || python_loads_code(name);
}

/*
 * Reads the file; NULL with errno set if it can't be read: EFBIG when it is too
 * large, EILSEQ when a byte of it is 0, as in UTF-16.
 */
static char *
read_file(void)
{
	StringInfoData text;
	char		block[4096];
	size_t		n;
	FILE	   *file = AllocateFile(jobq_tool_env_file, "r");
	int			failure = 0;

	if (file == NULL)
		return NULL;
	initStringInfo(&text);
	while ((n = fread(block, 1, sizeof(block), file)) > 0 && text.len <= MAX_FILE)
		appendBinaryStringInfo(&text, block, (int) n);
	if (ferror(file))
		failure = errno;
	else if (text.len > MAX_FILE)
		failure = EFBIG;
	else if (memchr(text.data, '\0', text.len))
		failure = EILSEQ;
	FreeFile(file);
	errno = failure;
	return failure ? NULL : text.data;
}

static bool
is_set(void)
{
	return jobq_tool_env_file != NULL && jobq_tool_env_file[0] != '\0';
}

/* Returns the file's text, "" without one; or reports why it can't be read and returns NULL. */
static char *
file_text(int report_level)
{
	char	   *text = is_set() ? read_file() : pstrdup("");
	bool		has_nul = text == NULL && errno == EILSEQ;

	if (text == NULL)
		ereport(report_level,
				(has_nul ? errcode(ERRCODE_INVALID_PARAMETER_VALUE) : errcode_for_file_access(),
				 has_nul ? errmsg("jobq.tool_env_file \"%s\" has a NUL byte", jobq_tool_env_file) :
				 errmsg("could not read jobq.tool_env_file \"%s\": %m", jobq_tool_env_file)));
	return text;
}

char *
tool_env_file(void)
{
	return file_text(ERROR);
}

char *
tool_env_line(const char *text, const char *name)
{
	size_t		len = strlen(name);
	const char *line;

	for (line = text; *line; line += strspn(line, "\r\n"))
	{
		size_t		length = strcspn(line, "\r\n");

		if (length > len && strncmp(line, name, len) == 0 && line[len] == '=')
			return pnstrdup(line, length);
		line += length;
	}
	return NULL;
}

/* Returns why no tool gets a line of the text; NULL: one can, or it is a comment or empty. */
static const char *
trouble_of(const char *text, const char *line, size_t length)
{
	size_t		begin = strspn(line, " \t");
	const char *equals = memchr(line, '=', length);
	char	   *name;

	if (begin >= length || line[begin] == '#')
		return NULL;
	if (begin > 0)
		return "it begins with a space";
	if (equals == NULL)
		return "it has no \"=\"";
	if (!tool_env_is_name(line, equals - line))
		return strncmp(line, "export", 6) == 0 ? "\"export\" is not read" : "the text before \"=\" is not a name of letters, digits and \"_\"";
	name = pnstrdup(line, equals - line);
	if (tool_env_refused(name))
		return "a tool can't be given this name";
	/* the first line of this name is this one, unless it stands above */
	for (; text < line; text += strspn(text, "\r\n"))
	{
		if (strncmp(text, line, equals - line + 1) == 0)
			return "a line above has the same name";
		text += strcspn(text, "\r\n");
	}
	return NULL;
}

void
tool_env_check_file(void)
{
	char	   *text = file_text(WARNING);
	const char *line = text;
	int			number = 1;

	while (line && *line)
	{
		size_t		length = strcspn(line, "\r\n");
		const char *trouble = trouble_of(text, line, length);

		/* the text of the line may be a secret */
		if (trouble)
			ereport(WARNING,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("jobq.tool_env_file \"%s\", line %d is not used: %s", jobq_tool_env_file, number, trouble)));
		line += length;
		if (*line == '\r' && line[1] == '\n')
			line++;
		if (*line)
			line++;
		number++;
	}
}
