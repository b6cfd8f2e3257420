/*
 * disk_watch.h
 *	  How full the disks are, and what follows from it.
 */
#ifndef JOBQ_DISK_WATCH_H
#define JOBQ_DISK_WATCH_H

#include "shared/disk_level.h"
#include "shared/shmem.h"

/* In the process that does the chores, outside of a transaction: measures every file system. */
typedef struct FileSystem
{
	dev_t		device;
	char		path[MAXPGPATH];
	double		total;
	double		used;
	double		percent;
	DiskLevel	level;
	DiskLevel	before;			/* at the reading before this one */
} FileSystem;

extern List *disk_measure(void);
/* In a transaction: writes the readings to jobq.disk_log, fills `before`. */
extern void disk_record(List *filesystems);
/* Says in the server log what has changed, and tells everybody the worst level, which it returns. */
extern DiskLevel disk_announce(JobqDb *db, List *filesystems);

#endif
