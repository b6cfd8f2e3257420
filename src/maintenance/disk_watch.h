/*
 * disk_watch.h
 *	  How full the disks are, and what follows from it.
 */
#ifndef JOBQ_DISK_WATCH_H
#define JOBQ_DISK_WATCH_H

#include "registry/job_types.h"
#include "shared/shmem.h"

typedef enum DiskLevel
{
	DISK_UNKNOWN,				/* not measured, or too long ago */
	DISK_OK,
	DISK_WARNING,
	DISK_CRITICAL,
	DISK_EMERGENCY
} DiskLevel;

extern const char *disk_level_name(DiskLevel level);
/* As last measured; percent: of the fullest file system.  db may be NULL. */
extern DiskLevel disk_level(JobqDb *db, double *percent);
/* ERROR 53100 when jobs of this type are refused now. */
extern void disk_admits(JobType *type);

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
