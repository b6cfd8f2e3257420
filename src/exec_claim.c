/*
 * exec_claim.c
 *	  Jobs that the dispatcher has handed to the exec worker: their rows say running, and that is
 *	  committed, before any tool starts; so a start is never forgotten.
 *
 * All that wait in the slot are claimed in one transaction.  When it fails, each is tried alone, and
 * one that fails alone is given back to be held for a while.  What can be decided without a tool (a
 * cancel, an attempt that died with the server, a command that can't be built, a right that is gone) is
 * settled right here.
 *
 * A tool that can't be started is this node's fault: its job is put back, and its type is held here for
 * a time that doubles, until a tool of it starts or the registry changes.
 */
#include "jobq.h"

#include <unistd.h>

#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"

#include "command.h"
#include "exec_job.h"
#include "options.h"

#define HOLD_MIN_MS 1000
#define HOLD_MAX_MS 60000

/* A type whose tool does not start on this node. */
typedef struct HeldType
{
	int32		type_id;
	int64		delay_ms;
	TimestampTz until;
	uint64		generation;		/* of the registry: a change ends the hold */
} HeldType;

static List *held_types = NIL;

/* What became of one job in the transaction; applied when that has committed. */
typedef struct Claim
{
	ExecJob    *job;
	bool		start;			/* else it is done with: verdict */
	Verdict		verdict;
	bool		settled;
	bool		failed;
	JobStatus	status;
	TimestampTz need;
	FrameStart	frame;
	Size		answer;
} Claim;

typedef struct ClaimBatch
{
	Ledger		ledger;
	Claim	   *claims;
	int			nclaims;
	bool		can_start;		/* there is a helper */
} ClaimBatch;

/* ---------- types that can't be started ---------- */

static HeldType *
find_held(int32 type_id)
{
	ListCell   *lc;

	foreach(lc, held_types)
	{
		HeldType   *held = lfirst(lc);

		if (held->type_id == type_id)
			return held;
	}
	return NULL;
}

static bool
is_held(int32 type_id)
{
	HeldType   *held = find_held(type_id);

	return held && held->generation == job_types_generation() && held->until > GetCurrentTimestamp();
}

void
exec_type_started(ExecJob *job)
{
	HeldType   *held = find_held(job->ref.type_id);

	if (held == NULL)
		return;
	held_types = list_delete_ptr(held_types, held);
	pfree(held);
	exec_trouble("");
}

bool
exec_type_broken(int32 type_id)
{
	HeldType   *held = find_held(type_id);
	MemoryContext caller = MemoryContextSwitchTo(ExecContext);
	bool		first = held == NULL || held->generation != job_types_generation();
	TimestampTz now = GetCurrentTimestamp();

	if (held == NULL)
	{
		held = palloc(sizeof(HeldType));
		held->type_id = type_id;
		held_types = lappend(held_types, held);
	}
	MemoryContextSwitchTo(caller);
	if (first)
		held->delay_ms = HOLD_MIN_MS;
	else if (held->until <= now)	/* jobs started together fail together: they count once */
		held->delay_ms = Min(held->delay_ms * 2, HOLD_MAX_MS);
	else
		return false;
	held->generation = job_types_generation();
	held->until = TimestampTzPlusMilliseconds(now, held->delay_ms);
	return first;
}

/* ---------- what a tool gets ---------- */

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

/* The members of options' array or object `key`, one call each: name and value, or element and NULL. */
static void
each_member(Jsonb *options, const char *key, void (*see) (void *arg, char *name, char *value),
			void *arg)
{
	JsonbValue	container;
	JsonbValue	v;
	JsonbIterator *it;
	JsonbIteratorToken token;
	char	   *name = NULL;

	if (getKeyJsonValueFromContainer(&options->root, key, (int) strlen(key), &container) == NULL ||
		container.type != jbvBinary)
		return;
	it = JsonbIteratorInit(container.val.binary.data);
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
	char	   *file;			/* contents of jobq.tool_env_file, read when needed */
} EnvBuild;

