/*
 * why_requests.h
 *	  Requests of jobq.why: a session asks the dispatcher why a job does not
 *	  start.
 *
 * A session takes one of a few places, writes the id, and waits a short time.
 * The dispatcher answers a few places a turn, and no turn sooner than
 * WHY_INTERVAL_US after the last one with answers: callers in a loop wait for
 * each other, and cost the dispatcher a bounded share of its time.
 *
 *	 FREE -> ASKED		the session, with a new number
 *	 ASKED -> ANSWERED	the dispatcher, if the number is still the same
 *	 any -> FREE		the session, when it has the answer or waits no more
 */
#ifndef JOBQ_WHY_REQUESTS_H
#define JOBQ_WHY_REQUESTS_H

#include "storage/proc.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "base/clock.h"

#define WHY_PLACES		8
#define WHY_REASONS		12
#define WHY_GROUPS		32
#define WHY_MESSAGE_LEN	256
#define WHY_INTERVAL_US	INT64CONST(5000)

typedef enum WhyCode
{
	WHY_SCHEDULED,
	WHY_RETRY,
	WHY_WORKFLOW,
	WHY_AFTER,
	WHY_TYPE_PAUSED,
	WHY_BREAKER,
	WHY_STOPPED,
	WHY_DISPATCHER,
	WHY_IDENTITY,
	WHY_LIMIT,
	WHY_SHARED_LIMIT,
	WHY_RATE,
	WHY_WEIGHT,
	WHY_KEY,
	WHY_TENANT_TURN,
	WHY_SIGNAL,
	WHY_FILTER,
	WHY_ROLE,
	WHY_SLOTS,
	WHY_NO_WORKER,
	WHY_NODE,
	WHY_HELPER,
	WHY_BEHIND,
	WHY_NCODES
} WhyCode;

/* As jobq.why() and jobq.stat_lanes have them. */
extern const char *const why_code_names[WHY_NCODES];

typedef struct WhyReason
{
	WhyCode		code;
	TimestampTz until;			/* it ends then by itself; 0: not known */
	bool		has_job;		/* `job` holds what the job waits for: shown to
								 * callers that see it */
	pg_uuid_t	job;
	char		holder[NAMEDATALEN];	/* a limit or a signal; '': none */
	char		message[WHY_MESSAGE_LEN];	/* names no tenant and no job */
} WhyReason;

/* The jobs of a type and priority that go before, all or those that are older. */
typedef struct WhyGroup
{
	int32		type_id;
	int16		priority;
	bool		older;
	bool		fair;			/* its tenants take turns */
} WhyGroup;

typedef struct WhyAnswer
{
	bool		found;			/* the dispatcher sees the job, and it waits */
	bool		handed_out;		/* to an executor, which may have begun it */
	int			nreasons;
	WhyReason	reasons[WHY_REASONS];

	/* its place in the order */
	bool		placed;			/* the fields below are filled in */
	int32		type_id;
	int16		priority;
	int16		sublane;
	bool		fair;
	TimestampTz position;
	bool		behind;			/* others go before it */
	double		rate;			/* at most so many start a second; 0: no rate */
	int			ngroups;
	bool		more_groups;	/* than fit */
	WhyGroup	groups[WHY_GROUPS];
} WhyAnswer;

typedef enum WhyState
{
	WHY_FREE,
	WHY_ASKED,
	WHY_ANSWERED
} WhyState;

typedef struct WhyPlace
{
	WhyState	state;
	uint32		number;			/* of its requests so far */
	PGPROC	   *proc;
	pg_uuid_t	id;
	WhyAnswer	answer;
} WhyPlace;

/* A part of JobqDb.  Under JobqDb.mutex. */
typedef struct WhyRequests
{
	int			nasked;			/* places to be answered; also read plainly */
	WhyPlace	places[WHY_PLACES];
} WhyRequests;

struct JobqDb;

/*
 * Asks, and waits for the answer until the deadline; false: there is none.
 * May be interrupted.
 */
extern bool why_ask(struct JobqDb *db, const pg_uuid_t *id, MonoTime deadline, WhyAnswer *answer);

/* --- dispatcher's side --- */
/* Takes a request that is not in `taken`, a bit each; -1: there is none. */
extern int	why_take(struct JobqDb *db, uint32 *taken, pg_uuid_t *id, uint32 *number);
/* Answers it, if the session still waits. */
extern void why_answered(struct JobqDb *db, int place, uint32 number, const WhyAnswer *answer);

#endif
