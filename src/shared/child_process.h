/*
 * child_process.h
 *	  The processes of which a database has at most one: conductor, maintenance.
 *
 * The dispatcher takes the place in shared memory and registers the process,
 * which attaches to the place and gives it up at its exit.  A registered
 * process that has not attached within 30 s never will: its place is free.
 * None attaches while DDL keeps the database.
 */
#ifndef JOBQ_CHILD_PROCESS_H
#define JOBQ_CHILD_PROCESS_H

#include "shared/shmem.h"

#define CHILD_COME_US	(30 * USECS_PER_SEC)
#define CONDUCTOR_TYPE	"jobq conductor"	/* its backend_type */

/*
 * Starts the process of that place.  False, and try again later: one runs, DDL
 * keeps the database, or no background worker is free.  kind: its bit in
 * JobqDb.lacking.
 */
extern bool child_start(JobqDb *db, ChildProcess *place, uint32 kind, const char *type, const char *function);

/*
 * In the process: attaches to the place at that offset in JobqDb, and returns
 * the database's entry.  Exits if the place is not for this process.
 */
extern JobqDb *child_attach(Oid dboid, Size place);

/* True if the process has to leave: between two steps of its work. */
extern bool child_must_leave(JobqDb *db);

/*
 * Gives the place up, at exit; false: it is not this process's.
 * JobqShmem->lock is held.
 */
extern bool child_detach(ChildProcess *place);

/* Wakes the process, or terminates it; true while it runs. */
extern bool child_dismiss(ChildProcess *place, bool terminate);

#endif
