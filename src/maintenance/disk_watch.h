/*
 * disk_watch.h
 *	  How full the disks are, and the consequences.
 */
#ifndef JOBQ_DISK_WATCH_H
#define JOBQ_DISK_WATCH_H

#include "shared/disk_level.h"
#include "shared/shmem.h"

/*
 * Measures every file system; in maintenance, outside of a
 * transaction.
 */
typedef struct FileSystem
{
	dev_t		device;
	char		path[MAXPGPATH];
	double		total;
	double		used;
	double		percent;
	DiskLevel	level;
	DiskLevel	before;			/* at the previous measurement */
} FileSystem;

extern List *disk_measure(void);

/*
 * Writes the measurements to jobq.disk_log and fills `before`.  In a
 * transaction.
 */
extern void disk_record(List *filesystems);

/*
 * Logs changes of level, and stores the worst level in shared memory.  Returns
 * that level.
 */
extern DiskLevel disk_announce(JobqDb *db, List *filesystems);

#endif
