/*
 * rate_window.c
 *	  Rate windows: the last starts of each limit, in order, or a token bucket.
 *
 * They are in shared memory, so a new dispatcher goes on with them; only the
 * dispatcher of a database reads and writes its windows.  A window that does
 * not exist yet (the server has been restarted, or the limit is new) is filled
 * with the starts that rows hold, if its time contains the server's start.
 * Where history does not keep them, the window begins full (_recent_starts).
 *
 * The memory is one pool for all databases, with a size fixed at server start.
 * It consists of blocks; a window is a chain of as many as its starts need.
 * JobqShmem->lock protects the chains of free blocks and of a database's
 * windows.  When the pool is used up, a limit gets no window and its types
 * wait; a limit is never counted by a window that is too small.
 */
#include "jobq.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "storage/lwlock.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/conditional_lock.h"
#include "base/relations.h"
#include "base/subtransaction.h"
#include "limits/rate_window.h"
#include "shared/rate_pool.h"

/* The head of the first block of a window. */
typedef struct RateWindow
{
	int32		next;			/* window of this database */
	int32		block;			/* its own number */
	int32		type_id;		/* or RATE_OF_JOBS, RATE_OF_RUNS */
	char		name[NAMEDATALEN];	/* its name */
	double		tokens;			/* in the bucket at `filled` */
	TimestampTz filled;
	int			size;			/* starts that it has room for */
	int			n;
	int			first;			/* the oldest is START(w, 0), then in order, as a ring */
} RateWindow;

#define HEAD_STARTS		16		/* starts that the head takes the place of in the first block */

StaticAssertDecl(sizeof(RateWindow) <= HEAD_STARTS * sizeof(TimestampTz), "a window's head");

static JobqDb *db;

/* ---------- windows ---------- */

static RateWindow *
window_at(int32 block)
{
	return block == 0 ? NULL : (RateWindow *) &JobqShmem->rates->blocks[block - 1];
}

static int
blocks_for(int size)
{
	return (HEAD_STARTS + size + BLOCK_STARTS - 1) / BLOCK_STARTS;
}

/* Returns the link to the window; the last link when there is none. */
static int32 *
find_window(int32 type_id, const char *name)
{
	int32	   *link = &db->rates.first;
	RateWindow *w;

	while ((w = window_at(*link)) != NULL && (w->type_id != type_id || strcmp(w->name, name) != 0))
		link = &w->next;
	return link;
}

/* Frees the window; the pool's lock is held. */
static void
free_window(int32 *link)
{
	int32		block = *link;

	*link = window_at(block)->next;
	rate_blocks_give(block);
}

/*
 * Frees the windows of a database that has left its entry to another; the
 * pool's lock is held.
 */
static void
free_windows(JobqDb *owner)
{
	while (owner->rates.first != 0)
		free_window(&owner->rates.first);
	owner->rates.dboid = owner->dboid;
}

static void
free_left_windows(void)
{
	for (int i = 0; i < JobqShmem->ndbs; i++)
	{
		if (JobqShmem->dbs[i].rates.dboid != JobqShmem->dbs[i].dboid)
			free_windows(&JobqShmem->dbs[i]);
	}
}

/* Makes a window; NULL: the pool has no room for it. */
static RateWindow *
make_window(int32 type_id, const char *name, int size)
{
	RateWindow *w = NULL;

	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	if (blocks_for(size) > JobqShmem->rates->nfree)
		free_left_windows();
	if (blocks_for(size) <= JobqShmem->rates->nfree)
	{
		int32		block = rate_blocks_take(blocks_for(size));

		w = window_at(block);
		memset(w, 0, sizeof(RateWindow));
		w->block = block;
		w->type_id = type_id;
		strlcpy(w->name, name, sizeof(w->name));
		w->size = size;
		w->next = db->rates.first;
		db->rates.first = block;
	}
	LWLockRelease(JobqShmem->lock);
	return w;
}

