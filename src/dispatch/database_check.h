/*
 * database_check.h
 *	  Checks that a dispatcher may run in the database.
 */
#ifndef JOBQ_DATABASE_CHECK_H
#define JOBQ_DATABASE_CHECK_H

#include "shared/shmem.h"

extern void check_init(JobqDb *db);
/* Ends the process unless the extension is there; needs a transaction. */
extern void check_extension(void);
/* Ends the process if the launcher refuses the database. */
extern void leave_if_refused(void);
/* Ends the process unless version and tables fit; needs a transaction. */
extern void check_fit(void);

/*
 * Waits at the start until version and tables fit; ends the process when the
 * extension has gone.
 */
extern void wait_until_fit(void);

#endif
