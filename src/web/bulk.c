/*
 * bulk.c
 *	  Actions on many jobs: a preview, then steps of up to 1,000.
 *
 * The preview counts the jobs of a filter, to 10,000 and for a second, and keeps
 * the filter with the newest id (of a purge, the time): jobs that come later are
 * not touched.  The start is a row of the audit, which the rows of its steps name.
 * A step is a transaction of its own, as the person that made the preview, and
 * goes on below the last id of the step before.  Its size follows the time that
 * steps take, far below the statement timeout; one that reaches it, or meets a
 * deadlock, is tried again with fewer jobs.  Jobs that can't be changed now stay
 * (jobq_internal._bulk_step).  The token serves that person only.
 *
 *	 PREVIEWED -> RUNNING			POST of the token
 *	 RUNNING -> done or failed		the last step; an error
 *	 RUNNING -> stopped				DELETE, after the step that runs
 *
 * A bulk ends with this program; what its steps have done stays.
 */
#include "bulk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "problem.h"
#include "statement.h"

#define MAX_BULKS		64
#define BULKS_A_PERSON	8		/* the oldest preview gives way */
#define KEEP_MS			(600 * SECOND)	/* after the last request or step */
#define FIRST_STEP		100
#define MAX_STEP		1000
#define MAX_FAILURES	4
#define SHORT_STEP		(300 * MS)
#define LONG_STEP		(1500 * MS)

typedef enum BulkState
{
	BULK_PREVIEWED,
	BULK_RUNNING,
	BULK_DONE,
	BULK_STOPPED,
	BULK_FAILED
} BulkState;

typedef struct Action
{
	const char *name;
	const char *keys;			/* of its filter, each with spaces around */
	const char *call;			/* in the audit */
	const char *preview;
} Action;

typedef struct Bulk
{
	char		token[TOKEN_LENGTH + 1];
	const Action *action;		/* NULL: the entry is free */
	Person	   *person;
	BulkState	state;
	char	   *filter;
	char	   *newest;
	char	   *audit;			/* id of its row */
	bool		begun;			/* the row has committed */
	char	   *below;			/* NULL: the first step */
	bool		more;
	long		step_n;			/* of a step whose commit is not known yet */
	char	   *step_below;
	bool		step_more;
	int			step;
	int			failures;		/* of the step, one after the other */
	uint64_t	began;			/* the step */
	long		n;
	bool		exact;
	long		done;
	char	   *error;
	Work	   *work;
	uint64_t	used;
} Bulk;

/*
 * Gives the number of jobs, with the id down to which they were looked for if
 * that took too long, and the newest id or time.
 */
#define PREVIEW(action, newest) \
	"WITH b AS MATERIALIZED (SELECT s.item, s.id FROM jobq_internal._search_bulk('" action "', $1::jsonb, NULL, NULL, 10001) s)" \
	" SELECT concat_ws(' ', count(b.item), (SELECT x.id FROM b x WHERE x.item IS NULL)), " newest " FROM b"
#define NEWEST_ID "(SELECT x.id FROM b x ORDER BY x.id DESC LIMIT 1)"

static const Action actions[] = {
	{"cancel", " job_type tenant payload_contains status include_running ", "cancel_jobs", PREVIEW("cancel", NEWEST_ID)},
	{"retry", " job_type tenant payload_contains error_like error_code error_pattern ", "retry_dead_letters", PREVIEW("retry", NEWEST_ID)},
	{"purge", " job_type tenant error_like error_code error_pattern ", "purge_dead_letters", PREVIEW("purge", "clock_timestamp()")},
};

static const char begin_sql[] = "SELECT jobq_internal._bulk_begin($1, $2::jsonb, $3::int8, $4::bool)";

