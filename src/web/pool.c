/*
 * pool.c
 *	  Transactions for requests, and the connections that run them.
 *
 * A person has four connections at most, all persons together 32.  Work that
 * finds none waits in one queue in the order of its arrival, of which no person
 * may fill more than two thirds; where the limit of all is reached, an idle
 * connection of another person is closed for it.  Connections that were idle
 * for 30 s are closed, and none is used for longer than five minutes: then the
 * password, and with it the role's right to sign in, is checked again.
 *
 * A work is one pipeline and so one transaction: settings for it, then its
 * statement, read row by row.  Where a reading work wants no more rows and many
 * come, its connection is closed: the server stops.  When a connection breaks
 * before any result has come, a reading work is tried once more on a new
 * connection; after a lost one of a writing work it is not known whether it has
 * committed, and the client is told so.
 */
#include "pool.h"

#include <stdlib.h>
#include <string.h>

#define IDLE_MS			(30 * SECOND)
#define WORK_MS			(8 * SECOND)	/* more than statement_timeout */
#define QUEUE_MS		(10 * SECOND)
#define FULL_MS			(100 * MS)
#define UNPROVEN_LINKS	8		/* at once, for roles that have not signed in yet */
#define UNPROVEN_QUEUED 50
#define MAX_DROPPED		(1024 * 1024)	/* bytes of rows that nothing wants */

typedef struct Pooled
{
	Link	   *link;
	Work	   *work;			/* NULL: idle, or being opened */
	uint64_t	idle_since;
} Pooled;

static Pooled pooled[MAX_LINKS];
static int	npooled = 0;
static Work *queue = NULL;
static int	nqueued = 0;
static uint64_t check_pool(uint64_t now);
static Timer timer = {.at = 0, .due = check_pool};

static void serve_queue(void);

Work *
work_new(Person *person)
{
	Work	   *work = mem_zero(sizeof(Work));

	work->person = person;
	person_hold(person);
	return work;
}

void
work_param(Work *work, const char *value)
{
	if (work->nparams < MAX_PARAMS)
		work->params[work->nparams++] = value ? mem_text(value) : NULL;
}

static void
work_free(Work *work)
{
	int			i;

	for (i = 0; i < work->nparams; i++)
		free(work->params[i]);
	buf_free(&work->sql);
	pg_error_free(&work->error);
	person_release(work->person);
	free(work);
}

void
work_abandon(Work *work)
{
	work->owner = NULL;
}

static void
finish(Work *work, const PgError *error)
{
	if (work->owner)
		work->on_done(work, error);
	work_free(work);
}

static void
fail(Work *work, const char *sqlstate, const char *message)
{
	PgError		error = {.sqlstate = ""};

	memcpy(error.sqlstate, sqlstate, strlen(sqlstate) + 1);
	buf_text(&error.message, message);
	finish(work, &error);
	pg_error_free(&error);
}

static Pooled *
pooled_of(const Link *link)
{
	int			i;

	for (i = 0; i < npooled; i++)
	{
		if (pooled[i].link == link)
			return &pooled[i];
	}
	return NULL;
}

static void
close_pooled(Pooled *p)
{
	link_close(p->link);
	*p = pooled[--npooled];
}

/* Takes the first queued work of the person; NULL: none. */
static Work *
dequeue(const Person *person)
{
	Work	  **place = &queue;

	while (*place)
	{
		Work	   *work = *place;

		if (work->person == person)
		{
			*place = work->next;
			work->next = NULL;
			nqueued--;
			return work;
		}
		place = &work->next;
	}
	return NULL;
}

/* ---------- the pipeline of a work ---------- */

static bool
needs_settings(const Work *work)
{
	return work->read_only || work->person->user != NULL;
}

static bool
send_settings(PGconn *pg, const Work *work)
{
	const char *values[2] = {work->person->user, work->read_only ? "on" : "off"};

	if (!work->person->user)
		return PQsendQueryParams(pg, "SELECT pg_catalog.set_config('transaction_read_only', 'on', true)",
								 0, NULL, NULL, NULL, NULL, 0);
	return PQsendQueryParams(pg, "SELECT pg_catalog.set_config('jobq.web_user', $1, true),"
							 " CASE WHEN $2 = 'on' THEN pg_catalog.set_config('transaction_read_only', 'on', true) END",
							 2, NULL, values, NULL, NULL, 0);
}

static bool
send_work(Link *link, Work *work)
{
	PGconn	   *pg = link->pg;

	if (!PQenterPipelineMode(pg))
		return false;
	if (needs_settings(work) && !send_settings(pg, work))
		return false;
	return PQsendQueryParams(pg, work->sql.data, work->nparams, NULL, (const char *const *) work->params, NULL,
							 NULL, 0) &&
		PQpipelineSync(pg) && link_flush(link);
}

