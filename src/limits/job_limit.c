/*
 * job_limit.c
 *	  Limits of one job type and limits that types share: jobq.limits as the
 *	  dispatcher has read it.
 *
 * Runs of workflows have a space of their own in each shared limit: a task must
 * not wait for the place that its run holds.  So each name has two limits, with
 * the same values.
 *
 * A shared limit that was dropped stays in memory without effect, since groups
 * of lanes may wait for it.  Memory holds as many as there have been names.
 */
#include "jobq.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/hsearch.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "base/errors.h"
#include "base/interval.h"
#include "base/relations.h"
#include "limits/job_limit.h"
#include "registry/options.h"
#include "tables/bad_rows.h"
#include "tables/table_shape.h"

/* attribute numbers of jobq.limits: src/sql/00_schema.sql */
enum
{
	L_name = 1, L_max_concurrent, L_rate_limit, L_rate_window
};
#define L_NATTS L_rate_window

static const ShapeColumn limits_columns[] = {
	{"name", TEXTOID, FILLED}, {"max_concurrent", INT4OID, FILLED}, {"rate_limit", INT4OID, FILLED},
	{"rate_window", INTERVALOID, FILLED}
};
const Shape limits_shape = SHAPE("limits", limits_columns);

StaticAssertDecl(lengthof(limits_columns) == L_NATTS, "limits' columns");

typedef struct LimitKey
{
	char		name[NAMEDATALEN];
	bool		of_runs;
} LimitKey;

typedef struct SharedLimit
{
	LimitKey	key;			/* hash key */
	JobLimit	limit;
	bool		is_there;
	bool		is_used;		/* of runs: a workflow has named it, so it has a window */
	int			rate_limit;
	int64		rate_window_us;
	char		trouble[256];	/* '': its row is valid; else its types wait */
} SharedLimit;

static HTAB *shared = NULL;

void
limit_restart(JobLimit *limit)
{
	limit->running = 0;
	limit->rate.pending = 0;
	memset(limit->cells, 0, sizeof(limit->cells));
}

TimestampTz
limit_next_timer(JobLimit *limit)
{
	if (limit->rate.limit == 0 || limit->rate.next_free == 0 || !limit->wait_queue.shut)
		return DT_NOEND;
	return limit->rate.next_free;
}

void
limit_timer(JobLimit *limit, TimestampTz now)
{
	if (limit_next_timer(limit) > now)
		return;
	limit->rate.next_free = 0;	/* no timer when it is shut for another reason */
	wait_queue_open(&limit->wait_queue);
}

/* ---------- shared limits ---------- */

