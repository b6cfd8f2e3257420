/*
 * stat_file.c
 *	  Keeps the statistics over a clean restart, in pg_stat/jobq.stat.
 *
 * The postmaster writes the file at its end and reads it at its start, when no
 * other process has shared memory.  The file has the place in the WAL of the
 * shutdown checkpoint that it belongs to; any other file is not read: that of
 * an immediate shutdown, of an older copy of the data directory, or of a
 * server that has run without jobq meanwhile.  It is removed once it was read,
 * so a crash leaves none, as with PostgreSQL's own statistics.
 *
 * Counters of rows are not kept: live_counts.c counts the rows anew.
 */
#include "jobq.h"

#include <unistd.h>

#include "catalog/pg_control.h"
#include "common/controldata_utils.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "port/pg_crc32c.h"
#include "storage/fd.h"
#include "storage/ipc.h"

#include "shared/stat_store.h"

#define STAT_FILE		PGSTAT_STAT_PERMANENT_DIRECTORY "/jobq.stat"
#define STAT_FILE_NEW	PGSTAT_STAT_PERMANENT_DIRECTORY "/jobq.tmp"
#define STAT_MAGIC		0x4a515331

/* The file is this, then SavedEntry and SavedDb records. */
typedef struct StatFileHead
{
	uint32		magic;
	uint32		entry_size;
	uint32		db_size;
	uint32		nentries;
	uint32		ndbs;
	pg_crc32c	crc;			/* of the records */
	uint64		system;
	XLogRecPtr	checkpoint;
} StatFileHead;

typedef struct SavedEntry
{
	Oid			dboid;
	int32		type_id;
	char		name[64];
	uint64		n[STAT_COUNTERS];
	uint64		last_completed;
	uint64		last_failed;
	TimestampTz reset_at;
	uint64		seen[3];
	StatMinute	minutes[STAT_MINUTES];
} SavedEntry;

typedef struct SavedDb
{
	Oid			dboid;
	bool		has_other;
	TimestampTz reset_at;
	uint64		loops;
	uint64		wakeups[STAT_WAKEUPS];
	uint64		sweep_finds;
	uint64		publications_lost;
	uint64		handed_out;		/* both since reset_at */
	uint64		fallbacks;
	StatTotals	sampled;
	uint64		nfine;
	uint64		ncoarse;
	StatSample	fine[STAT_SAMPLES];
	StatSample	coarse[STAT_COARSES];
} SavedDb;

/* Fills the head; false: the server has not been shut down cleanly. */
static bool
make_head(StatFileHead *head)
{
	bool		crc_ok;
	ControlFileData *control = get_controlfile(DataDir, &crc_ok);
	bool		clean = crc_ok && (control->state == DB_SHUTDOWNED || control->state == DB_SHUTDOWNED_IN_RECOVERY);

	memset(head, 0, sizeof(StatFileHead));
	head->magic = STAT_MAGIC;
	head->entry_size = sizeof(SavedEntry);
	head->db_size = sizeof(SavedDb);
	head->system = control->system_identifier;
	head->checkpoint = control->checkPoint;
	pfree(control);
	return clean;
}

/* ---------- saving ---------- */

static void
save_entry(const StatEntry *entry, SavedEntry *saved)
{
	saved->dboid = entry->dboid;
	saved->type_id = entry->type_id;
	strlcpy(saved->name, entry->name, sizeof(saved->name));
	for (int c = STAT_LIVE; c < STAT_COUNTERS; c++)
		saved->n[c] = stat_value(unconstify(StatEntry *, entry), c);
	saved->last_completed = pg_atomic_read_u64(&unconstify(StatEntry *, entry)->last_completed);
	saved->last_failed = pg_atomic_read_u64(&unconstify(StatEntry *, entry)->last_failed);
	saved->reset_at = entry->reset_at;
	memcpy(saved->seen, entry->seen, sizeof(saved->seen));
	memcpy(saved->minutes, entry->minutes, sizeof(saved->minutes));
}

