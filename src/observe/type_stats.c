/*
 * type_stats.c
 *	  Reads the statistics of job types from shared memory.
 *
 * A SQL job writes its row when it has ended: while its handler runs, the row
 * waits.  So the jobs in the slots of SQL workers are moved from the row's
 * status to running, and jobs that were handed out and have not begun are due.
 * A commit between the two reads may show in one of them only, for an instant.
 */
#include "jobq.h"

#include "catalog/pg_authid.h"
#include "miscadmin.h"
#include "utils/acl.h"

#include "observe/type_stats.h"
#include "registry/job_types.h"
#include "security/access.h"
#include "shared/slots.h"

#define DRAIN_MINUTES	5		/* whose rates count */

void
type_stats_check_reader(const char *of)
{
	if (has_privs_of_role(GetUserId(), ROLE_PG_MONITOR) || access_may_everywhere(GetUserId(), ACCESS_READ, NULL))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied for %s", of),
			 errhint("It takes access \"read\" for all tenants and job types (see jobq.grant_access), or membership in pg_monitor.")));
}

/* Copies the name, and finds it in the registry if it is not known yet. */
void
type_stats_name(JobqDb *db, StatEntry *entry, char name[64])
{
	int32		type_id = entry->type_id;
	JobType    *type;

	SpinLockAcquire(&db->mutex);
	strlcpy(name, entry->name, sizeof(entry->name));
	SpinLockRelease(&db->mutex);
	if (name[0] != '\0' || type_id == 0)
		return;
	type = job_type_by_id(type_id);
	if (type == NULL)
		return;
	stat_set_name(db, entry, type->name);
	strlcpy(name, type->name, sizeof(type->name));
}

typedef struct NumberedEntry
{
	int32		type_id;
	StatEntry  *entry;
} NumberedEntry;

static void
read_entry(JobqDb *db, const NumberedEntry *numbered, TypeStats *s)
{
	StatEntry  *entry = numbered->entry;

	s->type_id = numbered->type_id;
	s->entry = entry;
	type_stats_name(db, entry, s->name);
	for (int c = STAT_LIVE; c < STAT_COUNTERS; c++)
		s->n[c] = (int64) stat_value(entry, c);
	s->due = entry->due;
	s->due_exact = entry->due_exact;
	s->oldest_due = entry->oldest_due;
	s->paused = entry->paused;
	s->last_completed = (TimestampTz) pg_atomic_read_u64(&entry->last_completed);
	s->last_failed = (TimestampTz) pg_atomic_read_u64(&entry->last_failed);
	s->reset_at = entry->reset_at;
}

/* Reads the counters of rows, all at one moment. */
static void
read_rows(JobqDb *db, TypeStats *stats, int n)
{
	SpinLockAcquire(&db->mutex);
	for (int i = 0; i < n; i++)
	{
		stats[i].counted = db->stats.phase == STAT_COUNTED;
		for (int c = 0; c < STAT_LIVE; c++)
			stats[i].n[c] = (int64) stat_value(stats[i].entry, c);
	}
	SpinLockRelease(&db->mutex);
}

/* Compares ids, with which their structs begin; those that types share, of id 0, come last. */
static int
compare_ids(const void *a, const void *b)
{
	uint32		x = (uint32) *(const int32 *) a - 1;
	uint32		y = (uint32) *(const int32 *) b - 1;

	return x < y ? -1 : x > y;
}

/*
 * Returns the statistics of a type; those of the shared entry, if it has no
 * own; NULL: nothing of it was counted yet.  JobqShmem->lock is held, so this
 * reserves no entry.
 */
static TypeStats *
stats_of(TypeStats *stats, int n, int32 type_id)
{
	TypeStats  *own = bsearch(&type_id, stats, n, sizeof(TypeStats), compare_ids);

	if (own != NULL)
		return own;
	return n > 0 && stats[n - 1].type_id == 0 ? &stats[n - 1] : NULL;
}

/* Counts a job of a SQL worker's cell as running, or as due. */
static void
add_cell(Cell *cell, TypeStats *stats, int n)
{
	uint32		state = pg_atomic_read_u32(&cell->state);
	TypeStats  *s;

	if (state != CELL_ASSIGNED && state != CELL_BEGUN)
		return;
	s = stats_of(stats, n, cell->ref.type_id);
	if (s == NULL)
		return;
	if (state == CELL_ASSIGNED || cell->started_at == 0)
	{
		s->due++;
		return;
	}
	s->n[STAT_RUNNING]++;
	s->n[cell->row_status == JOB_RETRY ? STAT_RETRY : STAT_PENDING]--;
}

