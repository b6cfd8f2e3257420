/*
 * rate.c
 *	  Rate windows: the last starts of each limit, in order, or a token bucket.
 *
 * They lie in a DSA area of the database, so a new dispatcher goes on with them; only one dispatcher is there
 * at a time, so there is no lock.  A window that is not there yet (the server has been restarted, or the
 * limit is new) is filled with the starts that rows tell, as far as the server's start lies in it; where
 * history does not keep them it begins full (jobq._recent_starts).
 */
#include "jobq.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "storage/dsm.h"
#include "storage/lwlock.h"
#include "utils/builtins.h"
#include "utils/dsa.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "executor.h"
#include "rate.h"

typedef struct RateWindow
{
	dsa_pointer next;			/* of this database */
	int32		type_id;		/* 0: of a shared limit */
	char		name[NAMEDATALEN];	/* its name */
	double		tokens;			/* in the bucket at `filled` */
	TimestampTz filled;
	int			size;			/* starts there is room for */
	int			n;
	int			first;			/* the oldest is starts[first], then in order, round the end */
	TimestampTz starts[FLEXIBLE_ARRAY_MEMBER];
} RateWindow;

static JobqDb *db;
static dsa_area *area = NULL;

/* ---------- the area ---------- */

/* One for the areas of all databases: 19 has only so many for the server. */
static int
tranche(void)
{
	uint32		id = pg_atomic_read_u32(&JobqShmem->rate_tranche);

	if (id == 0)
	{
		id = (uint32) LWLockNewTrancheId("jobq_rates");
		pg_atomic_write_u32(&JobqShmem->rate_tranche, id);
	}
	return (int) id;
}

static void
open_area(void)
{
	MemoryContext old;

	if (area != NULL)
		return;
	old = MemoryContextSwitchTo(TopMemoryContext);	/* as long as the process lives */
	if (db->rates == DSM_HANDLE_INVALID)
	{
		area = dsa_create(tranche());
		dsa_pin(area);
		db->rates = dsa_get_handle(area);
		db->first_rate = InvalidDsaPointer;
	}
	else
		area = dsa_attach(db->rates);
	dsa_pin_mapping(area);
	MemoryContextSwitchTo(old);
}

/* The pointer that leads to the window; to its end when there is none. */
static dsa_pointer *
find_window(int32 type_id, const char *name)
{
	dsa_pointer *link = &db->first_rate;

	while (DsaPointerIsValid(*link))
	{
		RateWindow *w = dsa_get_address(area, *link);

		if (w->type_id == type_id && strcmp(w->name, name) == 0)
			return link;
		link = &w->next;
	}
	return link;
}

static void
free_window(dsa_pointer *link)
{
	dsa_pointer p = *link;

	*link = ((RateWindow *) dsa_get_address(area, p))->next;
	dsa_free(area, p);
}

static RateWindow *
make_window(int32 type_id, const char *name, int size)
{
	dsa_pointer p = dsa_allocate0(area, offsetof(RateWindow, starts) + sizeof(TimestampTz) * Max(size, 1));
	RateWindow *w = dsa_get_address(area, p);

	w->type_id = type_id;
	strlcpy(w->name, name, sizeof(w->name));
	w->size = size;
	w->next = db->first_rate;
	db->first_rate = p;
	return w;
}

void
rate_init(JobqDb *mine)
{
	db = mine;
	area = NULL;
	if (db->rates_dboid == db->dboid)
		return;
	/* the entry was another database's */
	if (db->rates != DSM_HANDLE_INVALID)
		open_area();
	while (DsaPointerIsValid(db->first_rate))
		free_window(&db->first_rate);
	db->rates_dboid = db->dboid;
}

/* ---------- starts ---------- */

#define START(w, i)	((w)->starts[((w)->first + (i)) % (w)->size])

/* They become known nearly in order. */
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

/* Starts that now lie in the future would keep the rate closed until then. */
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
	if (SPI_execute_with_args("SELECT s FROM jobq._recent_starts($1, $2, $3, $4, $5) s",
							  5, types, args, NULL, true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not read when jobs have started");
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		bool		isnull;

		add_start(rate->window, DatumGetTimestampTz(SPI_getbinval(SPI_tuptable->vals[i],
																  SPI_tuptable->tupdesc, 1, &isnull)));
	}
}

