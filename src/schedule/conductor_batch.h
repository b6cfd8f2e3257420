/*
 * conductor_batch.h
 *	  Transactions of the conductor: turns of many schedules at once.
 */
#ifndef JOBQ_CONDUCTOR_BATCH_H
#define JOBQ_CONDUCTOR_BATCH_H

#include "schedule/schedule_turn.h"

#define BATCH_SIZE		1000

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

/*
 * Does the work, at most BATCH_SIZE pieces, and sets the entries.  False: the
 * schedules are another database's, or the tables do not fit; nothing was
 * done.
 */
extern bool batch_run(JobqDb *db, Work *work, int n);

/*
 * Reads all schedules into entries; false as for batch_run(), or a session
 * holds the table.
 */
extern bool batch_read_all(void);

#endif
