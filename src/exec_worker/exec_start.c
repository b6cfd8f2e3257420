/*
 * exec_start.c
 *	  Builds the START frame: arguments, environment, the payload on stdin, and
 *	  limits of a tool.
 *
 * A warm tool gets the job as a line of JSON, and nothing of it in its
 * environment.
 *
 * All texts are UTF-8. The environment begins empty.  jobq's variables come
 * first, then options.env, then the names of options.pass_env with their
 * values in jobq.tool_env_file.  The first value of a name counts.
 */
#include "jobq.h"

#include "access/xact.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/json.h"
#include "utils/memutils.h"

#include "base/subtransaction.h"
#include "base/tool_env.h"
#include "exec_worker/exec_internal.h"
#include "registry/command_template.h"
#include "registry/options.h"

#define MAX_ENV 1000
#define WARM_IDLE_US (10 * USECS_PER_MINUTE)

static void
list_add(StringInfo list, uint32 *count, const char *item)
{
	appendBinaryStringInfo(list, item, (int) strlen(item) + 1);
	(*count)++;
}

static char *
json_scalar_text(JsonbValue *v)
{
	switch (v->type)
	{
		case jbvString:
			return pnstrdup(v->val.string.val, v->val.string.len);
		case jbvNumeric:
			return DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(v->val.numeric)));
		case jbvBool:
			return v->val.boolean ? "true" : "false";
		default:
			return NULL;
	}
}

/*
 * Calls see for each member of an object, with name and value, and for each
 * element of an array, with the element and NULL.
 */
static void
each_member(JsonbContainer *container, void (*see) (void *arg, char *name, char *value), void *arg)
{
	JsonbValue	v;
	JsonbIterator *it = JsonbIteratorInit(container);
	JsonbIteratorToken token;
	char	   *name = NULL;

	while ((token = JsonbIteratorNext(&it, &v, true)) != WJB_DONE)
	{
		if (token == WJB_KEY)
			name = pnstrdup(v.val.string.val, v.val.string.len);
		else if (token == WJB_VALUE)
			see(arg, name, json_scalar_text(&v));
		else if (token == WJB_ELEM)
			see(arg, json_scalar_text(&v), NULL);
	}
}

typedef struct EnvBuild
{
	StringInfoData list;		/* NAME=value, each ended by a NUL */
	uint32		count;
	char	   *file;			/* contents of jobq.tool_env_file, read on
								 * first use */
} EnvBuild;

/*
 * Adds NAME=value (len: of NAME) unless the name is set; so jobq's variables
 * can't be replaced.
 */
static void
env_add_entry(EnvBuild *env, const char *entry, size_t len)
{
	const char *p;

	for (p = env->list.data; p < env->list.data + env->list.len; p += strlen(p) + 1)
	{
		if (strncmp(p, entry, len) == 0 && p[len] == '=')
			return;
	}
	if (env->count >= MAX_ENV)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("a tool can't be given more than %d environment variables", MAX_ENV)));
	list_add(&env->list, &env->count, entry);
}

static void
env_add(EnvBuild *env, const char *name, const char *value)
{
	env_add_entry(env, utf8_from_text(psprintf("%s=%s", name, value)), strlen(name));
}

/*
 * Raises an error for a name that a tool can't be given.  The definition of
 * the type was checked too, but a row may have been written by hand.
 */
static void
check_env_name(const char *key, const char *name)
{
	if (name == NULL || !tool_env_is_name(name, strlen(name)) || tool_env_refused(name))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"%s\" names an environment variable that a tool can't be given: \"%s\"",
						key, name ? name : "")));
}

static void
add_env_option(void *arg, char *name, char *value)
{
	check_env_name("env", name);
	if (value)
		env_add(arg, name, value);
}

/* Copies NAME=value from the file, unchanged. A missing name is not set. */
static void
pass_env_option(void *arg, char *name, char *value)
{
	EnvBuild   *env = arg;
	char	   *line;

	check_env_name("pass_env", name);
	if (env->file == NULL)
		env->file = tool_env_file();
	line = tool_env_line(env->file, name);
	if (line)
		env_add_entry(env, line, strlen(name));
}

static char *
id_text(Job *job)
{
	return DatumGetCString(DirectFunctionCall1(uuid_out, JOB_ATT(job, Q_id)));
}

/*
 * Adds the variables of the job.  A warm instance reads them with each job
 * instead.
 */
static void
add_job_env(EnvBuild *env, Job *job)
{
	env_add(env, "JOBQ_JOB_ID", id_text(job));
	env_add(env, "JOBQ_ATTEMPT", psprintf("%d", JOB_INT(job, Q_attempts)));
	env_add(env, "JOBQ_MAX_ATTEMPTS", psprintf("%d", JOB_INT(job, Q_max_attempts)));
	if (!JOB_NULL(job, Q_tenant))
		env_add(env, "JOBQ_TENANT", TextDatumGetCString(JOB_ATT(job, Q_tenant)));
}

