/*
 * enqueue_request.h
 *	  The arguments of enqueue: reading, checking, defaults.
 */
#ifndef JOBQ_ENQUEUE_REQUEST_H
#define JOBQ_ENQUEUE_REQUEST_H

#include "registry/job_types.h"
#include "nodes/pg_list.h"
#include "utils/array.h"

/* The arguments of jobq.enqueue, in their order. */
typedef enum Argument
{
	A_job_type, A_payload, A_priority, A_delay, A_scheduled_for, A_max_attempts, A_timeout,
	A_backoff, A_unique_key, A_on_conflict, A_unique_for, A_concurrency_key, A_keep_completed,
	A_tenant, A_metadata, A_keep_dead, A_after, A_after_rule
} Argument;
#define A_COUNT (A_after_rule + 1)

typedef enum OnConflict
{
	CONFLICT_IGNORE,
	CONFLICT_REPLACE,
	CONFLICT_ERROR
} OnConflict;

/* What parents' ends do to a job that waits for them (after.h). */
typedef enum AfterRule
{
	AFTER_SUCCESS,
	AFTER_DONE,
	AFTER_ANY,
	AFTER_FAILED
} AfterRule;

/* A job that may be stored. */
typedef struct Request
{
	JobType    *type;
	Jsonb	   *payload;
	int			priority;
	int			max_attempts;
	TimestampTz scheduled_for;	/* 0: now */
	bool		priority_given;	/* or the type's; so for the next two */
	bool		max_attempts_given;
	bool		due_given;
	OnConflict	on_conflict;
	text	   *unique_key;		/* NULL: none; so for all below */
	text	   *concurrency_key;
	text	   *tenant;
	const char *enqueued_by;	/* access.h */
	List	   *quotas;			/* quota.h */
	Interval   *unique_for;
	Interval   *timeout;
	Interval   *keep_completed;
	Interval   *keep_dead;
	Jsonb	   *backoff;
	Jsonb	   *metadata;
	bool		has_parent;
	pg_uuid_t	parent_id;
	int			depth;
	int32		schedule_id;	/* 0: not of a tick */
	ArrayType  *after;			/* the parents, each once, or none; NULL: not given */
	AfterRule	after_rule;
	bool		blocked;		/* parents have to end first */
	Bitmapset  *counted;		/* places of parents that have ended, and need no edge */
	bool		completed;		/* one of those has completed */
	pg_uuid_t  *looks;			/* parents that may end before this transaction does */
	int			nlooks;			/* their number; the array has the first ones */
} Request;

/* Fills in the defaults of enqueue's arguments. */
extern void request_defaults(NullableDatum *args);
/*
 * Reads all but the payload; raises an error that names the argument
 * when the job must not be stored.
 */
extern void request_read(Request *request, const NullableDatum *args);
/* Makes the job a child of that depth; raises an error when that is deeper than its type allows. */
extern void request_set_parent(Request *request, const pg_uuid_t *parent, int depth);
extern void request_set_payload(Request *request, Jsonb *payload);

/* Raises 22023 or 54000 unless the value is a backoff. */
extern void backoff_check(Jsonb *backoff);

extern const char *const argument_names[A_COUNT];

#endif