static void
save_dispatcher(const JobqDb *db, SavedDb *saved)
{
	const DbStats *stats = &db->stats;

	saved->loops = stats->loops;
	memcpy(saved->wakeups, stats->wakeups, sizeof(saved->wakeups));
	saved->sweep_finds = stats->sweep_finds;
	saved->publications_lost = stats->publications_lost;
	saved->handed_out = pg_atomic_read_u64(&unconstify(JobqDb *, db)->counters.handed_out) - stats->handed_out_before;
	saved->fallbacks = pg_atomic_read_u64(&unconstify(JobqDb *, db)->counters.fallbacks) - stats->fallbacks_before;
}

static void
save_db(const JobqDb *db, SavedDb *saved)
{
	saved->dboid = db->dboid;
	saved->has_other = db->stats.has_other;
	saved->reset_at = db->stats.reset_at != 0 ? db->stats.reset_at : JobqShmem->started_at;
	save_dispatcher(db, saved);
	saved->sampled = db->stats.sampled;
	saved->nfine = db->stats.nfine;
	saved->ncoarse = db->stats.ncoarse;
	memcpy(saved->fine, db->stats.fine, sizeof(saved->fine));
	memcpy(saved->coarse, db->stats.coarse, sizeof(saved->coarse));
}

/* Makes the content of the file behind its head; returns its size. */
static Size
make_records(StatFileHead *head, char **records)
{
	int			n;
	StatEntry  *entries = stat_all_entries(&n);
	char	   *at = *records = palloc0(n * sizeof(SavedEntry) + JobqShmem->ndbs * sizeof(SavedDb));

	for (int i = 0; i < n; i++)
	{
		if (!OidIsValid(entries[i].dboid))
			continue;
		save_entry(&entries[i], (SavedEntry *) at);
		at += sizeof(SavedEntry);
		head->nentries++;
	}
	for (int i = 0; i < JobqShmem->ndbs; i++)
	{
		if (!OidIsValid(JobqShmem->dbs[i].dboid))
			continue;
		save_db(&JobqShmem->dbs[i], (SavedDb *) at);
		at += sizeof(SavedDb);
		head->ndbs++;
	}
	INIT_CRC32C(head->crc);
	COMP_CRC32C(head->crc, *records, at - *records);
	FIN_CRC32C(head->crc);
	return at - *records;
}

static void
write_file(const StatFileHead *head, const char *records, Size size)
{
	FILE	   *file = AllocateFile(STAT_FILE_NEW, PG_BINARY_W);

	if (file != NULL && fwrite(head, sizeof(StatFileHead), 1, file) == 1 && fwrite(records, 1, size, file) == size &&
		FreeFile(file) == 0 && durable_rename(STAT_FILE_NEW, STAT_FILE, LOG) == 0)
		return;
	ereport(LOG,
			(errcode_for_file_access(),
			 errmsg("jobq: could not write file \"%s\": %m", STAT_FILE_NEW)));
	unlink(STAT_FILE_NEW);
}

static void
save_at_exit(int code, Datum arg)
{
	StatFileHead head;
	char	   *records;
	Size		size;

	if (code != 0 || JobqShmem == NULL || !make_head(&head))
		return;
	size = make_records(&head, &records);
	write_file(&head, records, size);
}

/* ---------- loading ---------- */

static Size
records_size(const StatFileHead *head)
{
	return (Size) head->nentries * sizeof(SavedEntry) + (Size) head->ndbs * sizeof(SavedDb);
}

/* True if a head that was read belongs to the last shutdown. */
static bool
head_fits(const StatFileHead *head)
{
	StatFileHead expected;

	return make_head(&expected) && head->magic == expected.magic && head->entry_size == expected.entry_size &&
		head->db_size == expected.db_size && head->system == expected.system && head->checkpoint == expected.checkpoint;
}