/* Adds NAME=value (len: of NAME) unless the name is set: what we set comes first and stays. */
static void
env_add_entry(EnvBuild *env, const char *entry, size_t len)
{
	const char *p;

	for (p = env->list.data; p < env->list.data + env->list.len; p += strlen(p) + 1)
	{
		if (strncmp(p, entry, len) == 0 && p[len] == '=')
			return;
	}
	list_add(&env->list, &env->count, entry);
}

static void
env_add(EnvBuild *env, const char *name, const char *value)
{
	env_add_entry(env, utf8_from_text(psprintf("%s=%s", name, value)), strlen(name));
}

/* Checked when the type was defined, and again: a row may have been written by hand. */
static void
check_env_name(const char *key, const char *name)
{
	if (name == NULL || name[0] == '\0' || strchr(name, '=') != NULL ||
		strncmp(name, "LD_", 3) == 0 || strncmp(name, "PYTHON", 6) == 0 ||
		strcmp(name, "PATH") == 0 || strcmp(name, "IFS") == 0 || strcmp(name, "BASH_ENV") == 0)
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

/* The lines NAME=value of jobq.tool_env_file. */
static char *
read_env_file(void)
{
	StringInfoData text;
	char		block[4096];
	size_t		n;
	FILE	   *file;

	initStringInfo(&text);
	if (jobq_tool_env_file == NULL || jobq_tool_env_file[0] == '\0')
		return text.data;
	file = AllocateFile(jobq_tool_env_file, "r");
	if (file == NULL)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not open jobq.tool_env_file \"%s\": %m", jobq_tool_env_file)));
	while ((n = fread(block, 1, sizeof(block), file)) > 0)
		appendBinaryStringInfo(&text, block, (int) n);
	FreeFile(file);
	return text.data;
}

/* Copies NAME=value from the file as it stands; a name that is not there is not set. */
static void
pass_env_option(void *arg, char *name, char *value)
{
	EnvBuild   *env = arg;
	const char *line;
	size_t		len;

	check_env_name("pass_env", name);
	if (env->file == NULL)
		env->file = read_env_file();
	len = strlen(name);
	for (line = env->file; *line; line += strspn(line, "\r\n"))
	{
		size_t		length = strcspn(line, "\r\n");

		if (length > len && strncmp(line, name, len) == 0 && line[len] == '=')
		{
			env_add_entry(env, pnstrdup(line, length), len);
			return;
		}
		line += length;
	}
}

