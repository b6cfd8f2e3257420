/*
 * crash_record.h
 *	  Which job each SQL worker runs now, in memory that survives a crash of the server.
 *
 * An anonymous shared mapping made by the postmaster before it forks anybody: a crash restart
 * empties PostgreSQL's shared memory but keeps the postmaster, and so this.  A new postmaster has
 * a new one, so nobody is blamed for another server's death, and no file can travel with a copy.
 */
#ifndef JOBQ_CRASH_RECORD_H
#define JOBQ_CRASH_RECORD_H

#include "shared/slots.h"

typedef struct Suspect
{
	pg_uuid_t	id;
	bool		guilty;			/* its worker is what died; else it was merely running */
} Suspect;

/* In the postmaster, at preload. */
extern void inflight_create(void);
/* In a SQL worker: from here on SIGQUIT marks us as stopped by the postmaster. */
extern void inflight_attach(int slotno, Oid dboid);
extern void inflight_begin(const pg_uuid_t *id);
extern void inflight_end(void);
/* In the launcher, before it starts anybody: puts aside what a crash of the server left. */
extern void inflight_after_restart(void);
/* What ran in dboid when the server crashed; forgets it.  Returns how many, at most max. */
extern int	inflight_take_suspects(Oid dboid, Suspect *suspects, int max);

#endif