void
limits_init(MemoryContext context)
{
	HASHCTL		ctl;

	ctl.keysize = sizeof(LimitKey);
	ctl.entrysize = sizeof(SharedLimit);
	ctl.hcxt = context;
	shared = hash_create("jobq limits", 16, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

static SharedLimit *
find_shared(const char *name, bool of_runs, HASHACTION action, bool *found)
{
	LimitKey	key = {0};

	strlcpy(key.name, name, sizeof(key.name));
	key.of_runs = of_runs;
	return hash_search(shared, &key, action, found);
}

static void
load_rate(SharedLimit *s)
{
	bool		limited = s->is_there && (s->is_used || !s->key.of_runs);

	rate_load(&s->limit.rate, s->key.of_runs ? RATE_OF_RUNS : RATE_OF_JOBS, s->key.name, limited ? s->rate_limit : 0,
			  limited ? s->rate_window_us : 0, 0);
}

/*
 * Returns the error in a row of jobq.limits; jobq.set_limit makes no such row.
 * The text fits into SharedLimit.trouble: of a long name it has 63 bytes.
 */
static const char *
trouble_of_limit(const Datum *values)
{
	const char *name = argument_shown(TextDatumGetCString(values[L_name - 1]));
	int			rate = DatumGetInt32(values[L_rate_limit - 1]);
	Interval   *window = DatumGetIntervalP(values[L_rate_window - 1]);

	if (DatumGetInt32(values[L_max_concurrent - 1]) < 0)
		return psprintf("max_concurrent of limit \"%s\" is %d", name, DatumGetInt32(values[L_max_concurrent - 1]));
	if (rate < 0)
		return psprintf("rate_limit of limit \"%s\" is %d", name, rate);
	if (rate > 0 && interval_to_us(window) <= 0)
		return psprintf("rate_window of limit \"%s\" is %s", name,
						DatumGetCString(DirectFunctionCall1(interval_out, IntervalPGetDatum(window))));
	return NULL;
}

static void
load_space(const Datum *values, const char *trouble, bool of_runs)
{
	bool		found;
	SharedLimit *s = find_shared(TextDatumGetCString(values[L_name - 1]), of_runs, HASH_ENTER, &found);

	if (!found)
	{
		s->is_used = false;
		limit_init(&s->limit);
	}
	strlcpy(s->trouble, trouble ? trouble : "", sizeof(s->trouble));
	if (trouble != NULL)
		return;
	s->limit.max_concurrent = DatumGetInt32(values[L_max_concurrent - 1]);
	s->is_there = true;
	s->rate_limit = DatumGetInt32(values[L_rate_limit - 1]);
	s->rate_window_us = interval_to_us(DatumGetIntervalP(values[L_rate_window - 1]));
	load_rate(s);
}

static void
load_limit(Relation rel, HeapTuple tuple)
{
	Datum		values[L_NATTS];
	bool		nulls[L_NATTS];
	const char *trouble;

	heap_deform_tuple(tuple, RelationGetDescr(rel), values, nulls);
	trouble = trouble_of_limit(values);
	if (trouble != NULL)
		bad_rows_note(trouble);
	load_space(values, trouble, false);
	load_space(values, trouble, true);
}

void
limits_restart(void)
{
	HASH_SEQ_STATUS status;
	SharedLimit *s;

	hash_seq_init(&status, shared);
	while ((s = hash_seq_search(&status)) != NULL)
		limit_restart(&s->limit);
}

void
limits_load(void)
{
	HASH_SEQ_STATUS status;
	SharedLimit *s;
	Relation	rel = shape_open("limits", NoLock);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TableScanDesc scan;
	HeapTuple	tuple;

	hash_seq_init(&status, shared);
	while ((s = hash_seq_search(&status)) != NULL)
	{
		s->limit.max_concurrent = 0;
		s->is_there = false;
		s->trouble[0] = '\0';
	}
	bad_rows_begin();
	scan = table_beginscan(rel, snapshot, 0, NULL, SO_NONE);
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
		load_limit(rel, tuple);
	table_endscan(scan);
	bad_rows_end();
	UnregisterSnapshot(snapshot);
	table_close(rel, NoLock);
	hash_seq_init(&status, shared);
	while ((s = hash_seq_search(&status)) != NULL)
	{
		if (!s->is_there)
			load_rate(s);
	}
}

const char *
shared_limit_name(const JobLimit *limit)
{
	return ((const SharedLimit *) ((const char *) limit - offsetof(SharedLimit, limit)))->key.name;
}

bool
limit_has_rate(const char *name)
{
	SharedLimit *s = find_shared(name, false, HASH_FIND, NULL);

	return s != NULL && s->is_there && s->limit.rate.limit > 0;
}

void
limits_visit(void (*visit) (const char *name, JobLimit *limit, bool of_runs))
{
	HASH_SEQ_STATUS status;
	SharedLimit *s;

	hash_seq_init(&status, shared);
	while ((s = hash_seq_search(&status)) != NULL)
	{
		if (s->is_there)
			visit(s->key.name, &s->limit, s->key.of_runs);
	}
}

void
limits_retry_windows(void)
{
	HASH_SEQ_STATUS status;
	SharedLimit *s;

	hash_seq_init(&status, shared);
	while ((s = hash_seq_search(&status)) != NULL)
	{
		if (s->limit.rate.no_window != NULL)
			load_rate(s);
	}
}

static bool
is_among(JobLimit *limit, JobLimit **found, int n)
{
	while (n-- > 0)
	{
		if (found[n] == limit)
			return true;
	}
	return false;
}

int
limits_of_type(Jsonb *options, bool of_runs, JobLimit **found)
{
	char	   *names[JOBQ_TYPE_LIMITS];
	int			nnames = option_texts(options, "limits", names, JOBQ_TYPE_LIMITS);
	int			n = 0;

	for (int i = 0; i < nnames; i++)
	{
		SharedLimit *s = find_shared(names[i], of_runs, HASH_FIND, NULL);

		if (s != NULL && s->trouble[0] != '\0')
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("%s", s->trouble)));
		if (s != NULL && of_runs && !s->is_used)
		{
			s->is_used = true;
			load_rate(s);
		}
		if (s != NULL && !is_among(&s->limit, found, n))	/* named twice it counts once */
			found[n++] = &s->limit;
	}
	return n;
}

void
limits_init_wait_queues(void)
{
	HASH_SEQ_STATUS status;
	SharedLimit *s;

	hash_seq_init(&status, shared);
	while ((s = hash_seq_search(&status)) != NULL)
		wait_queue_init(&s->limit.wait_queue);
}

TimestampTz
limits_next_timer(void)
{
	HASH_SEQ_STATUS status;
	SharedLimit *s;
	TimestampTz next = DT_NOEND;

	hash_seq_init(&status, shared);
	while ((s = hash_seq_search(&status)) != NULL)
		next = Min(next, limit_next_timer(&s->limit));
	return next;
}

void
limits_timers(TimestampTz now)
{
	HASH_SEQ_STATUS status;
	SharedLimit *s;

	hash_seq_init(&status, shared);
	while ((s = hash_seq_search(&status)) != NULL)
		limit_timer(&s->limit, now);
}

void
limits_clock_was_set(TimestampTz now)
{
	HASH_SEQ_STATUS status;
	SharedLimit *s;

	hash_seq_init(&status, shared);
	while ((s = hash_seq_search(&status)) != NULL)
		rate_clock_was_set(&s->limit.rate, now);
}