/* Gives the number of jobs, and the id to go on below; NULL: no more. */
static const char step_sql[] =
"WITH b AS MATERIALIZED (SELECT s.item, s.id FROM jobq_internal._search_bulk($1, $2::jsonb, $3, $4::uuid, $5::int) s)"
" SELECT jobq_internal._bulk_step($6::int8, $7, $2::jsonb, ARRAY(SELECT b.id FROM b WHERE b.item IS NOT NULL ORDER BY b.id DESC)),"
" (SELECT b.id FROM b ORDER BY b.id OFFSET 0"
"  LIMIT CASE WHEN (SELECT count(*) = $5::int OR count(*) > count(b.item) FROM b) THEN 1 ELSE 0 END)";

static Bulk bulks[MAX_BULKS];

static void
forget(Bulk *b)
{
	person_release(b->person);
	free(b->filter);
	free(b->newest);
	free(b->audit);
	free(b->below);
	free(b->step_below);
	free(b->error);
	*b = (Bulk) {.action = NULL};
}

static uint64_t
forget_old(uint64_t now)
{
	int			i;

	for (i = 0; i < MAX_BULKS; i++)
	{
		if (bulks[i].action && !bulks[i].work && now - bulks[i].used >= KEEP_MS)
			forget(&bulks[i]);
	}
	return now + 60 * SECOND;
}

void
bulks_open(void)
{
	static Timer timer = {.at = 0,.due = forget_old};

	loop_timer(&timer);
}

/* ---------- the preview ---------- */

/* Returns the place of the name in the action's keys; NULL: it is none of them. */
static const char *
key_of(const Action *action, const JsonMember *m)
{
	Buf			word = {0};
	const char *place = NULL;

	buf_printf(&word, " %.*s ", (int) m->name_len, m->name);
	if (strcspn(word.data + 1, " ") == m->name_len)
		place = strstr(action->keys, word.data);
	buf_free(&word);
	return place;
}

static bool
refuse_key(Call *call, const JsonMember *m, const char *why)
{
	problem_argument(call->request, "filter", "argument \"filter\": key \"%.*s\" %s",
					 (int) (m->name_len < 60 ? m->name_len : 60), m->name, why);
	return false;
}

/*
 * True if the filter has only keys of the action, each once, and one that
 * chooses jobs: else the action would be one on all jobs.
 */
static bool
check_filter(Call *call, const Action *action, const char *filter)
{
	const char *place = filter;
	const char *end = filter + strlen(filter);
	const char *seen[8] = {NULL};
	int			nseen = 0;
	JsonMember	m;
	bool		chooses = false;

	while (*filter == '{' && json_member(&place, end, &m))
	{
		const char *key = key_of(action, &m);
		int			i;

		if (!key)
			return refuse_key(call, &m, "is unknown for this action");
		for (i = 0; i < nseen; i++)
		{
			if (seen[i] == key)
				return refuse_key(call, &m, "occurs twice");
		}
		seen[nseen++] = key;	/* no more than the action has */
		chooses |= strncmp(key, " include_running ", 17) != 0 && strncmp(key, " status ", 8) != 0 && *m.value != 'n';
	}
	if (!chooses)
		problem_argument(call->request, "filter", "argument \"filter\" chooses no jobs: give a type, a tenant, or what payloads or errors have");
	return chooses;
}

/*
 * Forgets the person's oldest one that does not run, if it has its share; false:
 * all of these run.
 */
static bool
make_room(const Person *person)
{
	Bulk	   *oldest = NULL;
	int			n = 0;
	int			i;

	for (i = 0; i < MAX_BULKS; i++)
	{
		Bulk	   *b = &bulks[i];

		if (!b->action || b->person != person)
			continue;
		n++;
		if (!b->work && b->state != BULK_RUNNING && (!oldest || b->used < oldest->used))
			oldest = b;
	}
	if (n < BULKS_A_PERSON)
		return true;
	if (oldest)
		forget(oldest);
	return oldest != NULL;
}

static Bulk *
new_bulk(Call *call, const Action *action)
{
	int			i;

	for (i = 0; i < MAX_BULKS; i++)
	{
		Bulk	   *b = &bulks[i];

		if (b->action)
			continue;
		token_make(b->token);
		b->action = action;
		b->person = call->person;
		person_hold(b->person);
		b->filter = mem_text(call_value(call, "filter"));
		b->step = FIRST_STEP;
		b->used = now_ms();
		return b;
	}
	return NULL;
}

