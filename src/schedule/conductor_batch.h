/*
 * conductor_batch.h
 *	  Transactions of the conductor: turns of many schedules at once.
 */
#ifndef JOBQ_CONDUCTOR_BATCH_H
#define JOBQ_CONDUCTOR_BATCH_H

#include "schedule/schedule_turn.h"

#define BATCH_SIZE		1000	/* pieces of work, and ticks, of a transaction */

typedef enum WorkKind
{
	WORK_READ,					/* the row may have changed */
	WORK_DUE,
	WORK_END,					/* of the job in `end` */
	WORK_LOOK					/* at the last job */
} WorkKind;

typedef struct Work
{
	int32		id;
	WorkKind	kind;
	ScheduledEnd end;
} Work;

typedef enum BatchResult
{
	BATCH_DONE,
	BATCH_FOREIGN,				/* nothing done: the schedules are another
								 * database's, or the tables do not fit */
	BATCH_LOCKED				/* nothing read: a session holds the table */
} BatchResult;

/*
 * Does the work, at most BATCH_SIZE pieces, and sets the entries.  Work other
 * than WORK_DUE that met a lock is moved to the front of the array; *nlocked
 * is its number.
 */
extern BatchResult batch_run(JobqDb *db, Work *work, int n, int *nlocked);

/* Reads all schedules into entries, which stay as they are when it cannot. */
extern BatchResult batch_read_all(void);

#endif
