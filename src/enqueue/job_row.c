/*
 * job_row.c
 *	  The row of an enqueued job: columns, publication, event.
 */
#include "jobq.h"

#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

#include "base/concurrency_key_hash.h"
#include "base/job_status.h"
#include "base/json_build.h"
#include "enqueue/after.h"
#include "enqueue/job_row.h"
#include "registry/sublane.h"
#include "shared/xact_changes.h"

void
row_set(Datum *values, bool *nulls, int att, Datum value)
{
	values[att - 1] = value;
	nulls[att - 1] = false;
}

void
row_set_pointer(Datum *values, bool *nulls, int att, const void *value)
{
	values[att - 1] = PointerGetDatum(value);
	nulls[att - 1] = value == NULL;
}

/* Returns the current time, but later than the last one, unless the clock was set back. */
static TimestampTz
distinct_now(void)
{
	static TimestampTz last = 0;
	TimestampTz now = GetCurrentTimestamp();

	if (now <= last && last - now < USECS_PER_SEC)
		now = last + 1;
	last = now;
	return now;
}

void
row_set_times(Enqueuer *e, Request *request, Datum *values, bool *nulls)
{
	TimestampTz now = distinct_now();
	TimestampTz due = request->scheduled_for == 0 ? now : request->scheduled_for;
	TimestampTz position = now;

	if (due > now)
	{
		e->nfuture = due == e->future ? e->nfuture + 1 : 0;
		e->future = due;
		position = due + e->nfuture;
	}
	row_set(values, nulls, Q_position, TimestampTzGetDatum(position));
	row_set(values, nulls, Q_scheduled_for, TimestampTzGetDatum(due));
	row_set(values, nulls, Q_created_at, TimestampTzGetDatum(now));
}

static void
set_options(Request *request, Datum *values, bool *nulls)
{
	row_set_pointer(values, nulls, Q_timeout, request->timeout);
	row_set_pointer(values, nulls, Q_backoff, request->backoff);
	row_set_pointer(values, nulls, Q_unique_key, request->unique_key);
	row_set_pointer(values, nulls, Q_unique_for, request->unique_for);
	row_set_pointer(values, nulls, Q_concurrency_key, request->concurrency_key);
	if (request->concurrency_key != NULL && !request->blocked)
	{
		row_set(values, nulls, Q_key_hash, UInt64GetDatum(key_hash(request->tenant, request->concurrency_key, request->type->workflow)));
		row_set(values, nulls, Q_key_since, values[Q_created_at - 1]);
	}
	row_set_pointer(values, nulls, Q_keep_completed, request->keep_completed);
	row_set_pointer(values, nulls, Q_keep_dead, request->keep_dead);
	row_set_pointer(values, nulls, Q_tenant, request->tenant);
	row_set_pointer(values, nulls, Q_metadata, request->metadata);
	if (request->schedule_id != 0)
		row_set(values, nulls, Q_schedule_id, Int32GetDatum(request->schedule_id));
	row_set_pointer(values, nulls, Q_parent_id, request->has_parent ? &request->parent_id : NULL);
	if (request->enqueued_by != NULL)
		row_set(values, nulls, Q_enqueued_by, CStringGetTextDatum(request->enqueued_by));
}

void
row_set_after(Request *request, Datum *values, bool *nulls)
{
	nulls[Q_after - 1] = nulls[Q_after_rule - 1] = true;
	nulls[Q_waiting_for - 1] = nulls[Q_after_state - 1] = true;
	if (after_count(request) == 0)
		return;
	row_set_pointer(values, nulls, Q_after, request->after);
	row_set(values, nulls, Q_after_rule, CStringGetTextDatum(after_rule_names[request->after_rule]));
	if (!request->blocked)
		return;
	row_set(values, nulls, Q_status, ObjectIdGetDatum(status_oid(JOB_BLOCKED)));
	row_set(values, nulls, Q_position, TimestampTzGetDatum(DT_NOEND));
	row_set(values, nulls, Q_waiting_for, Int32GetDatum(after_count(request) - bms_num_members(request->counted)));
	row_set(values, nulls, Q_after_state, Int16GetDatum(request->completed ? AFTER_COMPLETED_BIT : 0));
}

