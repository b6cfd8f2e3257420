/*
 * schedule_row.h
 *	  Rows of jobq.schedules: column numbers, reading, writing.
 */
#ifndef JOBQ_SCHEDULE_ROW_H
#define JOBQ_SCHEDULE_ROW_H

#include "schedule/cron.h"
#include "tables/queue_table.h"

/* attribute numbers: src/sql/48_schedules.sql */
enum
{
	S_name = 1, S_cron, S_job_type, S_payload, S_timezone, S_starts_at, S_ends_at, S_max_runs,
	S_catch_up, S_catch_up_limit, S_overlap, S_jitter, S_pause_after_failures, S_options, S_tenant,
	S_owner, S_status, S_reason, S_paused_until, S_runs, S_skipped, S_last_tick, S_last_job_id,
	S_next_tick, S_created_at, S_updated_at, S_id, S_owner_oid, S_ticks_after, S_waiting_tick,
	S_failures, S_ended_job_id, S_paused_by_jobq, S_home_id
};
#define S_NATTS S_home_id

typedef enum ScheduleStatus
{
	SCHEDULE_ACTIVE,
	SCHEDULE_PAUSED,
	SCHEDULE_FINISHED
} ScheduleStatus;

typedef enum CatchUp
{
	CATCH_UP_SKIP,
	CATCH_UP_ONE,
	CATCH_UP_ALL
} CatchUp;

typedef enum Overlap
{
	OVERLAP_SKIP,
	OVERLAP_QUEUE,
	OVERLAP_ALLOW,
	OVERLAP_CANCEL
} Overlap;

/* A schedule: its row, deformed.  Datums point into the row or are new. */
typedef struct Schedule
{
	ItemPointerData tid;
	TransactionId xmin;			/* of this version, as stored */
	Datum		values[S_NATTS];
	bool		nulls[S_NATTS];
	bool		changed;		/* the row is to be written */
	ScheduleStatus status;
	CatchUp		catch_up;
	Overlap		overlap;
	Cron	   *cron;			/* NULL: not parsed yet */
	const CronZone *zone;
} Schedule;

#define S_ATT(s, att)	((s)->values[(att) - 1])
#define S_NULL(s, att)	((s)->nulls[(att) - 1])
#define S_INT(s, att)	(DatumGetInt32(S_ATT(s, att)))
/* Returns a time; DT_NOBEGIN for NULL. */
#define S_TIME(s, att)	(S_NULL(s, att) ? DT_NOBEGIN : DatumGetTimestampTz(S_ATT(s, att)))

/*
 * Reads the version at the TID, or the latest one of that id; false: the row
 * is gone, or unfit, with a WARNING once.  *locked: another transaction holds it.
 */
extern bool schedule_fetch(Table *table, ItemPointer tid, int32 id, Schedule *s, bool *locked);
/* Locks the latest version, after a wait if need be; false: the row is gone. */
extern bool schedule_lock(Table *table, int32 id, Schedule *s);
/*
 * Fills a schedule from a row of the table; false, with a WARNING: the row has
 * a NULL or a word that the table's constraints refuse.
 */
extern bool schedule_from_tuple(Relation rel, HeapTuple tuple, Schedule *s);
/* Fills a schedule from a row of the row type; 55000 for such a row. */
extern void schedule_from_record(HeapTupleHeader record, Schedule *s);
/* Writes the row if it has changed, with the time in updated_at. */
extern void schedule_write(Table *table, Schedule *s, TimestampTz now);

/* Change columns. */
extern void schedule_set(Schedule *s, int att, Datum value);
extern void schedule_set_null(Schedule *s, int att);
extern void schedule_set_time(Schedule *s, int att, TimestampTz value); /* DT_NOEND: NULL */
extern void schedule_set_status(Schedule *s, ScheduleStatus status, const char *reason);

/* The checked columns of jobq.schedules: see table_shape.h. */
extern const struct Shape schedules_shape;

#endif
