/*
 * statistics.c
 *	  The dispatcher's part of the statistics: totals over time, jobs that are due.
 *
 * Every ten seconds it adds a sample of the database's totals to shared
 * memory, and to the current minute of each type.  At the same time it counts
 * the jobs that are due: those that its lanes have read, those that they have
 * passed over, and index entries beyond them up to now, for at most COUNT_US.
 * Lanes that this leaves out count with what they have read.
 *
 * A job that a lane has read may have been cancelled, deleted or postponed
 * since.  So heads are looked up first: the oldest job that is due is one that
 * waits.  With the time that is left the other jobs in memory are looked up.
 * due_exact is false if the time ends before: more may be due, or fewer.
 *
 * Only a dispatcher writes these fields, so they need no lock; a reader may
 * see two samples mixed.
 */
#include "jobq.h"

#include "utils/timestamp.h"

#include "dispatch/lane_reader.h"
#include "dispatch/statistics.h"
#include "limits/type_state.h"
#include "registry/job_types.h"
#include "shared/stat_store.h"

#define SAMPLE_US	(STAT_SAMPLE_S * USECS_PER_SEC)
#define COUNT_US	5000		/* a turn, to count */
#define HEADS_US	2000		/* of it, for heads */

/* The count of a type's jobs that are due. */
typedef struct DueCount
{
	StatEntry  *entry;
	int64		n;
	TimestampTz oldest;
	bool		exact;
} DueCount;

typedef struct DueCounts
{
	QueueScan  *scan;
	MonoTime	until;
	MonoTime	heads_until;
	bool		all_checked;	/* no lane's head is left for the next turn */
	int			ntypes;
	DueCount   *types;
	DueCount   *last;			/* that was looked up */
} DueCounts;

static JobqDb *db;
static MonoTime next_sample = 0;
static uint32 check_round = 1;	/* of looks at the heads of all lanes: more than a turn, of many */
static uint64 names_of = 0;		/* job_types_generation() of the names in shared memory */

void
statistics_init(MemoryContext context, JobqDb *mine)
{
	db = mine;
}

bool
statistics_due(MonoTime now)
{
	return now >= next_sample;
}

MonoTime
statistics_next_timer(MonoTime now)
{
	return next_sample;
}

void
statistics_note_turn(StatWakeup why)
{
	db->stats.loops++;
	db->stats.wakeups[why]++;
}

/* ---------- jobs that are due ---------- */

static DueCount *
count_of(DueCounts *counts, int32 type_id)
{
	StatEntry  *entry = stat_entry(type_id);

	if (counts->last != NULL && counts->last->entry == entry)
		return counts->last;
	for (int i = 0; i < counts->ntypes; i++)
	{
		if (counts->types[i].entry == entry)
			return counts->last = &counts->types[i];
	}
	return NULL;				/* it was reserved just now */
}

static void
note_oldest(DueCount *count, TimestampTz position)
{
	if (count->oldest == 0 || position < count->oldest)
		count->oldest = position;
}

/* Adds the jobs of a lane that are in the table only. */
static void
count_unread(DueCounts *counts, Lane *lane, DueCount *count, bool passed, bool more)
{
	if (mono_now() > counts->until)
	{
		count->exact = false;
		return;
	}
	if (passed)
		count->n += scan_count_passed(counts->scan, lane, counts->until, &count->exact);
	if (lane->npassed > 0)
		note_oldest(count, lane->oldest_passed);
	if (more)
		count->n += scan_count_due(counts->scan, lane, counts->until, &count->exact);
}

/* Adds the jobs of a lane that is not drained. */
static void
count_lane(Lane *lane, void *arg)
{
	DueCounts  *counts = arg;
	JobRef	   *head = lane_head(lane);
	bool		passed = lane->passed_from != DT_NOEND;
	bool		more = lane->next_due <= counts->scan->now;
	DueCount   *count;

	if (head == NULL && !more && !passed)
		return;
	count = count_of(counts, lane->id.type_id);
	if (count == NULL)
		return;
	count->n += lane->nbuf - lane->bufpos + lane->nextra;
	if (head != NULL)
		note_oldest(count, head->position);
	if (passed || more)
		count_unread(counts, lane, count, passed, more);
}

/* Drops the lane's head if it does not wait any more. */
static void
check_head(Lane *lane, void *arg)
{
	DueCounts  *counts = arg;

	if (lane->checked == check_round || lane_head(lane) == NULL)
		return;
	if (mono_now() > counts->heads_until)
	{
		counts->all_checked = false;
		return;
	}
	lane->checked = check_round;
	lane_drop_gone(counts->scan, lane);
}

/* Takes jobs that do not wait any more off the count of a lane's memory. */
static void
uncount_gone(Lane *lane, void *arg)
{
	DueCounts  *counts = arg;
	DueCount   *count = lane_head(lane) == NULL ? NULL : count_of(counts, lane->id.type_id);

	if (count != NULL)
		count->n -= lane_count_gone(counts->scan, lane, counts->until, &count->exact);
}

static void
publish_due(const DueCount *count)
{
	count->entry->due = count->n;
	count->entry->due_exact = count->exact;
	count->entry->oldest_due = count->oldest;
}