static void
start_work(Pooled *p, Work *work)
{
	p->work = work;
	work->step = needs_settings(work) ? 0 : 1;
	work->fresh = false;
	p->link->deadline = now_ms() + WORK_MS;
	if (!send_work(p->link, work))
		p->link->deadline = 0;	/* check_pool() reports it, not from within a caller */
	else if (work->step == 1)
		PQsetSingleRowMode(p->link->pg);
	if (p->link->deadline == 0)
		timer_by(&timer, 0);
	else
		timer_by(&timer, p->link->deadline);
}

static void
take_rows(Work *work, const PGresult *result)
{
	int			row;

	for (row = 0; row < PQntuples(result) && work->step == 1; row++)
	{
		work->answered = true;
		if (work->full)
			work->dropped += (size_t) PQgetlength(result, row, 0);
		if (work->owner && work->on_row && !work->full)
			work->full = !work->on_row(work, result, row);
	}
}

/* The connection is idle or closed before anything is told: that may start more work. */
static void
end_work(Pooled *p)
{
	Link	   *link = p->link;
	Work	   *work = p->work;
	uint64_t	now = now_ms();

	p->work = NULL;
	p->idle_since = now;
	link->deadline = NEVER;
	if (!PQexitPipelineMode(link->pg) || now - link->opened >= CHECK_AGAIN_MS || link->person->refused)
		close_pooled(p);
	finish(work, work->error.message.len > 0 ? &work->error : NULL);
	serve_queue();
}

/* Ends a reading work whose rows fill its page. */
static void
end_full(Pooled *p)
{
	Work	   *work = p->work;

	close_pooled(p);
	finish(work, NULL);
	serve_queue();
}

static void
take_input(Link *link)
{
	Pooled	   *p = pooled_of(link);

	while (p->work && !PQisBusy(link->pg))
	{
		PGresult   *result = PQgetResult(link->pg);
		ExecStatusType status = result ? PQresultStatus(result) : PGRES_EMPTY_QUERY;

		if (!result)
		{
			/* the end of one statement */
			p->work->step++;
			if (p->work->step == 1)
				PQsetSingleRowMode(link->pg);
			else if (p->work->step > 2)
			{
				link_lost(link);
				return;
			}
			continue;
		}
		if (status == PGRES_SINGLE_TUPLE || status == PGRES_TUPLES_OK)
			take_rows(p->work, result);
		else if (status == PGRES_FATAL_ERROR)
			pg_error_of(&p->work->error, result);
		PQclear(result);
		if (p->work->read_only && p->work->dropped > MAX_DROPPED)
		{
			end_full(p);
			return;
		}
		if (status == PGRES_FATAL_ERROR && PQstatus(link->pg) == CONNECTION_BAD)
		{
			link_lost(link);
			return;
		}
		if (status == PGRES_PIPELINE_SYNC)
		{
			end_work(p);
			return;
		}
	}
	if (!p->work && PQstatus(link->pg) == CONNECTION_BAD)
		link_lost(link);
}

/* ---------- connections ---------- */

static void
opened(Link *link)
{
	Pooled	   *p = pooled_of(link);
	Work	   *work = dequeue(link->person);

	p->idle_since = now_ms();
	if (work)
		start_work(p, work);
	serve_queue();
}

/* Fails the person's queued works: its sign-in has failed. */
static void
fail_queued(const Person *person, const PgError *error)
{
	Work	   *work;
	Work	   *failed = NULL;
	Work	  **end = &failed;

	while ((work = dequeue(person)) != NULL)
	{
		*end = work;
		end = &work->next;
	}
	while (failed)
	{
		work = failed;
		failed = work->next;
		finish(work, error);
	}
}

/* Puts a work back to the head of the queue. */
static void
requeue(Work *work)
{
	work->tried = true;
	pg_error_free(&work->error);
	work->deadline = now_ms() + QUEUE_MS;
	work->next = queue;
	queue = work;
	nqueued++;
}

static void
lost(Link *link, const PgError *error)
{
	Pooled	   *p = pooled_of(link);
	Work	   *work = p->work;
	bool		was_open = link->open;
	Person	   *person = link->person;

	person_hold(person);
	close_pooled(p);
	if (work && work->read_only && !work->answered && !work->tried && was_open)
		requeue(work);
	else if (work && work->error.sqlstate[0])
		finish(work, &work->error); /* as 57P01 */
	else if (work)
		fail(work, work->read_only ? "08006" : "08007", work->read_only ? "the connection to PostgreSQL was lost" :
			 "the connection to PostgreSQL was lost; the change may have been made or not");
	if (!was_open && person->proven && strcmp(error->sqlstate, "53300") == 0)
	{
		person->full_until = now_ms() + FULL_MS;	/* its works wait for those that it has, or for room */
		timer_by(&timer, person->full_until);
	}
	else if (!was_open)
		fail_queued(person, error);
	person_release(person);
	serve_queue();
}

static bool
close_an_idle_one(const Person *but)
{
	Pooled	   *oldest = NULL;
	int			i;

	for (i = 0; i < npooled; i++)
	{
		if (pooled[i].link->open && !pooled[i].work && pooled[i].link->person != but &&
			(!oldest || pooled[i].idle_since < oldest->idle_since))
			oldest = &pooled[i];
	}
	if (oldest)
		close_pooled(oldest);
	return oldest != NULL;
}

