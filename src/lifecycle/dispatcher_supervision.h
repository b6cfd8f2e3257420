/*
 * dispatcher_supervision.h
 *	  The launcher's state of one database.
 */
#ifndef JOBQ_DISPATCHER_SUPERVISION_H
#define JOBQ_DISPATCHER_SUPERVISION_H

#include "base/clock.h"
#include "postmaster/bgworker.h"

#define REFUSED_AGAIN_MS	1000	/* a refused database that is wanted is checked again then */
#define CLOSED_AGAIN_MS		15000	/* one that allows no connections; an ALTER DATABASE is noticed at once */

typedef enum SupervisionState
{
	SUPERVISION_IDLE,			/* to be started at next_try */
	SUPERVISION_ABSENT,			/* looked: no extension */
	SUPERVISION_STARTING,		/* registered, not attached */
	SUPERVISION_RUNNING
} SupervisionState;

typedef struct Supervision
{
	Oid			dboid;			/* hash key */
	SupervisionState state;
	bool		exists;			/* seen by the last scan */
	bool		closed;			/* refused because it allows no connections */
	bool		admitted;		/* no template, allows connections, in jobq.databases */
	BackgroundWorkerHandle *handle; /* NULL: none, or a former launcher's */
	MonoTime	refused;		/* since then; 0: admitted */
	MonoTime	started;
	MonoTime	tried;			/* to start it, in vain or not */
	MonoTime	next_try;
	int			failures;		/* ends in a row without having worked */
} Supervision;

/* Updates the state by its dispatcher and by requests. */
extern void supervision_look(Supervision *k, MonoTime now);
extern bool supervision_may_start(Supervision *k, MonoTime now);
extern void supervision_start(Supervision *k, MonoTime now);
/* Refuses the database: its dispatcher leaves, a request for one is dropped. */
extern void supervision_refuse(Supervision *k);

/*
 * False until it is known whether the database has the extension; true also if
 * its dispatcher could not be started.
 */
extern bool supervision_knows(Supervision *k);

/*
 * Returns the time that the launcher may sleep because of this one, in ms; -1:
 * without limit.
 */
extern long supervision_timeout(Supervision *k, MonoTime now);

#endif