static FrameList
build_env(Job *job, JobType *type)
{
	EnvBuild	env = {.count = 0, .file = NULL};
	FrameList	result;

	initStringInfo(&env.list);
	env_add(&env, "PATH", jobq_tool_path);
	env_add(&env, "JOBQ_JOB_ID",
			DatumGetCString(DirectFunctionCall1(uuid_out, JOB_ATT(job, Q_id))));
	env_add(&env, "JOBQ_JOB_TYPE", type->name);
	env_add(&env, "JOBQ_ATTEMPT", psprintf("%d", JOB_INT(job, Q_attempts)));
	env_add(&env, "JOBQ_MAX_ATTEMPTS", psprintf("%d", JOB_INT(job, Q_max_attempts)));
	if (!JOB_NULL(job, Q_tenant))
		env_add(&env, "JOBQ_TENANT", TextDatumGetCString(JOB_ATT(job, Q_tenant)));
	each_member(type->options, "env", add_env_option, &env);
	each_member(type->options, "pass_env", pass_env_option, &env);
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

/* How many lines of stderr the helper is to send besides. */
static int
log_lines(JobType *type)
{
	int			level = exec_log_level(type);

	if (level == 0 || !message_level_is_interesting(level))
		return 0;
	return option_int(type->options, "max_log_lines", 100);
}

static void
build_frame(Claim *claim, Job *job, JobType *type)
{
	FrameStart *f = &claim->frame;
	Jsonb	   *payload = DatumGetJsonbP(JOB_ATT(job, Q_payload));

	memset(f, 0, sizeof(*f));
	f->job = claim->job->number;
	f->argv = build_argv(type, payload);
	f->env = build_env(job, type);
	f->tool_path = frame_text(pstrdup(jobq_tool_path));
	f->stdin_data = frame_text(utf8_from_text(JsonbToCString(NULL, &payload->root, VARSIZE(payload))));
	f->timeout_us = (uint64) claim->job->timeout_us;
	f->kill_grace_us = (uint64) type->kill_grace_us;
	f->memory_max = (uint64) option_size(type->options, "memory_max", 0);
	f->max_output = (uint32) (type->max_output > 0 ? type->max_output : jobq_max_output);
	f->stderr_tail = FRAME_STDERR_TAIL;
	f->nofile = (uint32) option_int(type->options, "nofile", 256);
	f->log_lines = (uint32) log_lines(type);
	f->output = (uint8) type->output;
	/* sanitised output may be three times as long as what was written */
	claim->answer = (Size) f->max_output * 3 + 256 * 1024;
}

/*
 * Builds the frame in a subtransaction, so that a bad payload, option or file costs this job only.
 * NULL, or the error.
 */
static ErrorData *
try_build_frame(Claim *claim, Job *job, JobType *type)
{
	MemoryContext caller = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData  *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(ExecTurnContext);
	PG_TRY();
	{
		build_frame(claim, job, type);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(caller);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(caller);
	CurrentResourceOwner = owner;
	return error;
}

/* ---------- claiming ---------- */

/* Ends the job here and now, in the open transaction. */
static void
settle_now(ClaimBatch *batch, Claim *claim, Job *job, JobType *type, Outcome *outcome)
{
	outcome->ended_at = GetCurrentTimestamp();
	outcome->worker = MySlot->name;
	outcome->source = "helper";
	outcome->progress = get_float8_nan();
	claim->status = settle(&batch->ledger, job, type, outcome, &claim->need);
	claim->settled = claim->need == 0;
	claim->failed = outcome->kind == OUTCOME_FAILED;
	claim->verdict = claim->settled ? VERDICT_SETTLED : VERDICT_NO_PARTITION;
}

/* An attempt that is over before its tool could start. */
static void
fail_now(ClaimBatch *batch, Claim *claim, Job *job, JobType *type, const char *message, int sqlstate)
{
	Outcome		outcome = {.kind = OUTCOME_FAILED};

	outcome.started_at = GetCurrentTimestamp();
	outcome.message = unconstify(char *, message);
	outcome.code = unpack_sql_state(sqlstate);
	settle_now(batch, claim, job, type, &outcome);
}

/* Cancelled while it waited, or found running with nobody who runs it. */
static void
finish_without_tool(ClaimBatch *batch, Claim *claim, Job *job, JobType *type, Cell *cell)
{
	Outcome		outcome = {.kind = OUTCOME_FAILED};

	outcome.begun = job->status == JOB_RUNNING;
	if (outcome.begun && !JOB_NULL(job, Q_started_at))
		outcome.started_at = DatumGetTimestampTz(JOB_ATT(job, Q_started_at));
	if (cell->ref.flags & REF_CANCEL)
	{
		outcome.kind = OUTCOME_CANCELLED;
		outcome.message = cell->has_reason ? pstrdup(cell->reason) : NULL;
	}
	else
	{
		if (!outcome.begun)
			outcome.started_at = GetCurrentTimestamp();
		outcome.message = "the server or its exec worker stopped while the tool ran";
		outcome.code = "server_crash";
	}
	settle_now(batch, claim, job, type, &outcome);
}

/* Why the type may not run commands (any more); NULL: it may. */
static char *
missing_right(JobType *type)
{
	Oid			owner = get_role_oid(type->owner, true);
	Oid			run_as = get_role_oid(type->run_as, true);

	if (!OidIsValid(owner) || !OidIsValid(run_as))
		return psprintf("role \"%s\" of job type \"%s\" does not exist any more",
						OidIsValid(owner) ? type->run_as : type->owner, type->name);
	if (!has_privs_of_role(owner, ROLE_PG_EXECUTE_SERVER_PROGRAM))
		return psprintf("permission denied: owner \"%s\" of job type \"%s\" is no member of pg_execute_server_program",
						type->owner, type->name);
	return NULL;
}

static int64
job_timeout(Job *job, JobType *type)
{
	if (JOB_NULL(job, Q_timeout))
		return type->timeout_us;
	return interval_to_us(DatumGetIntervalP(JOB_ATT(job, Q_timeout)));
}

static const char *
node_name(void)
{
	static char name[256] = "";

	if (name[0] == '\0' && (gethostname(name, sizeof(name) - 1) != 0 || name[0] == '\0'))
		strlcpy(name, "localhost", sizeof(name));
	return name;
}

/* Writes the row as running. */
static void
mark_running(ClaimBatch *batch, ExecJob *x, Job *job)
{
	JOB_ATT(job, Q_status) = ObjectIdGetDatum(status_oid(JOB_RUNNING));
	JOB_ATT(job, Q_started_at) = TimestampTzGetDatum(x->started_at);
	JOB_ATT(job, Q_worker) = CStringGetTextDatum(MySlot->name);
	JOB_ATT(job, Q_node) = CStringGetTextDatum(node_name());
	JOB_ATT(job, Q_rev) = Int32GetDatum(JOB_INT(job, Q_rev) + 1);
	JOB_ATT(job, Q_runs) = Int32GetDatum(JOB_INT(job, Q_runs) + 1);
	job->nulls[Q_started_at - 1] = job->nulls[Q_worker - 1] = job->nulls[Q_node - 1] = false;
	job->nulls[Q_progress - 1] = job->nulls[Q_progress_data - 1] = true;
	table_update_row(&batch->ledger.queue, &job->tid, job->values, job->nulls);
	x->ref.tid = job->tid;
	x->ref.rev = JOB_INT(job, Q_rev);
	x->ref.attempts = JOB_INT(job, Q_attempts);
	x->ref.runs = JOB_INT(job, Q_runs);
}

/* Keeps what events need of the row when the transaction is over. */
static void
remember_row(ExecJob *x, Job *job)
{
	MemoryContext caller = MemoryContextSwitchTo(x->context);

	memset(x->row.nulls, true, sizeof(x->row.nulls));
	JOB_ATT(&x->row, Q_id) = UUIDPGetDatum(&x->ref.id);
	JOB_ATT(&x->row, Q_attempts) = JOB_ATT(job, Q_attempts);
	x->row.nulls[Q_id - 1] = x->row.nulls[Q_attempts - 1] = false;
	if (!JOB_NULL(job, Q_tenant))
	{
		JOB_ATT(&x->row, Q_tenant) = PointerGetDatum(PG_DETOAST_DATUM_COPY(JOB_ATT(job, Q_tenant)));
		x->row.nulls[Q_tenant - 1] = false;
	}
	MemoryContextSwitchTo(caller);
}

static void
claim_to_start(ClaimBatch *batch, Claim *claim, Job *job, JobType *type)
{
	ExecJob    *x = claim->job;
	ErrorData  *error;
	char	   *refusal = missing_right(type);

	if (refusal)
	{
		fail_now(batch, claim, job, type, refusal, ERRCODE_INSUFFICIENT_PRIVILEGE);
		return;
	}
	x->timeout_us = job_timeout(job, type);
	x->kill_grace_us = type->kill_grace_us;
	x->started_at = GetCurrentTimestamp();
	JOB_ATT(job, Q_attempts) = Int32GetDatum(JOB_INT(job, Q_attempts) + 1);
	error = try_build_frame(claim, job, type);
	if (error)
	{
		JOB_ATT(job, Q_attempts) = Int32GetDatum(JOB_INT(job, Q_attempts) - 1);
		fail_now(batch, claim, job, type, error->message, error->sqlerrcode);
		return;
	}
	mark_running(batch, x, job);
	remember_row(x, job);
	claim->start = true;
}

static void
claim_one(ClaimBatch *batch, Claim *claim)
{
	ExecJob    *x = claim->job;
	Cell	   *cell = &MySlot->cells[cell_of(x)];
	JobType    *type;
	Job			job;

	claim->start = claim->settled = false;
	claim->need = 0;
	claim->verdict = VERDICT_NOT_MINE;
	x->ref = cell->ref;
	if (queue_lock(&batch->ledger.queue, &x->ref, &job) != LOCK_OK)
		return;
	type = job_type_by_id(x->ref.type_id);
	if (cell->ref.flags & (REF_CANCEL | REF_LOST | REF_CRASHED | REF_DIED))
		finish_without_tool(batch, claim, &job, type, cell);
	else if (job.status == JOB_RUNNING)
		claim->verdict = VERDICT_NOT_MINE;
	else if (type == NULL || type->dropped || type->ncommand == 0 || !batch->can_start ||
			 is_held(type->id))
		claim->verdict = VERDICT_STUCK;
	else
		claim_to_start(batch, claim, &job, type);
}

static void
claim_batch(void *arg)
{
	ClaimBatch *batch = arg;
	int			i;

	ledger_open(&batch->ledger);
	for (i = 0; i < batch->nclaims; i++)
		claim_one(batch, &batch->claims[i]);
	ledger_close(&batch->ledger);
}

/* The claim is committed. */
static void
apply(Claim *claim)
{
	ExecJob    *x = claim->job;
	Cell	   *cell = &MySlot->cells[cell_of(x)];
	Frame		frame;

	if (!claim->start)
	{
		if (claim->settled)
		{
			pg_atomic_fetch_add_u64(&exec_db->settled, 1);
			if (claim->failed)
				pg_atomic_fetch_add_u64(&exec_db->failed_attempts, 1);
			if (claim->status >= JOB_COMPLETED)
				wake_waiters(exec_db, &x->ref.id, claim->status);
		}
		cell->need = claim->need;
		exec_forget(x, claim->verdict);
		return;
	}
	x->state = EXEC_STARTED;
	cell->started_at = x->started_at;
	frame.type = FRAME_START;
	frame.u.start = claim->frame;
	if (!helper_queue(&frame, claim->answer))
		exec_ended(x, FRAME_START_FAILED, E2BIG, "the frame for jobq-helper is too long");
}

static bool
run_batch(Claim *claims, int n, bool can_start)
{
	ClaimBatch	batch = {.claims = claims, .nclaims = n, .can_start = can_start};
	int			i;

	if (exec_in_transaction(claim_batch, &batch) != NULL)
		return false;
	for (i = 0; i < n; i++)
		apply(&claims[i]);
	return true;
}

static void
take(Claim *claim, int cellno)
{
	static uint64 last_number = 0;
	ExecJob    *x = &exec_jobs[cellno];

	Assert(x->state == EXEC_FREE);
	memset(x, 0, sizeof(*x));
	x->state = EXEC_TAKEN;
	x->context = AllocSetContextCreate(ExecContext, "jobq exec job", ALLOCSET_SMALL_SIZES);
	x->number = (++last_number << 8) | (uint64) cellno;
	x->progress = get_float8_nan();
	memset(claim, 0, sizeof(*claim));
	claim->job = x;
}

/* No helper now, but soon: what was handed over can stay where it is. */
static bool
helper_comes_soon(void)
{
	TimestampTz at = helper_retry_at();

	return at != DT_NOEND && !TimestampDifferenceExceeds(GetCurrentTimestamp(), at, 1000);
}

bool
exec_has_assigned(void)
{
	return pg_atomic_read_u32(&MySlot->head) != pg_atomic_read_u32(&MySlot->tail);
}

void
exec_claim(void)
{
	Claim	   *claims;
	bool		can_start;
	int			n = 0;
	int			i;
	int			cellno;

	if (!exec_has_assigned())
		return;
	can_start = helper_ready();
	if (!can_start && helper_comes_soon())
		return;
	claims = MemoryContextAlloc(ExecTurnContext, sizeof(Claim) * JOBQ_CELLS);
	while (n < JOBQ_CELLS && (cellno = slot_next()) >= 0)
		take(&claims[n++], cellno);
	if (n == 0)
		return;
	if (!run_batch(claims, n, can_start))
	{
		for (i = 0; i < n; i++)
		{
			if (!run_batch(&claims[i], 1, can_start))
				exec_forget(claims[i].job, VERDICT_STUCK);
		}
	}
	slot_report();
}
