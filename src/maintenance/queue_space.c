/*
 * queue_space.c
 *	  How much of the queue's files is free, whether VACUUM comes, and since
 *	  when the horizon stands still.
 *
 * Rows of ended jobs are removed by PostgreSQL's autovacuum alone, by the
 * settings that the table has.  Their space is reused and not given back:
 * truncation would take an exclusive lock.  So a queue that was long once, or
 * whose dead rows a snapshot kept, has large files afterwards; and where
 * autovacuum doesn't come they grow.  health() names both, by what the
 * maintenance process measures here once a minute.
 *
 * A replication slot and the feedback of a standby have no time: what is noted
 * here is since when the horizon stands still, and health() takes it for the
 * one whose xmin it is.
 *
 * The free space is that of the free space maps, of at most SAMPLES pages of
 * each file.  An index has free pages there only, so a bloated one counts as
 * full.
 */
#include "jobq.h"

#include "access/table.h"
#include "catalog/pg_class.h"
#include "pgstat.h"
#include "postmaster/autovacuum.h"
#include "storage/bufmgr.h"
#include "storage/freespace.h"
#include "storage/procarray.h"
#include "utils/fmgrprotos.h"
#include "utils/rel.h"

#include "base/relations.h"
#include "maintenance/queue_space.h"

#define SAMPLES		65536
#define LATE		10			/* times the dead rows that autovacuum comes for */
#define STALE_MS	300000		/* maintenance measures once a minute */

/* Adds the file's bytes, all and free ones. */
static void
add_file(Relation rel, QueueSpace *sum)
{
	BlockNumber nblocks = RelationGetNumberOfBlocks(rel);
	BlockNumber step = nblocks / SAMPLES + 1;
	int64		room = 0;

	for (BlockNumber block = 0; block < nblocks; block += step)
		room += GetRecordedFreeSpace(rel, block);
	sum->bytes += (int64) nblocks * BLCKSZ;
	sum->free_bytes += room * step;
}

static void
add_with_indexes(Relation rel, QueueSpace *sum)
{
	List	   *indexes = RelationGetIndexList(rel);
	ListCell   *lc;

	add_file(rel, sum);
	foreach(lc, indexes)
	{
		Relation	index = index_open(lfirst_oid(lc), AccessShareLock);

		add_file(index, sum);
		index_close(index, AccessShareLock);
	}
	list_free(indexes);
}

/* Returns the number of dead rows for which autovacuum comes. */
static double
autovacuum_threshold(Relation rel)
{
	AutoVacOpts *options = rel->rd_options ? &((StdRdOptions *) rel->rd_options)->autovacuum : NULL;
	double		base = options && options->vacuum_threshold >= 0 ? options->vacuum_threshold : autovacuum_vac_thresh;
	double		scale = options && options->vacuum_scale_factor >= 0 ? options->vacuum_scale_factor : autovacuum_vac_scale;

	return base + scale * Max(rel->rd_rel->reltuples, 0);
}

static bool
autovacuum_is_on(Relation rel)
{
	return autovacuum_start_daemon && pgstat_track_counts &&
		(rel->rd_options == NULL || ((StdRdOptions *) rel->rd_options)->autovacuum.enabled);
}

static int64
statistic(PGFunction what, Relation rel)
{
	return DatumGetInt64(DirectFunctionCall1(what, ObjectIdGetDatum(RelationGetRelid(rel))));
}

/*
 * True if more rows are dead than autovacuum leaves.  All that have died since
 * the last measurement may be: at a high rate that is more between two of its
 * visits.
 */
static bool
is_late(Relation rel, int64 died, const QueueSpace *before)
{
	int64		dead = statistic(pg_stat_get_dead_tuples, rel);

	return dead > LATE * autovacuum_threshold(rel) && dead > died - before->died;
}

/* Returns the horizon of the relation's rows, with the time since which it stands still. */
static Horizon
note_horizon(Relation rel, const Horizon *before, MonoTime now)
{
	Horizon		horizon = {GetOldestNonRemovableTransactionId(rel), now};

	if (before->since && before->xmin == horizon.xmin)
		horizon.since = before->since;
	return horizon;
}

static Horizon
note_catalog_horizon(const Horizon *before, MonoTime now)
{
	Relation	rel = table_open(RelationRelationId, AccessShareLock);
	Horizon		horizon = note_horizon(rel, before, now);

	table_close(rel, AccessShareLock);
	return horizon;
}

static QueueSpace
last_space(JobqDb *db)
{
	QueueSpace	space;

	SpinLockAcquire(&db->mutex);
	space = db->space;
	SpinLockRelease(&db->mutex);
	return space;
}

bool
queue_space_measure(void *arg)
{
	JobqDb	   *db = arg;
	Relation	rel = table_open(jobq_relid("queue"), AccessShareLock);
	QueueSpace	before = last_space(db);
	QueueSpace	now = {0};

	now.died = statistic(pg_stat_get_tuples_updated, rel) + statistic(pg_stat_get_tuples_deleted, rel);
	now.measured = mono_now();
	if (is_late(rel, now.died, &before) || !pgstat_track_counts)
		now.late_since = before.late_since ? before.late_since : now.measured;
	add_with_indexes(rel, &now);
	if (OidIsValid(rel->rd_rel->reltoastrelid))
	{
		Relation	toast = table_open(rel->rd_rel->reltoastrelid, AccessShareLock);

		add_with_indexes(toast, &now);
		table_close(toast, AccessShareLock);
	}
	now.autovacuum_on = autovacuum_is_on(rel);
	now.horizon = note_horizon(rel, &before.horizon, now.measured);
	now.catalog_horizon = note_catalog_horizon(&before.catalog_horizon, now.measured);
	table_close(rel, AccessShareLock);
	SpinLockAcquire(&db->mutex);
	db->space = now;
	SpinLockRelease(&db->mutex);
	return true;
}

QueueSpace
queue_space(JobqDb *db)
{
	QueueSpace	space = last_space(db);

	if (mono_exceeds(space.measured, mono_now(), STALE_MS))
		memset(&space, 0, sizeof(space));
	return space;
}
