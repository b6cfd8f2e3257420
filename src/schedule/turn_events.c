/*
 * turn_events.c
 *	  Events of schedules, and the changes of the row that they tell.
 */
#include "jobq.h"

#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "base/json_build.h"
#include "base/texts.h"
#include "enqueue/insert_job.h"
#include "schedule/schedule_turn_internal.h"

/* Adds an event of the schedule; level: the least of the type that wants it. */
static void
add_event(TickTurn *turn, Schedule *s, EventsLevel level, Event *event, Jsonb *data)
{
	char	   *type_name = TextDatumGetCString(S_ATT(s, S_job_type));
	JobType    *type = job_type_by_name(type_name);
	Datum		values[Q_NATTS] = {0};
	bool		nulls[Q_NATTS];

	if (type != NULL && !EVENTS_WANTED(type, level))
		return;
	memset(nulls, true, sizeof(nulls));
	values[Q_tenant - 1] = S_ATT(s, S_tenant);
	nulls[Q_tenant - 1] = S_NULL(s, S_tenant);
	event->source = "dispatcher";
	event->data = data;
	event_add(&turn->e.events, values, nulls, type_name, event);
}

static void
begin_data(JsonBuild *b, Schedule *s, TimestampTz tick, const char *reason)
{
	json_begin_object(b);
	json_add_string(b, "schedule", TextDatumGetCString(S_ATT(s, S_name)));
	if (tick != DT_NOBEGIN)
		json_add_time(b, "tick", tick);
	json_add_string(b, "reason", reason);
}

void
turn_ticked(TickTurn *turn, Schedule *s, TimestampTz tick, const pg_uuid_t *job)
{
	Event		event = {.type = "ticked", .level = "info"};
	JsonBuild	b;

	begin_data(&b, s, tick, NULL);
	json_add_string(&b, "job_id", DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(job))));
	add_event(turn, s, EVENTS_ALL, &event, json_end_object(&b));
}

static void
skip(TickTurn *turn, Schedule *s, TimestampTz tick, const char *reason, int64 n, bool at_least)
{
	Event		event = {.type = "tick_skipped", .level = "info"};
	JsonBuild	b;

	if (n <= 0)
		return;
	begin_data(&b, s, tick, reason);
	json_add_number(&b, "count", n);
	if (at_least)
		json_add_bool(&b, "at_least", true);
	add_event(turn, s, EVENTS_FAILURES, &event, json_end_object(&b));
	schedule_set(s, S_skipped, Int64GetDatum(DatumGetInt64(S_ATT(s, S_skipped)) + n));
	turn->counts[TICK_SKIPPED] += n;
}

void
turn_skip(TickTurn *turn, Schedule *s, TimestampTz tick, const char *reason, int64 n)
{
	skip(turn, s, tick, reason, n, false);
}

void
turn_skip_missed(TickTurn *turn, Schedule *s, TimestampTz tick, int64 n, bool at_least)
{
	skip(turn, s, tick, "missed", n, at_least);
}

void
turn_pause(TickTurn *turn, Schedule *s, TimestampTz tick, const char *reason)
{
	Event		event = {.type = "schedule_paused", .level = "warning", .message = reason};
	JsonBuild	b;

	schedule_set_status(s, SCHEDULE_PAUSED, reason);
	schedule_set_null(s, S_next_tick);
	if (!S_NULL(s, S_waiting_tick))
		turn_skip(turn, s, S_TIME(s, S_waiting_tick), "paused", 1);
	schedule_set_null(s, S_waiting_tick);
	begin_data(&b, s, tick, reason);
	add_event(turn, s, EVENTS_FAILURES, &event, json_end_object(&b));
}

void
turn_add_refused(TickTurn *turn, Schedule *s, TimestampTz tick, const ErrorData *error)
{
	Event		event = {.type = "tick_skipped", .level = "warning", .message = bounded_text(error->message)};
	JsonBuild	b;

	begin_data(&b, s, tick, "refused");
	json_add_string(&b, "code", unpack_sql_state(error->sqlerrcode));
	json_add_number(&b, "count", 1);
	add_event(turn, s, EVENTS_FAILURES, &event, json_end_object(&b));
	schedule_set(s, S_skipped, Int64GetDatum(DatumGetInt64(S_ATT(s, S_skipped)) + 1));
	turn->counts[TICK_REFUSED]++;
}

void
turn_fail(TickTurn *turn, Schedule *s, const char *message)
{
	Event		event = {.type = "schedule_failed", .level = "warning", .message = message};
	JsonBuild	b;

	begin_data(&b, s, S_TIME(s, S_last_tick), message);
	add_event(turn, s, EVENTS_FAILURES, &event, json_end_object(&b));
	turn_pause(turn, s, S_TIME(s, S_last_tick), message);
}