static void
previewed(Call *call, const PgError *error)
{
	const Action *action = call->state;
	Buf		   *body = &call->request->reply.body;
	Buf			detail = {0};
	const char *early;
	Bulk	   *b;

	if (error)
	{
		problem_statement(call->request, error, strncmp(error->sqlstate, "22", 2) == 0 || strcmp(error->sqlstate, "42704") == 0 ?
						  "filter" : NULL);
		return;
	}
	if (!make_room(call->person))
	{
		buf_printf(&detail, "%d bulk actions of this user run already", BULKS_A_PERSON);
		problem_reply(call->request, 429, detail.data);
		buf_free(&detail);
		return;
	}
	b = new_bulk(call, action);
	if (!b)
	{
		problem_reply(call->request, 503, "too many bulk actions");
		return;
	}
	b->n = atol(call->items.data);
	early = strchr(call->items.data, ' ');
	b->exact = !early && b->n <= 10000;
	b->n = b->n > 10000 ? 10000 : b->n;
	b->newest = mem_text(call->last_key);
	b->more = b->n > 0 || early;
	buf_printf(body, "{\"n\":%ld,\"exact\":%s,\"token\":", b->n, b->exact ? "true" : "false");
	buf_json(body, b->token, TOKEN_LENGTH);
	if (early)
		add_searched_to(body, early + 1);
	buf_text(body, "}\n");
	call_reply(call, 200, JSON_TYPE);
}

void
bulk_preview(Call *call)
{
	const char *value = call_value(call, "action");
	char	   *name = json_string(value, strlen(value));
	const Action *action = actions;

	while (strcmp(action->name, name) != 0)
		action++;				/* the route knows these words only */
	free(name);
	if (check_filter(call, action, call_value(call, "filter")))
	{
		call->state = (void *) action;
		call->finished = previewed;
		call_run_values(call, action->preview, call_value(call, "filter"));
	}
}

/* ---------- the steps ---------- */

static void run_step(Bulk *b);

static bool
take_step(Work *work, const PGresult *result, int row)
{
	Bulk	   *b = work->owner;

	if (!b->begun)
	{
		free(b->audit);
		b->audit = mem_text(PQgetvalue(result, row, 0));
		return false;
	}
	b->step_n = atol(PQgetvalue(result, row, 0));
	b->step_more = !PQgetisnull(result, row, 1);
	free(b->step_below);
	b->step_below = b->step_more ? mem_text(PQgetvalue(result, row, 1)) : NULL;
	return false;
}

/* A step counts when it has committed: its commit may fail after its row. */
static void
count_step(Bulk *b)
{
	b->failures = 0;
	b->done += b->step_n;
	b->more = b->step_more;
	free(b->below);
	b->below = b->step_below;
	b->step_below = NULL;
}

/*
 * True if the step may be tried again: it took or waited too long, met a deadlock, or
 * cancelled too many running jobs.
 */
static bool
is_passing(const PgError *error)
{
	return strcmp(error->sqlstate, "57014") == 0 || strcmp(error->sqlstate, "55P03") == 0 || strcmp(error->sqlstate, "40P01") == 0 ||
		strcmp(error->sqlstate, "40001") == 0 || strcmp(error->sqlstate, "53400") == 0;
}

/* The next size; false: a step of one job has failed too often. */
static bool
fit_step(Bulk *b, bool failed)
{
	uint64_t	took = now_ms() - b->began;

	if (failed && ++b->failures >= MAX_FAILURES && b->step == 1)
		return false;
	if (failed || took > LONG_STEP)
		b->step = b->step > 4 ? b->step / 4 : 1;
	else if (took < SHORT_STEP)
		b->step = b->step < MAX_STEP / 2 ? b->step * 2 : MAX_STEP;
	return true;
}

