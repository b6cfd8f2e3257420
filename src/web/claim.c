/*
 * claim.c
 *	  POST claim: jobs for a worker, at once or when there are some.
 *
 * A claim that finds no job and may wait leaves its connection.  It listens to
 * the channels of its types (notify.c) and claims again when one of them is
 * notified, when listening has begun, and every few seconds in case a
 * notification was lost.  One notification wakes one claim, the one that has
 * waited longest; one that got jobs wakes the next, since there may be more.
 * One that got none passes the notification on to the next of another role,
 * which may see other jobs.
 *
 *	 CLAIMING		a statement runs
 *	 CLAIMING -> WAITING	it found none, and there is time left
 *	 WAITING -> CLAIMING	a notification, or next_look
 *	 WAITING -> replied		the time is up, or the client has left
 *
 * Jobs that were claimed for a client that has left are given back.
 */
#include "claim.h"

#include <stdlib.h>
#include <string.h>

#include "notify.h"
#include "problem.h"
#include "statement.h"

#define MAX_WAIT_MS			(20 * SECOND)	/* as jobq.claim */
#define LOOK_AGAIN_MS		(5 * SECOND)
#define LOOK_BLIND_MS		(1 * SECOND)	/* without channels */
#define MAX_CLAIM_CHANNELS	16

/* Its channels, none for all types, and the time to wait in milliseconds. */
static const char wait_sql[] =
"SELECT CASE WHEN t IS NULL THEN '' ELSE jobq.channel(t) END, (extract(epoch FROM least({wait}, interval '20s')) * 1000)::int8 FROM unnest(coalesce({job_types}, ARRAY[NULL])) t";
static const char release_sql[] =
"SELECT jobq.snooze_job(r.id, r.lease_token) FROM json_to_recordset($1::json) r(id uuid, lease_token uuid)";

typedef struct Claim Claim;
struct Claim
{
	Call	   *call;
	bool		claiming;
	bool		again;			/* notified meanwhile */
	bool		deaf;			/* to some of its types: there are too many */
	uint64_t	wake;			/* the notification that woke it; 0: none */
	bool		gone;			/* the client has left */
	uint64_t	deadline;		/* 0: not known yet */
	uint64_t	next_look;
	char	   *channels[MAX_CLAIM_CHANNELS];
	int			nchannels;
	Claim	   *next;
};

static Claim *claims = NULL;	/* the oldest first */
static uint64_t wakes = 0;
static bool ending = false;		/* a claim waits no longer */
static uint64_t look_at_claims(uint64_t now);
static Timer timer = {.at = NEVER, .due = look_at_claims};

static void claimed(Call *call, const PgError *error);

static bool
same_database(const Claim *c, const char *database)
{
	const char *own = c->call->person->database;

	return own == database || (own && database && strcmp(own, database) == 0);
}

static void
leave_list(Claim *c)
{
	Claim	  **place = &claims;
	const Claim *other;

	while (*place && *place != c)
		place = &(*place)->next;
	if (!*place)
		return;
	*place = c->next;
	for (other = claims; other; other = other->next)
	{
		if (same_database(other, c->call->person->database))
			return;
	}
	notify_idle(c->call->person->database);
}

/* Runs a statement; a claim that was refused is over. */
static void
run(Claim *c, const char *sql, bool read_only, void (*finished) (Call *call, const PgError *error))
{
	c->claiming = true;
	c->call->finished = finished;
	call_run_sql(c->call, sql, read_only);
	if (!c->call->work)
		leave_list(c);
}

static void
run_claim(Claim *c)
{
	c->again = false;
	run(c, c->call->route->sql, false, claimed);
}

static void
free_claim(Call *call)
{
	Claim	   *c = call->state;
	int			i;

	leave_list(c);
	for (i = 0; i < c->nchannels; i++)
		free(c->channels[i]);
	free(c);
}

static void
released(Work *work, const PgError *error)
{
	(void) work;
	if (error)
		log_line("claimed jobs of a client that has left wait for the end of their leases: %s", error->message.data);
}

static void
release_jobs(const Call *call)
{
	Work	   *work = work_new(call->person);
	Buf			jobs = {0};

	buf_printf(&jobs, "[%s]", call->items.data);
	buf_text(&work->sql, release_sql);
	work_param(work, jobs.data);
	buf_free(&jobs);
	work->owner = work;			/* without an owner, its place in the queue would be given up */
	work->on_done = released;
	if (!pool_run(work))
		log_line("%d claimed jobs of a client that has left wait for the end of their leases", call->rows);
}

/* Replies with the jobs that the last statement gave, or with none. */
static void
end_claim(Claim *c)
{
	leave_list(c);
	c->call->request->conn->on_gone = NULL;
	if (c->gone && c->call->rows > 0)
	{
		release_jobs(c->call);
		c->call->rows = 0;
		c->call->items.len = 0; /* a client that still reads does not get them */
	}
	call_reply_list(c->call);
}

static bool
has_channel(const Claim *c, const char *channel)
{
	int			i;

	for (i = 0; i < c->nchannels; i++)
	{
		if (strcmp(c->channels[i], channel) == 0)
			return true;
	}
	return c->nchannels == 0;
}

static void
wake(Claim *c, uint64_t id)
{
	c->wake = id;
	if (c->claiming)
		c->again = true;
	else
		run_claim(c);
}

/* Lets the claim that has waited longest for this channel look. */
static void
wake_one(const char *database, const char *channel)
{
	Claim	   *c;

	for (c = claims; c; c = c->next)
	{
		if (!same_database(c, database) || !has_channel(c, channel) || c->deadline == 0)
			continue;
		wake(c, ++wakes);
		return;
	}
}