static bool
records_fit(const StatFileHead *head, const char *records)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, records, records_size(head));
	FIN_CRC32C(crc);
	return EQ_CRC32C(crc, head->crc);
}

/* Reads the file; NULL: it is damaged, or does not belong to this start. */
static char *
read_records(FILE *file, StatFileHead *head)
{
	char	   *records;

	if (fread(head, sizeof(StatFileHead), 1, file) != 1 || !head_fits(head))
		return NULL;
	records = palloc_extended(records_size(head), MCXT_ALLOC_HUGE | MCXT_ALLOC_NO_OOM);
	if (records != NULL && fread(records, 1, records_size(head), file) == records_size(head) && records_fit(head, records))
		return records;
	return NULL;
}

static void
load_entry(const SavedEntry *saved)
{
	JobqDb	   *db = find_db_at_start(saved->dboid);
	StatEntry  *entry = db == NULL ? NULL : stat_adopt_entry(db, saved->type_id);

	if (entry == NULL)
		return;					/* jobq.max_databases or jobq.max_stat_types is smaller now */
	strlcpy(entry->name, saved->name, sizeof(entry->name));
	for (int c = STAT_LIVE; c < STAT_COUNTERS; c++)
		pg_atomic_write_u64(&entry->n[c], saved->n[c]);
	pg_atomic_write_u64(&entry->last_completed, saved->last_completed);
	pg_atomic_write_u64(&entry->last_failed, saved->last_failed);
	entry->reset_at = saved->reset_at;
	memcpy(entry->seen, saved->seen, sizeof(entry->seen));
	memcpy(entry->minutes, saved->minutes, sizeof(entry->minutes));
}

static void
load_dispatcher(const SavedDb *saved, DbStats *stats)
{
	stats->loops = saved->loops;
	memcpy(stats->wakeups, saved->wakeups, sizeof(saved->wakeups));
	stats->sweep_finds = saved->sweep_finds;
	stats->publications_lost = saved->publications_lost;
	stats->handed_out_before = -saved->handed_out;	/* of counters that begin at 0 */
	stats->fallbacks_before = -saved->fallbacks;
}

static void
load_db(const SavedDb *saved)
{
	JobqDb	   *db = make_db_at_start(saved->dboid);

	if (db == NULL)
		return;
	db->stats.has_other = saved->has_other;
	db->stats.reset_at = saved->reset_at;
	load_dispatcher(saved, &db->stats);
	db->stats.sampled = saved->sampled;
	db->stats.nfine = saved->nfine;
	db->stats.ncoarse = saved->ncoarse;
	memcpy(db->stats.fine, saved->fine, sizeof(saved->fine));
	memcpy(db->stats.coarse, saved->coarse, sizeof(saved->coarse));
}

static void
load_records(const StatFileHead *head, const char *records)
{
	const char *dbs = records + head->nentries * sizeof(SavedEntry);

	for (uint32 i = 0; i < head->ndbs; i++)
		load_db((const SavedDb *) (dbs + i * sizeof(SavedDb)));
	for (uint32 i = 0; i < head->nentries; i++)
		load_entry((const SavedEntry *) (records + i * sizeof(SavedEntry)));
}

void
stat_file_load(void)
{
	StatFileHead head;
	FILE	   *file;
	char	   *records;

	if (IsUnderPostmaster)
		return;
	on_shmem_exit(save_at_exit, (Datum) 0);
	file = AllocateFile(STAT_FILE, PG_BINARY_R);
	if (file == NULL)
		return;
	records = read_records(file, &head);
	FreeFile(file);
	unlink(STAT_FILE);
	if (records != NULL)
		load_records(&head, records);
	else
		ereport(LOG,
				(errmsg("jobq: file \"%s\" is damaged or does not belong to the last shutdown: statistics begin anew",
						STAT_FILE)));
}