static FrameList
build_env(Job *job, JobType *type, bool warm)
{
	EnvBuild	env = {.count = 0, .file = NULL};
	JsonbValue	names;
	FrameList	result;

	initStringInfo(&env.list);
	env_add(&env, "PATH", jobq_tool_path);
	env_add(&env, "JOBQ_JOB_TYPE", type->name);
	if (!warm)
		add_job_env(&env, job);
	if (type->env != NULL)
		each_member(&type->env->root, add_env_option, &env);
	if (getKeyJsonValueFromContainer(&type->options->root, "pass_env", 8, &names) != NULL &&
		names.type == jbvBinary)
		each_member(names.val.binary.data, pass_env_option, &env);
	env_add(&env, "LANG", "C.UTF-8");
	result.data = env.list.data;
	result.len = (uint32) env.list.len;
	result.count = env.count;
	return result;
}

static FrameList
build_argv(JobType *type, Jsonb *payload)
{
	StringInfoData list;
	FrameList	result;
	int			argc;
	char	  **argv = command_build(type, payload, &argc);
	int			i;

	initStringInfo(&list);
	result.count = 0;
	for (i = 0; i < argc; i++)
		list_add(&list, &result.count, argv[i]);
	result.data = list.data;
	result.len = (uint32) list.len;
	return result;
}

/* Returns the number of stderr lines that the helper also sends as events. */
static int
log_lines(JobType *type)
{
	int			level = exec_log_level(type);

	if (level == 0 || !message_level_is_interesting(level))
		return 0;
	return option_int(type->options, "max_log_lines", 100);
}

static char *
payload_text(Jsonb *payload)
{
	return JsonbToCString(NULL, &payload->root, VARSIZE(payload));
}

/* Builds the line that a warm tool reads. The text of jsonb has no newline. */
static char *
build_line(Job *job, JobType *type, Jsonb *payload)
{
	StringInfoData line;

	initStringInfo(&line);
	appendStringInfo(&line, "{\"id\": \"%s\", \"job_type\": ", id_text(job));
	escape_json(&line, type->name);
	appendStringInfo(&line, ", \"attempt\": %d, \"max_attempts\": %d, \"tenant\": ",
					 JOB_INT(job, Q_attempts), JOB_INT(job, Q_max_attempts));
	if (JOB_NULL(job, Q_tenant))
		appendStringInfoString(&line, "null");
	else
		escape_json(&line, TextDatumGetCString(JOB_ATT(job, Q_tenant)));
	appendStringInfo(&line, ", \"payload\": %s}", payload_text(payload));
	return line.data;
}

static void
build_warm(FrameStart *f, Job *job, JobType *type)
{
	f->warm = (uint32) option_int(type->options, "warm", 0);
	f->warm_max_jobs = (uint32) option_int(type->options, "warm_max_jobs", 0);
	f->warm_memory = (uint64) option_size(type->options, "warm_memory", 0);
	f->warm_idle_us = (uint64) option_interval(type->options, "warm_idle", WARM_IDLE_US);
	f->pool = (uint64) type->id;
	f->id = frame_text(id_text(job));
}

static void
build_frame(ExecJob *x, Job *job, JobType *type, FrameStart *f, Size *answer)
{
	Jsonb	   *payload = DatumGetJsonbP(JOB_ATT(job, Q_payload));

	x->warm = option_int(type->options, "warm", 0) > 0;
	x->stall_us = type->stall_us;
	x->tool_hash = job_type_tool_hash(type);
	memset(f, 0, sizeof(*f));
	f->job = x->number;
	f->argv = build_argv(type, payload);
	f->env = build_env(job, type, x->warm);
	f->tool_path = frame_text(pstrdup(jobq_tool_path));
	f->stdin_data = frame_text(utf8_from_text(x->warm ? build_line(job, type, payload) :
											  payload_text(payload)));
	f->timeout_us = (uint64) x->timeout_us;
	f->stall_us = (uint64) x->stall_us;
	f->kill_grace_us = (uint64) type->kill_grace_us;
	f->memory_max = (uint64) option_size(type->options, "memory_max", 0);
	f->max_output = (uint32) (type->max_output > 0 ? type->max_output : jobq_max_output);
	f->stderr_tail = FRAME_STDERR_TAIL;
	f->nofile = (uint32) option_int(type->options, "nofile", EXEC_NOFILE);
	f->log_lines = (uint32) log_lines(type);
	f->cpu_seconds = (uint32) option_int(type->options, "cpu_seconds", 0);
	f->output = (uint8) type->output;
	if (x->warm)
		build_warm(f, job, type);
	/*
	 * repaired output has up to three times its bytes; longer output is
	 * refused
	 */
	*answer = Min((Size) f->max_output * 3 + 256 * 1024, FRAME_MAX_LIMIT);
}

typedef struct Building
{
	ExecJob    *x;
	Job		   *job;
	JobType    *type;
	FrameStart *frame;
	Size	   *answer;
} Building;

static void
build(void *arg)
{
	Building   *b = arg;
	MemoryContext old = MemoryContextSwitchTo(ExecTurnContext);

	build_frame(b->x, b->job, b->type, b->frame, b->answer);
	MemoryContextSwitchTo(old);
}

/*
 * Builds the frame in a subtransaction, so that a bad payload, option or file
 * fails this job only.
 */
ErrorData *
exec_build_start(ExecJob *x, Job *job, JobType *type, FrameStart *frame, Size *answer)
{
	Building	building = {x, job, type, frame, answer};

	return try_subtransaction(build, &building);
}
