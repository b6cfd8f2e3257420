/*
 * disk_level.c
 *	  The level of the disk watch, for every process: see disk_level.h.
 *
 * A file system may block the process that measures (maintenance_tasks.c): a level
 * older than STALE_US is unknown.
 */
#include "jobq.h"

#include "shared/disk_level.h"

#define STALE_US	(5 * USECS_PER_MINUTE)

static const char *const level_names[] = {NULL, "ok", "warning", "critical", "emergency"};

const char *
disk_level_name(DiskLevel level)
{
	return level_names[level];
}

DiskLevel
disk_level(JobqDb *db, double *percent)
{
	DiskLevel	level;
	MonoTime	measured;

	if (db == NULL)
		return DISK_UNKNOWN;
	SpinLockAcquire(&db->mutex);
	level = (DiskLevel) db->disk.level;
	*percent = db->disk.percent;
	measured = db->disk.measured;
	SpinLockRelease(&db->mutex);
	return mono_now() - measured > STALE_US ? DISK_UNKNOWN : level;
}

void
disk_refuse_at_emergency(const char *job_type)
{
	double		percent;

	if (disk_level(my_db(), &percent) != DISK_EMERGENCY)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_DISK_FULL),
			 errmsg("job type \"%s\" takes no jobs: a disk of the server is %.1f %% full", job_type, percent),
			 errdetail("The type has options.refuse_on_disk_emergency, and jobq.disk_emergency is reached."),
			 errhint("jobq.disk_log says which file system it is; it is measured once a minute.")));
}
