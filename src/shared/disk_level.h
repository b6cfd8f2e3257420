/*
 * disk_level.h
 *	  How full the fullest disk of the server is, as last measured
 *	  (disk_watch.c).
 */
#ifndef JOBQ_DISK_LEVEL_H
#define JOBQ_DISK_LEVEL_H

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
/* Returns the level; percent: of the fullest file system.  db may be NULL. */
extern DiskLevel disk_level(JobqDb *db, double *percent);

/*
 * Raises 53100 at DISK_EMERGENCY; for job types with
 * options.refuse_on_disk_emergency.
 */
extern void disk_refuse_at_emergency(const char *job_type);

#endif