/* Reads when jobs started before the server did.  Whoever locks a table keeps us from it for a moment only. */
static void
fill_window(const Rate *rate)
{
	TimestampTz since = GetCurrentTimestamp() - rate->window_us;
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;

	if (since > JobqShmem->started_at)
		return;
	BeginInternalSubTransaction(NULL);
	PG_TRY();
	{
		int			nest = NewGUCNestLevel();

		(void) set_config_option("lock_timeout", "100ms", PGC_SUSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
		SPI_connect();
		PushActiveSnapshot(GetTransactionSnapshot());
		add_known_starts(rate, since);
		PopActiveSnapshot();
		SPI_finish();
		AtEOXact_GUC(false, nest);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		EmitErrorReport();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		for (int i = 0; i < rate->limit; i++)
			add_start(rate->window, JobqShmem->started_at);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
}

/* ---------- what the registry says ---------- */

/* Another size: the latest starts are kept. */
static RateWindow *
resize(dsa_pointer *link, int size)
{
	RateWindow *old = dsa_get_address(area, *link);
	RateWindow *w = make_window(old->type_id, old->name, size);

	for (int i = 0; i < old->n && size > 0; i++)
		add_start(w, START(old, i));
	/* the new one stands first; the link to the old one may have been the list's head */
	free_window(link == &db->first_rate ? &w->next : link);
	return w;
}

static void
drop_window(int32 type_id, const char *name)
{
	dsa_pointer *link;

	if (db == NULL || db->rates == DSM_HANDLE_INVALID || !DsaPointerIsValid(db->first_rate))
		return;
	open_area();
	link = find_window(type_id, name);
	if (DsaPointerIsValid(*link))
		free_window(link);
}

void
rate_load(Rate *rate, int32 type_id, const char *name, int limit, int64 window_us, int burst)
{
	int			size = burst > 0 ? 0 : Min(limit, JOBQ_MAX_RATE);
	dsa_pointer *link;

	rate->limit = limit;
	rate->window_us = window_us;
	rate->burst = burst;
	rate->next_free = 0;
	if (limit == 0)
	{
		if (rate->window != NULL)
			drop_window(type_id, name);
		rate->window = NULL;
		return;
	}
	open_area();
	link = find_window(type_id, name);
	if (DsaPointerIsValid(*link))
	{
		rate->window = dsa_get_address(area, *link);
		if (rate->window->size != size)
			rate->window = resize(link, size);
		return;
	}
	rate->window = make_window(type_id, name, size);
	rate->window->filled = GetCurrentTimestamp();
	/* as long as the window holds a time before the server's start, the bucket begins empty */
	if (rate->window->filled - window_us > JobqShmem->started_at)
		rate->window->tokens = burst;
	if (size > 0)
		fill_window(rate);
}

/* ---------- one job ---------- */

static bool
bucket_is_empty(Rate *rate, TimestampTz now)
{
	RateWindow *w = rate->window;
	double		per_us = (double) rate->limit / rate->window_us;

	if (now > w->filled)
	{
		w->tokens = Min(w->tokens + (now - w->filled) * per_us, rate->burst);
		w->filled = now;
	}
	if (w->tokens >= 1)
		return false;
	rate->next_free = now + (int64) ((1 - w->tokens) / per_us) + 1;
	return true;
}

bool
rate_is_closed(Rate *rate, TimestampTz now)
{
	RateWindow *w = rate->window;
	int			over;

	if (now < rate->next_free)
		return true;
	if (rate->burst > 0)
		return bucket_is_empty(rate, now);
	forget_old_starts(w, rate->window_us, now);
	if (w->n + rate->pending < rate->limit)
		return false;
	executors_note_starts();
	/* so many must have left the window; what has not started yet can't before it has been in it */
	over = w->n + rate->pending - rate->limit + 1;
	if (over <= 0)
		return false;
	rate->next_free = (over <= w->n ? START(w, over - 1) : now) + rate->window_us + 1;
	return true;
}

void
rate_take(Rate *rate)
{
	if (rate->burst > 0)
		rate->window->tokens--;
	else
		rate->pending++;
}

void
rate_note(Rate *rate, TimestampTz started)
{
	if (rate->burst > 0)
		return;
	rate->pending--;
	add_start(rate->window, started);
}

void
rate_refund(Rate *rate)
{
	if (rate->burst > 0)
		rate->window->tokens++;
	else
		rate->pending--;
	rate->next_free = 0;
}