void
rate_init(JobqDb *mine)
{
	db = mine;
	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	if (db->rates.dboid != db->dboid)
		free_windows(db);		/* the entry was another database's */
	LWLockRelease(JobqShmem->lock);
}

/* ---------- starts ---------- */

#define START(w, i)	(*start_at(w, ((w)->first + (i)) % (w)->size))

static TimestampTz *
start_at(RateWindow *w, int place)
{
	int32		block = w->block;

	for (place += HEAD_STARTS; place >= BLOCK_STARTS; place -= BLOCK_STARTS)
		block = JobqShmem->rates->next[block];
	return &JobqShmem->rates->blocks[block - 1].starts[place];
}

/* Adds a start; starts become known nearly in order. */
static void
add_start(RateWindow *w, TimestampTz started)
{
	int			i;

	if (w->n == w->size)
	{
		if (started <= START(w, 0))
			return;
		w->first = (w->first + 1) % w->size;
		w->n--;
	}
	for (i = w->n++; i > 0 && START(w, i - 1) > started; i--)
		START(w, i) = START(w, i - 1);
	START(w, i) = started;
}

static void
forget_old_starts(RateWindow *w, int64 window_us, TimestampTz now)
{
	while (w->n > 0 && START(w, 0) + window_us < now)
	{
		w->first = (w->first + 1) % w->size;
		w->n--;
	}
}

/*
 * Forgets starts that now lie in the future: they would keep the rate closed
 * until then.
 */
void
rate_clock_was_set(Rate *rate, TimestampTz now)
{
	RateWindow *w = rate->window;

	rate->next_free = 0;
	if (w == NULL)
		return;
	w->filled = Min(w->filled, now);
	while (w->n > 0 && START(w, w->n - 1) > now)
		w->n--;
}

/* ---------- filling a new window ---------- */

static const char *const no_room =
	"the memory for rate windows is used up; increase jobq.max_databases or use options.burst";
static const char *const past_locked =
	"a locked table or index keeps their past starts from being read; end the transaction that holds it";