static void
count_due(QueueScan *scan, StatEntry **entries, int n)
{
	MonoTime	now = mono_now();
	DueCounts	counts = {.scan = scan, .until = now + COUNT_US, .heads_until = now + HEADS_US, .all_checked = true, .ntypes = n};

	counts.types = palloc0(sizeof(DueCount) * Max(n, 1));
	for (int i = 0; i < n; i++)
		counts.types[i] = (DueCount) {.entry = entries[i], .exact = true};
	lanes_visit(check_head, &counts);
	if (counts.all_checked)
		check_round++;
	lanes_visit(count_lane, &counts);
	lanes_visit(uncount_gone, &counts);
	for (int i = 0; i < n; i++)
		publish_due(&counts.types[i]);
}

/* ---------- samples ---------- */

/* Returns what a counter has risen by; less than before: it was reset. */
static uint32
risen(uint64 now, uint64 *before)
{
	int64		by = (int64) (now - *before);

	if (by < 0)
		by = (int64) now;
	*before = now;
	return (uint32) Min(by, (int64) PG_UINT32_MAX);
}

static void
add_minute(StatEntry *entry, TimestampTz now)
{
	uint32		minute = (uint32) (now / USECS_PER_MINUTE);
	StatMinute *m = &entry->minutes[minute % STAT_MINUTES];

	if (m->minute != minute)
		*m = (StatMinute) {.minute = minute};
	m->enqueued += risen(stat_value(entry, STAT_ENQUEUED), &entry->seen[0]);
	m->ended += risen(stat_ended(entry), &entry->seen[1]);
	m->failed += risen(stat_failed(entry), &entry->seen[2]);
}

static void
add_sample(StatSample *into, const StatSample *sample)
{
	if (into->since == 0)
		into->since = sample->since;
	into->until = sample->until;
	for (int i = 0; i < STAT_TOTALS; i++)
		into->n[i] += sample->n[i];
	for (int i = 0; i < STAT_TIME_BUCKETS; i++)
		into->wait[i] += sample->wait[i];
}

static StatSample *
next_coarse(DbStats *stats)
{
	StatSample *coarse = &stats->coarse[++stats->ncoarse % STAT_COARSES];

	memset(coarse, 0, sizeof(StatSample));
	return coarse;
}

/* Adds to the youngest coarse sample, which grows until it is long enough. */
static void
add_coarse(DbStats *stats, const StatSample *sample)
{
	StatSample *coarse = &stats->coarse[stats->ncoarse % STAT_COARSES];

	if (coarse->until > sample->until)	/* the clock was set back */
		coarse = next_coarse(stats);
	add_sample(coarse, sample);
	if (coarse->until - coarse->since >= STAT_COARSE_S * USECS_PER_SEC)
		(void) next_coarse(stats);
}

/* Sets the sample to what has happened since the last one. */
static void
compare_totals(StatSample *sample, TimestampTz now)
{
	DbStats    *stats = &db->stats;
	StatTotals	totals = {0};
	int			n;
	StatEntry  *entries = stat_all_entries(&n);

	LWLockAcquire(JobqShmem->lock, LW_SHARED);
	for (int i = 0; i < n; i++)
	{
		if (!stat_entry_is_of(&entries[i], db))
			continue;
		stat_add_totals(&totals, &entries[i]);
		add_minute(&entries[i], now);
	}
	for (int i = 0; i < STAT_TOTALS; i++)
		sample->n[i] = risen(totals.n[i], &stats->sampled.n[i]);
	for (int i = 0; i < STAT_TIME_BUCKETS; i++)
		sample->wait[i] = risen(totals.wait[i], &stats->sampled.wait[i]);
	LWLockRelease(JobqShmem->lock);
}

static void
take_sample(TimestampTz now)
{
	DbStats    *stats = &db->stats;
	StatSample	sample = {.since = now - SAMPLE_US, .until = now};
	TimestampTz before;

	compare_totals(&sample, now);
	before = stats->nfine > 0 ? stats->fine[(stats->nfine - 1) % STAT_SAMPLES].until : 0;
	if (before != 0 && before < now)	/* else the clock was set back */
		sample.since = before;
	stats->fine[stats->nfine++ % STAT_SAMPLES] = sample;
	add_coarse(stats, &sample);
}

/* Sets the name of the type, which may have changed, and if it is paused. */
static void
refresh_type(StatEntry *entry, bool names)
{
	TypeState  *t = type_remembered(entry->type_id);
	JobType    *type;

	entry->paused = t != NULL && t->paused;
	if (entry->type_id == 0 || (!names && entry->name[0] != '\0'))
		return;
	type = job_type_by_id(entry->type_id);
	if (type != NULL)
		stat_set_name(db, entry, type->name);
}

void
statistics_turn(QueueScan *scan, TimestampTz now, MonoTime mono)
{
	StatEntry **entries;
	int			n = stat_entries(db, &entries);
	bool		names = names_of != job_types_generation();

	next_sample = mono + SAMPLE_US;
	names_of = job_types_generation();
	for (int i = 0; i < n; i++)
		refresh_type(entries[i], names);
	if (scan != NULL)
		count_due(scan, entries, n);
	take_sample(now);
}
