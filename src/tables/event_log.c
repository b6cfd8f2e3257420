/*
 * event_log.c
 *	  Lines of jobq.events.
 *
 * A type's level selects the transitions that are written: none, failures
 * (failures and the actions that they caused) or all.  Events of handlers,
 * tools and clients (log_event, descriptor 3) are written at every level.  An
 * event's time is the moment it happened.  For the start of a SQL job that is
 * before the write, because nothing is written before such a job has ended.
 *
 * Ids come from a sequence with a cache, so they order the events of one
 * moment and one process only.
 */
#include "jobq.h"

#include "commands/sequence.h"
#include "postmaster/bgworker.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "base/relations.h"
#include "shared/child_process.h"
#include "shared/commit_news.h"
#include "tables/event_log.h"
#include "tables/table_shape.h"

#define MAX_GATHERED	256

static const ShapeColumn events_columns[] = {
	{"id", INT8OID, FILLED}, {"ts", TIMESTAMPTZOID, FILLED}, {"job_id", UUIDOID, NULLABLE},
	{"job_type", TEXTOID, NULLABLE}, {"tenant", TEXTOID, NULLABLE}, {"attempt", INT4OID, NULLABLE},
	{"type", TEXTOID, FILLED}, {"source", TEXTOID, FILLED}, {"level", TEXTOID, FILLED},
	{"message", TEXTOID, NULLABLE}, {"data", JSONBOID, NULLABLE}
};
const Shape events_shape = SHAPE("events", events_columns);

StaticAssertDecl(lengthof(events_columns) == E_NATTS, "events' columns");

const char *
source_of_sql(void)
{
	return MyBgworkerEntry != NULL && strcmp(MyBgworkerEntry->bgw_type, CONDUCTOR_TYPE) == 0 ? "dispatcher" : "client";
}

Event
event_of_drop(TimestampTz ts, const char *source)
{
	return (Event) {.ts = ts, .type = "log", .source = source, .level = "warning",
		.message = "more events of this attempt were dropped"};
}

void
events_begin(EventLog *log)
{
	memset(log, 0, sizeof(EventLog));
	log->context = CurrentMemoryContext;
}

static void
events_write(EventLog *log)
{
	int			n = log->nrows;

	log->nrows = 0;
	if (n > 0)
		table_insert_tuples(&log->partition.table, log->rows, n);
}

void
events_end(EventLog *log)
{
	events_write(log);
	partition_close(&log->partition);
}

static void
open_partition(EventLog *log, TimestampTz ts)
{
	if (partition_holds(&log->partition, ts))
		return;
	events_write(log);
	partition_open(&log->partition, "events", ts);
}

/*
 * Returns the time of an event.  One older than jobq.keep_events (of a job that
 * ran for long) gets the current time: it would expire at once.
 */
static TimestampTz
event_time(const Event *event)
{
	TimestampTz now = GetCurrentTimestamp();

	return event->ts < now - (int64) jobq_keep_events * USECS_PER_SEC ? now : event->ts;
}

static void
set_text(Datum *values, bool *nulls, int att, const char *text)
{
	nulls[att - 1] = text == NULL;
	values[att - 1] = text ? CStringGetTextDatum(text) : (Datum) 0;
}

static HeapTuple
event_row(Table *table, TimestampTz ts, const Datum *job, const bool *job_nulls,
		  const char *job_type, const Event *event)
{
	Datum		values[E_NATTS] = {0};
	bool		nulls[E_NATTS] = {0};

	values[E_id - 1] = Int64GetDatum(nextval_internal(jobq_relid("event_id_seq"), false));
	values[E_ts - 1] = TimestampTzGetDatum(ts);
	values[E_job_id - 1] = job[Q_id - 1];
	nulls[E_job_id - 1] = job_nulls[Q_id - 1];
	set_text(values, nulls, E_job_type, job_type);
	values[E_tenant - 1] = job[Q_tenant - 1];
	nulls[E_tenant - 1] = job_nulls[Q_tenant - 1];
	values[E_attempt - 1] = Int32GetDatum(event->attempt);
	set_text(values, nulls, E_type, event->type);
	set_text(values, nulls, E_source, event->source);
	set_text(values, nulls, E_level, event->level);
	set_text(values, nulls, E_message, event->message);
	values[E_data - 1] = PointerGetDatum(event->data);
	nulls[E_data - 1] = event->data == NULL;
	return table_form_row(table, values, nulls);
}

void
event_add(EventLog *log, const Datum *values, const bool *nulls, const char *job_type, const Event *event)
{
	TimestampTz ts = event_time(event);
	MemoryContext old;

	old = MemoryContextSwitchTo(log->context);
	open_partition(log, ts);
	if (log->rows == NULL)
		log->rows = palloc(sizeof(HeapTuple) * MAX_GATHERED);
	if (log->nrows == MAX_GATHERED)
		events_write(log);
	log->rows[log->nrows++] = event_row(&log->partition.table, ts, values, nulls,
										job_type, event);
	news_events();
	MemoryContextSwitchTo(old);
}