static void
add_known_starts(const Rate *rate, TimestampTz since)
{
	Oid			types[5] = {INT4OID, TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID, INT4OID};
	Datum		args[5];

	args[0] = Int32GetDatum(rate->window->type_id);
	args[1] = CStringGetTextDatum(rate->window->name);
	args[2] = TimestampTzGetDatum(since);
	args[3] = TimestampTzGetDatum(JobqShmem->started_at);
	args[4] = Int32GetDatum(rate->limit);
	if (SPI_execute_with_args("SELECT s FROM jobq_internal._recent_starts($1, $2, $3, $4, $5) s",
							  5, types, args, NULL, true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not read when jobs have started");
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		bool		isnull;

		add_start(rate->window, DatumGetTimestampTz(SPI_getbinval(SPI_tuptable->vals[i],
																  SPI_tuptable->tupdesc, 1, &isnull)));
	}
}

/* Fills the window with n starts, no more than fit in. */
static void
fill_with(const Rate *rate, int n, TimestampTz started)
{
	for (int i = 0; i < Min(n, rate->window->size); i++)
		add_start(rate->window, started);
}

/*
 * True if the window of time contains the server's start: rows hold earlier
 * starts.
 */
static bool
has_past(const Rate *rate)
{
	return rate->burst == 0 && GetCurrentTimestamp() - rate->window_us <= JobqShmem->started_at;
}

/*
 * Takes the locks of the tables that jobq_internal._recent_starts reads;
 * false: one is not free, and the past is read later.  Until then no job may
 * start, instead of none for as long as the window when it began full.
 */
static bool
past_can_be_read(const Rate *rate)
{
	return !has_past(rate) ||
		(lock_tree_if_free(jobq_relid("job_types")) && lock_tree_if_free(jobq_relid("queue")) &&
		 lock_tree_if_free(jobq_relid("history")) && lock_tree_if_free(jobq_relid("dead_letters")));
}

typedef struct Past
{
	const Rate *rate;
	TimestampTz since;
} Past;

static void
read_past(void *arg)
{
	Past	   *past = arg;
	int			nest = NewGUCNestLevel();

	(void) set_config_option("lock_timeout", "100ms", PGC_SUSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	SPI_connect();
	PushActiveSnapshot(GetTransactionSnapshot());
	add_known_starts(past->rate, past->since);
	PopActiveSnapshot();
	SPI_finish();
	AtEOXact_GUC(false, nest);
}

/*
 * Reads when jobs started before the server did.  The time limit is for locks
 * of the system's catalogs.
 */
static void
fill_window(const Rate *rate)
{
	Past		past = {rate, GetCurrentTimestamp() - rate->window_us};
	ErrorData  *error;

	if (!has_past(rate))
		return;
	error = try_subtransaction(read_past, &past);
	if (error == NULL)
		return;
	error->elevel = LOG;
	ThrowErrorData(error);
	FreeErrorData(error);
	fill_with(rate, rate->limit, JobqShmem->started_at);
}

/* ---------- settings from the registry ---------- */

/*
 * Changes the size and keeps the latest starts.  False: the pool has no room,
 * and the window stays as it is.
 */
static bool
resize(RateWindow *w, int size)
{
	int			n = Min(w->n, size);
	TimestampTz *starts = palloc(sizeof(TimestampTz) * Max(n, 1));
	int			more = blocks_for(size) - blocks_for(w->size);
	bool		room;

	for (int i = 0; i < n; i++)
		starts[i] = START(w, w->n - n + i);
	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	if (more > JobqShmem->rates->nfree)
		free_left_windows();
	room = more <= JobqShmem->rates->nfree;
	if (room)
	{
		/* the first block, which has its head, stays */
		rate_blocks_give(JobqShmem->rates->next[w->block]);
		JobqShmem->rates->next[w->block] = blocks_for(size) > 1 ? rate_blocks_take(blocks_for(size) - 1) : 0;
		w->size = size;
		w->first = w->n = 0;
	}
	LWLockRelease(JobqShmem->lock);
	for (int i = 0; room && i < n; i++)
		add_start(w, starts[i]);
	pfree(starts);
	return room;
}

static void
drop_window(int32 type_id, const char *name)
{
	int32	   *link;

	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	link = find_window(type_id, name);
	if (*link != 0)
		free_window(link);
	LWLockRelease(JobqShmem->lock);
}

/*
 * Fills a new window with the earlier starts that rows hold, or makes it full.
 */
static void
fill_new(Rate *rate)
{
	RateWindow *w = rate->window;
	TimestampTz now = GetCurrentTimestamp();

	w->filled = now;
	/*
	 * as long as the window holds a time before the server's start, the bucket
	 * begins empty
	 */
	if (now - rate->window_us > JobqShmem->started_at)
		w->tokens = rate->burst;
	if (w->size > 0)
		fill_window(rate);
	fill_with(rate, rate->missed, rate->last_missed);
	rate->missed = 0;
}

void
rate_load(Rate *rate, int32 type_id, const char *name, int limit, int64 window_us, int burst)
{
	int			size = burst > 0 ? 0 : Max(Min(limit, JOBQ_MAX_RATE), 0);

	limit = burst > 0 ? limit : size;
	rate->limit = limit;
	rate->window_us = window_us;
	rate->burst = burst;
	rate->next_free = 0;
	rate->no_window = NULL;
	if (limit == 0)
	{
		if (rate->window != NULL)
			drop_window(type_id, name);
		rate->window = NULL;
		return;
	}
	rate->window = window_at(*find_window(type_id, name));
	if (rate->window != NULL)
	{
		/* of a former dispatcher: the clock may have been set back since */
		rate_clock_was_set(rate, GetCurrentTimestamp());
		forget_old_starts(rate->window, window_us, GetCurrentTimestamp());
		/* the starts that count have room: a limit that is raised again knows them */
		if (burst == 0)
			size = Max(size, Min(rate->window->n + Max(rate->pending, 0), JOBQ_MAX_RATE));
		if (rate->window->size != size && !resize(rate->window, size))
		{
			rate->no_window = no_room;
			/* a bucket's has no place for a start: rate->missed counts them */
			if (rate->window->size == 0)
			{
				drop_window(type_id, name);
				rate->window = NULL;
			}
		}
	}
	else if (!past_can_be_read(rate))
		rate->no_window = past_locked;
	else if ((rate->window = make_window(type_id, name, size)) != NULL)
		fill_new(rate);
	else
		rate->no_window = no_room;
}

void
rates_drop_unused(RateIsUsed is_used)
{
	int32		block = db->rates.first;

	while (block != 0)
	{
		RateWindow *w = window_at(block);

		block = w->next;
		if (!is_used(w->type_id, w->name))
			drop_window(w->type_id, w->name);
	}
}

/* ---------- one job ---------- */

static void
fill_bucket(Rate *rate, double per_us, TimestampTz now)
{
	RateWindow *w = rate->window;

	if (now <= w->filled)
		return;
	w->tokens = Min(w->tokens + (now - w->filled) * per_us, rate->burst);
	w->filled = now;
}

static bool
bucket_is_empty(Rate *rate, TimestampTz now)
{
	RateWindow *w = rate->window;
	double		per_us = (double) rate->limit / rate->window_us;

	fill_bucket(rate, per_us, now);
	if (w->tokens >= 1)
		return false;
	rate->next_free = now + (int64) ((1 - w->tokens) / per_us) + 1;
	return true;
}

/* True if no start or refund can open the rate now. */
static bool
is_surely_closed(const Rate *rate, TimestampTz now)
{
	return now < rate->next_free || rate->no_window != NULL;
}

bool
rate_needs_starts(Rate *rate, TimestampTz now)
{
	if (is_surely_closed(rate, now) || rate->burst > 0)
		return false;
	forget_old_starts(rate->window, rate->window_us, now);
	return rate->window->n + rate->pending >= rate->limit;
}

bool
rate_is_closed(Rate *rate, TimestampTz now)
{
	RateWindow *w = rate->window;
	int			over;

	if (is_surely_closed(rate, now))
		return true;
	if (rate->burst > 0)
		return bucket_is_empty(rate, now);
	forget_old_starts(w, rate->window_us, now);
	/*
	 * so many must leave the window; a start still to come can't leave it
	 * before it has been in it
	 */
	over = w->n + rate->pending - rate->limit + 1;
	if (over <= 0)
		return false;
	rate->next_free = (over <= w->n ? START(w, over - 1) : now) + rate->window_us + 1;
	return true;
}

int
rate_used(Rate *rate, TimestampTz now)
{
	RateWindow *w = rate->window;

	if (w == NULL)
		return Max(rate->pending, 0);
	if (rate->burst == 0)
	{
		forget_old_starts(w, rate->window_us, now);
		return w->n + Max(rate->pending, 0);
	}
	fill_bucket(rate, (double) rate->limit / rate->window_us, now);
	return rate->burst - (int) w->tokens;
}

void
rate_take(Rate *rate)
{
	if (rate->burst == 0)
		rate->pending++;
	else if (rate->window != NULL)
		rate->window->tokens--;
}

void
rate_note(Rate *rate, TimestampTz started)
{
	if (rate->burst > 0)
		return;
	rate->pending--;
	if (rate->window != NULL)
	{
		add_start(rate->window, started);
		return;
	}
	rate->missed++;
	rate->last_missed = started;
}

void
rate_refund(Rate *rate)
{
	if (rate->burst == 0)
		rate->pending--;
	else if (rate->window != NULL)
		rate->window->tokens++;
	rate->next_free = 0;
}