static Pooled *
idle_of(const Person *person)
{
	int			i;

	for (i = 0; i < npooled; i++)
	{
		if (pooled[i].link->open && !pooled[i].work && pooled[i].link->person == person &&
			now_ms() - pooled[i].link->opened < CHECK_AGAIN_MS)
			return &pooled[i];
	}
	return NULL;
}

static int
opening_for(const Person *person)
{
	int			n = 0;
	int			i;

	for (i = 0; i < npooled; i++)
		n += !pooled[i].link->open && pooled[i].link->person == person;
	return n;
}

/* Sign-ins of made-up roles must leave room for those that are in. */
static int
opening_unproven(void)
{
	int			n = 0;
	int			i;

	for (i = 0; i < npooled; i++)
		n += !pooled[i].link->open && !pooled[i].link->person->proven;
	return n;
}

static int
queued_of(const Person *person)
{
	const Work *w;
	int			n = 0;

	for (w = queue; w; w = w->next)
		n += w->person == person;
	return n;
}

static int
queued_unproven(void)
{
	const Work *w;
	int			n = 0;

	for (w = queue; w; w = w->next)
		n += !w->person->proven;
	return n;
}

/* Opens a connection for a queued work, if the limits allow it. */
static void
open_for(const Work *work, int waiting)
{
	Person	   *person = work->person;
	Link	   *link;
	int			opening = opening_for(person);

	if (opening >= waiting || (opening > 0 && !person->proven) || person->refused)
		return;
	if (!person->proven && opening_unproven() >= UNPROVEN_LINKS)
		return;
	if (person->links >= LINKS_A_PERSON || now_ms() < person->full_until)
	{
		Pooled	   *idle = work->fresh ? idle_of(person) : NULL;

		if (!idle)
			return;
		close_pooled(idle);
	}
	if (npooled == MAX_LINKS && !close_an_idle_one(person))
		return;
	link = link_open(person);
	link->on_open = opened;
	link->on_lost = lost;
	link->on_input = take_input;
	pooled[npooled++] = (Pooled) {.link = link, .idle_since = now_ms()};
	timer_by(&timer, link->deadline);
}

/* Counts the queued works of the work's person up to itself. */
static int
place_in_queue(const Work *work)
{
	const Work *w;
	int			n = 1;

	for (w = queue; w && w != work; w = w->next)
		n += w->person == work->person;
	return n;
}

/* Gives queued works a connection: an idle one, or a new one. */
static void
serve_queue(void)
{
	Work	  **place = &queue;

	while (*place)
	{
		Work	   *work = *place;
		Pooled	   *idle = work->fresh ? NULL : idle_of(work->person);

		if (idle)
		{
			*place = work->next;
			work->next = NULL;
			nqueued--;
			start_work(idle, work);
			continue;
		}
		open_for(work, place_in_queue(work));
		place = &work->next;
	}
}

bool
pool_run(Work *work)
{
	Work	  **end = &queue;

	if (nqueued >= MAX_QUEUED || queued_of(work->person) >= QUEUED_A_PERSON || work->person->refused ||
		(!work->person->proven && queued_unproven() >= UNPROVEN_QUEUED))
	{
		work_free(work);
		return false;
	}
	work->deadline = now_ms() + QUEUE_MS;
	while (*end)
		end = &(*end)->next;
	*end = work;
	nqueued++;
	timer_by(&timer, work->deadline);
	serve_queue();
	return true;
}

/* Fails works that have waited for too long. */
static uint64_t
check_queue(uint64_t now)
{
	uint64_t	next = NEVER;
	Work	  **place = &queue;

	while (*place)
	{
		Work	   *work = *place;

		if (work->deadline > now && work->owner)
		{
			next = work->deadline < next ? work->deadline : next;
			place = &work->next;
			continue;
		}
		*place = work->next;
		work->next = NULL;
		nqueued--;
		fail(work, "53300", "no connection to the server was free in time");
		place = &queue;			/* on_done may have changed the queue */
	}
	return next;
}

/* Closes what was idle or in use for too long, reports what has hung. */
static uint64_t
check_pool(uint64_t now)
{
	uint64_t	next = now + SECOND;
	int			i;

	for (i = npooled - 1; i >= 0; i--)
	{
		Pooled	   *p = &pooled[i];

		if (p->link->deadline <= now)
		{
			link_check(p->link, now);
			i = npooled;		/* the list may have changed */
		}
		else if (p->link->open && !p->work &&
				 (now - p->idle_since >= IDLE_MS || now - p->link->opened >= CHECK_AGAIN_MS || p->link->person->refused))
			close_pooled(p);
		else if (p->link->deadline < next)
			next = p->link->deadline;
	}
	now = check_queue(now);
	persons_expire(now_ms());
	serve_queue();
	return npooled == 0 && !queue ? NEVER : now < next ? now : next;
}

void
pool_open(void)
{
	loop_timer(&timer);
}