void
row_build(Enqueuer *e, Request *request, bool successor, const pg_uuid_t *id,
		  Datum *values, bool *nulls)
{
	memset(values, 0, sizeof(Datum) * Q_NATTS);
	memset(nulls, true, sizeof(bool) * Q_NATTS);
	row_set(values, nulls, Q_id, UUIDPGetDatum(id));
	row_set_times(e, request, values, nulls);
	row_set(values, nulls, Q_type_id, Int32GetDatum(request->type->id));
	row_set(values, nulls, Q_rev, Int32GetDatum(0));
	row_set(values, nulls, Q_home_id, Int32GetDatum(e->home_id));
	row_set(values, nulls, Q_status, ObjectIdGetDatum(status_oid(JOB_PENDING)));
	row_set(values, nulls, Q_attempts, Int32GetDatum(0));
	row_set(values, nulls, Q_max_attempts, Int32GetDatum(request->max_attempts));
	row_set(values, nulls, Q_runs, Int32GetDatum(0));
	row_set(values, nulls, Q_crashes, Int32GetDatum(0));
	row_set(values, nulls, Q_depth, Int32GetDatum(request->depth));
	row_set(values, nulls, Q_priority, Int16GetDatum((int16) request->priority));
	row_set(values, nulls, Q_sublane, Int16GetDatum(sublane_of(request->type, request->tenant)));
	row_set(values, nulls, Q_successor, BoolGetDatum(successor));
	row_set(values, nulls, Q_payload, JsonbPGetDatum(request->payload));
	set_options(request, values, nulls);
	if (request->after != NULL)
		row_set_after(request, values, nulls);
}

void
row_publish(Datum *values, bool *nulls)
{
	if (!nulls[Q_key_hash - 1])
		note_concurrency_key(DatumGetUInt64(values[Q_key_hash - 1]), DatumGetTimestampTz(values[Q_key_since - 1]), false);
	note_position(DatumGetInt32(values[Q_type_id - 1]), DatumGetInt16(values[Q_priority - 1]),
				  DatumGetInt16(values[Q_sublane - 1]), DatumGetTimestampTz(values[Q_position - 1]));
}

/* Adds the event of a job that begins to wait for others. */
static void
add_blocked_event(Enqueuer *e, Request *request, const Datum *values, const bool *nulls)
{
	Event		event = {.type = "blocked", .source = source_of_sql(), .level = "info"};
	JsonBuild	b;

	json_begin_object(&b);
	json_add_number(&b, "after", after_count(request));
	json_add_string(&b, "after_rule", after_rule_names[request->after_rule]);
	event.data = json_end_object(&b);
	event_add(&e->events, values, nulls, request->type->name, &event);
}

void
row_add_event(Enqueuer *e, Request *request, const Datum *values, const bool *nulls, bool replaces,
			  const char *error)
{
	Event		event = {.type = "enqueued", .source = source_of_sql(), .level = "info"};
	TimestampTz due = DatumGetTimestampTz(values[Q_scheduled_for - 1]);
	JsonBuild	b;

	event.ts = replaces ? 0 : DatumGetTimestampTz(values[Q_created_at - 1]);
	json_begin_object(&b);
	json_add_number(&b, "priority", DatumGetInt16(values[Q_priority - 1]));
	json_add_time(&b, "scheduled_for", due);
	if (request->has_parent)
		json_add_string(&b, "parent_id",
						DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(&request->parent_id))));
	if (replaces)
		json_add_bool(&b, "replaced", true);
	json_add_string(&b, "error", error);
	event.data = json_end_object(&b);
	event_add(&e->events, values, nulls, request->type->name, &event);
	if (request->blocked)
		add_blocked_event(e, request, values, nulls);
}