static void
add_slots(JobqDb *db, TypeStats *stats, int n)
{
	LWLockAcquire(JobqShmem->lock, LW_SHARED);
	for (int i = 0; i < JobqShmem->nslots; i++)
	{
		Slot	   *slot = &JobqShmem->slots[i];

		if (!slot->in_use || slot->dead || slot->dboid != db->dboid || slot->kind != SLOT_SQL)
			continue;
		for (int c = 0; c < JOBQ_CELLS; c++)
			add_cell(&slot->cells[c], stats, n);
	}
	LWLockRelease(JobqShmem->lock);
}

static int
compare_names(const void *a, const void *b)
{
	const TypeStats *x = *(TypeStats *const *) a;
	const TypeStats *y = *(TypeStats *const *) b;
	int			order = strcmp(x->name, y->name);

	return order != 0 ? order : x < y ? -1 : x > y;
}

/* Adds the statistics of a dropped type to those of a younger one of its name. */
static void
add_dropped(TypeStats *into, const TypeStats *s)
{
	for (int c = 0; c < STAT_COUNTERS; c++)
		into->n[c] += s->n[c];
	into->due += s->due;
	into->due_exact &= s->due_exact;
	if (s->oldest_due != 0 && (into->oldest_due == 0 || s->oldest_due < into->oldest_due))
		into->oldest_due = s->oldest_due;
	into->last_completed = Max(into->last_completed, s->last_completed);
	into->last_failed = Max(into->last_failed, s->last_failed);
	into->reset_at = Min(into->reset_at, s->reset_at);
}

/*
 * Makes one of those with the same name, in the place of the youngest; returns
 * how many are left.
 */
static int
merge_names(TypeStats *stats, int n)
{
	TypeStats **by_name = palloc(sizeof(TypeStats *) * Max(n, 1));
	int			left = 0;

	for (int i = 0; i < n; i++)
		by_name[i] = &stats[i];
	qsort(by_name, n, sizeof(TypeStats *), compare_names);
	for (int i = 0; i + 1 < n; i++)
	{
		if (by_name[i]->name[0] == '\0' || strcmp(by_name[i]->name, by_name[i + 1]->name) != 0)
			continue;
		add_dropped(by_name[i + 1], by_name[i]);
		by_name[i]->entry = NULL;
	}
	pfree(by_name);
	for (int i = 0; i < n; i++)
	{
		if (stats[i].entry != NULL && left++ < i)
			stats[left - 1] = stats[i];
	}
	return left;
}

/*
 * No more jobs are due than wait: index entries of deleted rows, and jobs that
 * have gone since the dispatcher's last count, are none.
 */
static void
cap_due(TypeStats *s)
{
	int64		waiting = s->n[STAT_PENDING] + s->n[STAT_RETRY];

	if (!s->counted || s->due <= waiting)
		return;
	s->due = waiting;
	s->due_exact = false;		/* some of them may be delayed */
	if (waiting == 0)
	{
		s->due_exact = true;
		s->oldest_due = 0;
	}
}

int
type_stats_read(JobqDb *db, TypeStats **stats)
{
	StatEntry **entries;
	int			n = stat_entries(db, &entries);
	NumberedEntry *order;

	order = palloc(sizeof(NumberedEntry) * Max(n, 1));
	for (int i = 0; i < n; i++)
		order[i] = (NumberedEntry) {entries[i]->type_id, entries[i]};
	qsort(order, n, sizeof(NumberedEntry), compare_ids);
	*stats = palloc0(sizeof(TypeStats) * Max(n, 1));
	for (int i = 0; i < n; i++)
		read_entry(db, &order[i], &(*stats)[i]);
	read_rows(db, *stats, n);
	add_slots(db, *stats, n);
	for (int i = 0; i < n; i++)
	{
		for (int c = 0; c < STAT_LIVE; c++)
			(*stats)[i].n[c] = Max((*stats)[i].n[c], 0);
		cap_due(&(*stats)[i]);
	}
	return merge_names(*stats, n);
}

double
type_stats_drain_s(const TypeStats *s, TimestampTz now)
{
	uint32		last = (uint32) (now / USECS_PER_MINUTE);
	TimestampTz first = (TimestampTz) (last - DRAIN_MINUTES + 1) * USECS_PER_MINUTE;
	int64		out = 0;

	if (s->due == 0)
		return 0;
	for (int i = 0; i < STAT_MINUTES; i++)
	{
		const StatMinute *m = &s->entry->minutes[i];

		if (m->minute <= last && m->minute + DRAIN_MINUTES > last)
			out += (int64) m->ended - m->enqueued;
	}
	return out <= 0 ? -1 : (double) s->due * Max(now - Max(first, s->entry->reset_at), USECS_PER_SEC) / out / USECS_PER_SEC;
}
