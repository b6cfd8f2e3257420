/*
 * fake_dispatcher.h
 *	  Job types, limits, roles and executors around the real lanes and the real
 *	  hand-out, without a server.
 *
 * An executor has cells; a job with REF_ALONE takes one without other jobs.  A
 * limit counts jobs.  Jobs that are only to be settled have a room of their own.
 * The rate of a type lets own.rate.limit jobs start until
 * rate_opens().
 */
#ifndef UNIT_FAKE_DISPATCHER_H
#define UNIT_FAKE_DISPATCHER_H

#include "server.h"

#include "dispatch/hand_out.h"
#include "lanes/ready_queue.h"
#include "limits/weight.h"
#include "workers/assign_job.h"

typedef struct FakeExecutor
{
	RoleState  *role;
	int			njobs;
	bool		alone;			/* its job shares it with no other */
} FakeExecutor;

/* A job that was handed out and has not ended. */
typedef struct Run
{
	JobRef		ref;
	FakeExecutor *executor;		/* NULL: it is only to be settled */
} Run;

extern TypeState *types;
extern RoleState *roles;
extern JobLimit *limits;
extern Run *runs;
extern int	nruns;
extern int	settling_room;		/* so many jobs may be settled at once */
extern void (*before_hand_out) (const JobRef *ref); /* called before a job is counted; NULL: none */
extern JobRef *handed;			/* all jobs handed out, in order */
extern int	nhanded;
extern int	keys_in_lanes;		/* refs with a concurrency key that entered lanes and have not left */
extern int	keys_lost;			/* refs with a key or a tenant's limit that left without a hand-out */

/* Makes everything anew; each role has so many executors with so many cells. */
extern void dispatcher_start(int ntypes, int nlimits, int nroles, int executors_each, int cells);
extern void dispatcher_stop(void);
/* Names limits and role of the type; they are as types_load would have them. */
extern void type_shares(int type, int limit);
extern void type_role(int type, int role);

/* Returns a new job, with a random id. */
extern JobRef job_of(int type, int priority, int sublane, TimestampTz position);
extern Lane *lane_of(const JobRef *ref);
/* Adds a row that was read; false: it is known. */
extern bool add_job(const JobRef *ref, bool from_cursor);
extern void hand_out(void);

/* Returns why the job can't be assigned now; *full: the limit. */
extern HandOut refusal_of(TypeState *t, const JobRef *ref, JobLimit **full);

/* Ends runs[i], whose row is gone; returns true if a newer version was seen. */
extern bool end_run(int i);
/* Puts the job of runs[i] back as it was. */
extern void give_back(int i);
/* The time of the type's rate has come. */
extern void rate_opens(TypeState *t);
/* Reads all types again: what admission.c does. */
extern void reload(void);
/* Forgets all lanes: what admission.c does before a full scan. */
extern void forget_lanes(void);

#endif
