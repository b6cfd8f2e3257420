/*
 * disk_watch.c
 *	  The disk watch: measures file systems and applies their level.
 *
 * Once a minute the housekeeping process (housekeeping.c) calls statvfs() for
 * the data directory, its WAL, the tablespaces and the directory of the tools'
 * work directories, each file system once.  A file system that blocks this
 * call blocks that process and nothing else: the process holds no lock, no
 * snapshot and no transaction meanwhile.  Its last measurement expires
 * (disk_level.c).
 *
 * A level is reached at so many per cent of the space that the server may use
 * (as df counts): jobq.disk_warning, jobq.disk_critical, jobq.disk_emergency.
 * The worst level of all file systems is in shared memory (disk_level.h).
 */
#include "jobq.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/relations.h"
#include "base/session.h"
#include "maintenance/disk_watch.h"
#include "pressure/pressure_signals.h"

/* ---------- measuring ---------- */

static DiskLevel
level_of(double percent)
{
	if (percent >= jobq_disk_emergency)
		return DISK_EMERGENCY;
	if (percent >= jobq_disk_critical)
		return DISK_CRITICAL;
	return percent >= jobq_disk_warning ? DISK_WARNING : DISK_OK;
}

static bool
is_known(List *filesystems, dev_t device)
{
	ListCell   *lc;

	foreach(lc, filesystems)
	{
		if (((FileSystem *) lfirst(lc))->device == device)
			return true;
	}
	return false;
}

/* Adds the file system of a directory, or of the target of a link. */
static List *
measure(List *filesystems, const char *path)
{
	FileSystem *fs;
	struct stat st;
	struct statvfs vfs;
	char		target[MAXPGPATH];
	ssize_t		len;
	double		available;

	if (stat(path, &st) != 0 || is_known(filesystems, st.st_dev))
		return filesystems;
	if (statvfs(path, &vfs) != 0)
	{
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("jobq could not examine the file system of \"%s\": %m", path)));
		return filesystems;
	}
	if (vfs.f_blocks == 0)
		return filesystems;		/* it has no size */
	fs = palloc0(sizeof(FileSystem));
	len = readlink(path, target, sizeof(target) - 1);
	target[Max(len, 0)] = '\0';
	strlcpy(fs->path, target[0] == '/' ? target : path, sizeof(fs->path));
	fs->device = st.st_dev;
	fs->used = (double) (vfs.f_blocks - vfs.f_bfree) * vfs.f_frsize;
	available = (double) vfs.f_bavail * vfs.f_frsize;
	fs->total = fs->used + available;
	fs->percent = fs->total > 0 ? 100.0 * fs->used / fs->total : 100.0;
	fs->level = level_of(fs->percent);
	return lappend(filesystems, fs);
}

/* Paths are relative to the data directory, the working directory. */
List *
disk_measure(void)
{
	List	   *filesystems = measure(NIL, DataDir);
	DIR		   *dir = AllocateDir("pg_tblspc");
	struct dirent *entry;

	filesystems = measure(filesystems, "pg_wal");
	while ((entry = ReadDirExtended(dir, "pg_tblspc", LOG)) != NULL)
	{
		char		path[MAXPGPATH];

		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "pg_tblspc/%s", entry->d_name);
		filesystems = measure(filesystems, path);
	}
	FreeDir(dir);
	return measure(filesystems, workdir_parent());
}

/* ---------- consequences ---------- */

static DiskLevel
level_from_name(const char *name)
{
	for (int i = DISK_OK; i <= DISK_EMERGENCY; i++)
	{
		if (strcmp(name, disk_level_name((DiskLevel) i)) == 0)
			return (DiskLevel) i;
	}
	return DISK_UNKNOWN;
}

static void
record_one(FileSystem *fs)
{
	Oid			types[5] = {TEXTOID, INT8OID, INT8OID, FLOAT8OID, TEXTOID};
	Datum		args[5];
	char	   *before;

	args[0] = CStringGetTextDatum(fs->path);
	args[1] = Int64GetDatum((int64) fs->total);
	args[2] = Int64GetDatum((int64) fs->used);
	args[3] = Float8GetDatum(fs->percent);
	args[4] = CStringGetTextDatum(disk_level_name(fs->level));
	if (SPI_execute_with_args("SELECT jobq_internal._log_disk($1, $2, $3, $4, $5)",
							  5, types, args, NULL, false, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not call _log_disk");
	before = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
	fs->before = before ? level_from_name(before) : DISK_OK;
}

void
disk_record(List *filesystems)
{
	ListCell   *lc;

	SPI_connect();
	foreach(lc, filesystems)
		record_one(lfirst(lc));
	SPI_finish();
}

static void
say_change(FileSystem *fs)
{
	if (fs->level == fs->before)
		return;
	ereport(fs->level >= DISK_CRITICAL ? WARNING : LOG,
			(fs->level >= DISK_CRITICAL ? errcode(ERRCODE_DISK_FULL) : 0,
			 errmsg("jobq: the file system of \"%s\" is %.1f %% full, level %s after %s", fs->path, fs->percent,
					disk_level_name(fs->level), disk_level_name(fs->before))));
}

DiskLevel
disk_announce(JobqDb *db, List *filesystems)
{
	DiskLevel	worst = DISK_UNKNOWN;
	double		percent = 0;
	ListCell   *lc;

	foreach(lc, filesystems)
	{
		FileSystem *fs = lfirst(lc);

		say_change(fs);
		worst = Max(worst, fs->level);
		percent = Max(percent, fs->percent);
	}
	SpinLockAcquire(&db->mutex);
	db->disk.level = (int) worst;
	db->disk.percent = percent;
	db->disk.measured = mono_now();
	SpinLockRelease(&db->mutex);
	signal_set_builtin(db, SIGNAL_DISK, worst >= DISK_CRITICAL);
	return worst;
}
