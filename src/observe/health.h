/*
 * health.h
 *	  The answer of jobq.health() while it is put together.
 */
#ifndef JOBQ_HEALTH_H
#define JOBQ_HEALTH_H

#include "lib/stringinfo.h"

#include "observe/health_facts.h"

typedef enum Level
{
	HEALTHY,
	DEGRADED,
	UNHEALTHY
} Level;

typedef struct Report
{
	StringInfoData checks;		/* members of a JSON object */
	Level		worst;
	JobqDb	   *notes;			/* has the times since when a check is not healthy; NULL: they are not kept */
	uint32		bad;			/* a bit for each check that is not healthy */
	TimestampTz since;			/* of the next check, if its cause has a time of its own; 0: none */
} Report;

/*
 * Adds a check.  extra is a list of members that begins with a comma, or
 * empty; message may be NULL.
 */
extern void add_check(Report *report, const char *name, Level level, const char *message, const char *extra);

/* Returns the member "since" of a check, "" for 0: since when it has been as it is. */
extern const char *since_member(TimestampTz since);

/* health_processes.c.  db is NULL where the database has no entry in shared memory. */

/* Returns the reason why there is no dispatcher. */
extern const char *why_no_dispatcher(JobqDb *db, bool workers_used_up);
/* Checks that the dispatcher answers; returns true if there is one. */
extern bool check_dispatcher(Report *report, JobqDb *db, const HealthFacts *f);

/*
 * Checks that jobs have a worker.  Returns the count that is shown: without
 * claimed jobs if the caller may not read every job.
 */
extern int	check_workers(Report *report, JobqDb *db, const HealthFacts *f, bool dispatcher);

/*
 * Checks the background worker slots: without a free one, jobs wait for a
 * worker that exists.
 */
extern void check_slots(Report *report, JobqDb *db, const HealthFacts *f);
/* Checks that tools can be started. */
extern void check_helper(Report *report, JobqDb *db, const HealthFacts *f);
/* Adds the check of breakers, which exists only while one is open. */
extern void check_breakers(Report *report, JobqDb *db, const HealthFacts *f);

#endif
