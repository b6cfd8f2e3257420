/*
 * event_log.h
 *	  Rows of jobq.events, and the level of each type (options.events).
 *
 * Rows are gathered and written many at a time, at the latest by events_end,
 * in the transaction whose commit makes them true.  An event below the type's
 * level costs the test of a flag and nothing else.
 */
#ifndef JOBQ_EVENT_LOG_H
#define JOBQ_EVENT_LOG_H

#include "tables/partition.h"
#include "utils/jsonb.h"

#define ATTEMPT_EVENTS	10000	/* that its handler or client writes; the rest is dropped, with a notice */

/* Something that happened to a job. */
typedef struct Event
{
	TimestampTz ts;				/* 0: now */
	int			attempt;		/* that it belongs to; 0: before the first */
	const char *type;
	const char *source;
	const char *level;
	const char *message;		/* NULL: none */
	Jsonb	   *data;			/* NULL: none */
} Event;

/* The events of a transaction. */
typedef struct EventLog
{
	Partition	partition;
	MemoryContext context;		/* lives until events_end */
	HeapTuple  *rows;			/* to be written */
	int			nrows;
} EventLog;

/* Returns the source of what this session's SQL does: client; dispatcher, in the conductor. */
extern const char *source_of_sql(void);

/* Returns the event in place of those that are dropped. */
extern Event event_of_drop(TimestampTz ts, const char *source);

extern void events_begin(EventLog *log);
extern void events_end(EventLog *log);

/*
 * Adds one, of a job whose columns these are (of jobq.queue).  The id may be
 * NULL: the event of a schedule.
 */
extern void event_add(EventLog *log, const Datum *values, const bool *nulls, const char *job_type, const Event *event);

/* The checked columns of jobq.events: see table_shape.h. */
extern const struct Shape events_shape;

#endif
