/*
 * crash_record.h
 *	  Which job each SQL worker runs now, in memory that survives a crash of
 *	  the server.
 *
 * An anonymous shared mapping that the postmaster makes before it forks.  A
 * crash restart empties PostgreSQL's shared memory but keeps the postmaster,
 * and so this mapping.  A new postmaster has a new one: no job is blamed for
 * another server's death, and no file can travel with a copy of the data
 * directory.
 */
#ifndef JOBQ_CRASH_RECORD_H
#define JOBQ_CRASH_RECORD_H

#include "shared/slots.h"

typedef struct Suspect
{
	pg_uuid_t	id;
	bool		guilty;			/* its worker died by itself; else the job was
								 * only running */
} Suspect;

/* Makes the mapping; in the postmaster, at preload. */
extern void crash_record_create(void);

/*
 * Registers a SQL worker: from now on SIGQUIT marks it as stopped by the
 * postmaster.
 */
extern void crash_record_attach(int slotno, Oid dboid);
/* Records the job that the worker runs, and clears the record. */
extern void crash_record_begin(const pg_uuid_t *id);
extern void crash_record_end(void);

/*
 * Puts aside the records that a crash of the server left; in the launcher,
 * before it starts a process.
 */
extern void crash_record_after_restart(void);

/*
 * Takes the jobs that ran in dboid when the server crashed.  Returns their
 * number, at most max.
 */
extern int	crash_record_take_suspects(Oid dboid, Suspect *suspects, int max);

#endif