static bool
shares_a_channel(const Claim *c, const Claim *other)
{
	int			i;

	for (i = 0; i < c->nchannels; i++)
	{
		if (has_channel(other, c->channels[i]))
			return true;
	}
	return c->nchannels == 0;
}

/*
 * It found no job: a later claim of a role that has not looked since this
 * notification may.  Only later ones, so that this ends.
 */
static void
pass_on(Claim *c)
{
	uint64_t	id = c->wake;
	Claim	   *other;

	c->wake = 0;
	if (id == 0)
		return;
	c->call->person->looked = id;
	for (other = c->next; other; other = other->next)
	{
		if (other->call->person->looked == id || other->deadline == 0 ||
			!same_database(other, c->call->person->database) || !shares_a_channel(c, other))
			continue;
		wake(other, id);
		return;
	}
}

/* There may be more jobs than this claim took. */
static void
wake_next(const Claim *c)
{
	int			i;

	for (i = 0; i < c->nchannels; i++)
		wake_one(c->call->person->database, c->channels[i]);
}

static bool
listen_to_all(const Claim *c)
{
	bool		all = true;
	int			i;

	for (i = 0; i < c->nchannels; i++)
		all &= notify_listen(c->call->person, c->channels[i]);
	return all && c->nchannels > 0;
}

static void
wait_on(Claim *c)
{
	uint64_t	now = now_ms();

	c->next_look = now + (listen_to_all(c) && !c->deaf ? LOOK_AGAIN_MS : LOOK_BLIND_MS);
	timer_by(&timer, c->next_look < c->deadline ? c->next_look : c->deadline);
}

/* Reads the channels, one a line with a comma between them, and begins to wait. */
static void
wait_known(Call *call, const PgError *error)
{
	Claim	   *c = call->state;
	long long	wait_ms = call->last_key ? atoll(call->last_key) : 0;
	char	   *name = call->items.data;

	if (error)
	{
		leave_list(c);
		call_reply_error(call, error);
		return;
	}
	while (name && *name && c->nchannels < MAX_CLAIM_CHANNELS)
	{
		char	   *end = strstr(name, ",\n");

		c->channels[c->nchannels++] = end ? mem_copy(name, (size_t) (end - name)) : mem_text(name);
		name = end ? end + 2 : NULL;
	}
	c->deaf = name && *name;
	call->items.len = 0;
	call->rows = 0;
	if (c->gone || ending)
	{
		end_claim(c);
		return;
	}
	c->deadline = now_ms() + (wait_ms < 0 ? 0 : wait_ms > (long long) MAX_WAIT_MS ? MAX_WAIT_MS : (uint64_t) wait_ms);
	c->claiming = false;
	/* what was notified before is not known: claim once more */
	if (listen_to_all(c))
		run_claim(c);
	else
		wait_on(c);
}

static void
claimed(Call *call, const PgError *error)
{
	Claim	   *c = call->state;

	c->claiming = false;
	if (call->rows == 0 && !c->again)
		pass_on(c);
	if (error)
	{
		leave_list(c);
		call_reply_error(call, error);
	}
	else if (call->rows > 0)
	{
		end_claim(c);
		wake_next(c);
	}
	else if (c->gone || !call_value(call, "wait") || (c->deadline && now_ms() >= c->deadline))
		end_claim(c);
	else if (c->deadline == 0)
		run(c, wait_sql, true, wait_known);
	else if (c->again)
		run_claim(c);
	else
		wait_on(c);
}

static void
client_gone(Conn *conn)
{
	Request    *request = conn->request;
	Call	   *call = request->state;
	Claim	   *c = call->state;

	conn->on_gone = NULL;
	c->gone = true;
	if (!c->claiming)
		end_claim(c);
}

static void
heard(const char *database, const char *channel, bool lost)
{
	Claim	   *c;
	Claim	   *next;

	if (channel)
	{
		wake_one(database, channel);
		return;
	}
	for (c = claims; c; c = next)
	{
		next = c->next;
		if (!same_database(c, database) || c->deadline == 0)
			continue;
		if (lost)
			c->next_look = now_ms() + LOOK_BLIND_MS;
		else if (c->claiming)
			c->again = true;
		else
			c->next_look = 0;	/* by the timer: run_claim() may change the list */
		timer_by(&timer, c->next_look);
	}
}

static uint64_t
look_at_claims(uint64_t now)
{
	uint64_t	next_time = NEVER;
	Claim	   *c;
	Claim	   *next;

	for (c = claims; c; c = next)
	{
		uint64_t	at;

		next = c->next;
		if (c->claiming || c->deadline == 0)
			continue;
		if (c->deadline <= now)
			end_claim(c);
		else if (c->next_look <= now)
			run_claim(c);
		else
		{
			at = c->next_look < c->deadline ? c->next_look : c->deadline;
			next_time = at < next_time ? at : next_time;
		}
	}
	return next_time;
}

void
claim_post(Call *call)
{
	Claim	   *c = mem_zero(sizeof(Claim));
	Claim	  **end = &claims;

	c->call = call;
	call->state = c;
	call->free_state = free_claim;
	call->request->conn->on_gone = client_gone;
	while (*end)
		end = &(*end)->next;
	*end = c;
	if (call->request->conn->left)
		end_claim(c);
	else
		run_claim(c);
}

void
claims_open(void)
{
	notify_open(heard);
	loop_timer(&timer);
}

void
claims_end(void)
{
	Claim	   *c;

	ending = true;
	for (c = claims; c; c = c->next)
		c->deadline = 1;
	timer_by(&timer, 0);
}