static void
step_done(Work *work, const PgError *error)
{
	Bulk	   *b = work->owner;
	bool		passing = error && is_passing(error);

	b->work = NULL;
	b->used = now_ms();
	if (!error)
	{
		b->begun = true;
		count_step(b);
	}
	if (fit_step(b, passing) && passing && b->state == BULK_RUNNING)
		run_step(b);
	else if (passing && b->state == BULK_STOPPED)
		return;
	else if (error)
	{
		b->state = BULK_FAILED;
		b->error = mem_text(error->sqlstate[0] ? error->message.data : "the connection to PostgreSQL was lost");
	}
	else if (b->state == BULK_RUNNING && b->more)
		run_step(b);
	else if (b->state == BULK_RUNNING)
		b->state = BULK_DONE;
}

static void
begin_work(Bulk *b, Work *work)
{
	char		n[24];

	snprintf(n, sizeof(n), "%ld", b->n);
	buf_text(&work->sql, begin_sql);
	work_param(work, b->action->call);
	work_param(work, b->filter);
	work_param(work, n);
	work_param(work, b->exact ? "true" : "false");
}

static void
step_work(Bulk *b, Work *work)
{
	char		step[16];

	snprintf(step, sizeof(step), "%d", b->step);
	buf_text(&work->sql, step_sql);
	work_param(work, b->action->name);
	work_param(work, b->filter);
	work_param(work, b->newest);
	work_param(work, b->below);
	work_param(work, step);
	work_param(work, b->audit);
	work_param(work, b->action->call);
}

/* Runs the next step; the first one writes the row of the audit. */
static void
run_step(Bulk *b)
{
	Work	   *work;

	if (!b->more)
	{
		b->state = BULK_DONE;
		return;
	}
	b->began = now_ms();
	b->step_n = 0;
	b->step_more = !b->begun;
	work = work_new(b->person);
	if (b->begun)
		step_work(b, work);
	else
		begin_work(b, work);
	work->owner = b;
	work->on_row = take_step;
	work->on_done = step_done;
	b->work = work;
	if (pool_run(work))
		return;
	b->work = NULL;
	b->state = BULK_FAILED;
	b->error = mem_text("too many requests wait for PostgreSQL");
}

/* Finds the bulk of the token; NULL: the reply says that there is none. */
static Bulk *
bulk_of(Call *call)
{
	const char *token = call_value(call, "token");
	Bulk	   *found = NULL;
	int			i;

	for (i = 0; i < MAX_BULKS; i++)
	{
		if (bulks[i].action && bulks[i].person == call->person && same_secret(token, bulks[i].token))
			found = &bulks[i];
	}
	if (found)
		found->used = now_ms();
	else
		problem_reply(call->request, 404, "there is no such bulk action");
	return found;
}

static void
reply_state(Call *call, const Bulk *b)
{
	static const char *const names[] = {
		[BULK_PREVIEWED] = "previewed",[BULK_RUNNING] = "running",[BULK_DONE] = "done",[BULK_STOPPED] = "stopped",
		[BULK_FAILED] = "failed"
	};
	Buf		   *body = &call->request->reply.body;

	buf_printf(body, "{\"done\":%ld,\"total\":%ld,\"exact\":%s,\"state\":\"%s\"", b->done, b->n,
			   b->exact ? "true" : "false", names[b->state]);
	if (b->error)
	{
		buf_text(body, ",\"error\":");
		buf_json(body, b->error, strlen(b->error));
	}
	buf_text(body, "}\n");
	call_reply(call, 200, JSON_TYPE);
}

void
bulk_start(Call *call)
{
	Bulk	   *b = bulk_of(call);

	if (!b)
		return;
	if (b->state == BULK_PREVIEWED)
	{
		b->state = BULK_RUNNING;
		run_step(b);
	}
	reply_state(call, b);
}

void
bulk_get(Call *call)
{
	Bulk	   *b = bulk_of(call);

	if (b)
		reply_state(call, b);
}

void
bulk_stop(Call *call)
{
	Bulk	   *b = bulk_of(call);

	if (!b)
		return;
	if (b->state == BULK_PREVIEWED || b->state == BULK_RUNNING)
		b->state = BULK_STOPPED;
	reply_state(call, b);
}
