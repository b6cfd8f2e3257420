/*
 * queue_shape.c
 *	  The columns of jobq.queue, jobq.history and jobq.dead_letters, as queue_table.h numbers them.
 *
 * A column that a release appends is appended here and in queue_table.h (table_shape.h).
 */
#include "jobq.h"

#include "tables/queue_table.h"
#include "tables/table_shape.h"

static const ShapeColumn queue_columns[] = {
	{"id", UUIDOID, FILLED},
	{"position", TIMESTAMPTZOID, FILLED},
	{"scheduled_for", TIMESTAMPTZOID, FILLED},
	{"created_at", TIMESTAMPTZOID, FILLED},
	{"type_id", INT4OID, FILLED},
	{"rev", INT4OID, FILLED},
	{"home_id", INT4OID, FILLED},
	{"status", JOB_STATUS_TYPE, FILLED},
	{"attempts", INT4OID, FILLED},
	{"max_attempts", INT4OID, FILLED},
	{"runs", INT4OID, FILLED},
	{"crashes", INT4OID, FILLED},
	{"depth", INT4OID, FILLED},
	{"priority", INT2OID, FILLED},
	{"sublane", INT2OID, FILLED},
	{"successor", BOOLOID, FILLED},
	{"payload", JSONBOID, FILLED},
	{"timeout", INTERVALOID, NULLABLE},
	{"backoff", JSONBOID, NULLABLE},
	{"unique_key", TEXTOID, NULLABLE},
	{"unique_for", INTERVALOID, NULLABLE},
	{"concurrency_key", TEXTOID, NULLABLE},
	{"keep_completed", INTERVALOID, NULLABLE},
	{"tenant", TEXTOID, NULLABLE},
	{"parent_id", UUIDOID, NULLABLE},
	{"workflow_id", UUIDOID, NULLABLE},
	{"task_key", TEXTOID, NULLABLE},
	{"metadata", JSONBOID, NULLABLE},
	{"error_msg", TEXTOID, NULLABLE},
	{"error_code", TEXTOID, NULLABLE},
	{"error_details", JSONBOID, NULLABLE},
	{"started_at", TIMESTAMPTZOID, NULLABLE},
	{"worker", TEXTOID, NULLABLE},
	{"node", TEXTOID, NULLABLE},
	{"lease_token", UUIDOID, NULLABLE},
	{"lease_expires_at", TIMESTAMPTZOID, NULLABLE},
	{"progress", NUMERICOID, NULLABLE},
	{"progress_data", JSONBOID, NULLABLE},
	{"enqueued_by", TEXTOID, NULLABLE},
	{"key_hash", INT8OID, NULLABLE},
	{"keep_dead", INTERVALOID, NULLABLE},
	{"schedule_id", INT4OID, NULLABLE},
	{"lease", INTERVALOID, NULLABLE},
	{"cancel_requested", BOOLOID, NULLABLE},
	{"after", UUIDARRAYOID, NULLABLE},
	{"after_rule", TEXTOID, NULLABLE},
	{"waiting_for", INT4OID, NULLABLE},
	{"after_state", INT2OID, NULLABLE},
	{"keep_until", TIMESTAMPTZOID, NULLABLE},
	{"key_since", TIMESTAMPTZOID, NULLABLE}
};

/* Columns of both tables: one function writes the rows. */
static const ShapeColumn finished_columns[] = {
	{"id", UUIDOID, FILLED},
	{"expires_at", TIMESTAMPTZOID, FILLED},
	{"scheduled_for", TIMESTAMPTZOID, FILLED},
	{"created_at", TIMESTAMPTZOID, FILLED},
	{"started_at", TIMESTAMPTZOID, NULLABLE},
	{"completed_at", TIMESTAMPTZOID, FILLED},
	{"type_id", INT4OID, FILLED},
	{"status", JOB_STATUS_TYPE, FILLED},
	{"attempts", INT4OID, FILLED},
	{"max_attempts", INT4OID, FILLED},
	{"runs", INT4OID, FILLED},
	{"depth", INT4OID, FILLED},
	{"priority", INT2OID, FILLED},
	{"payload", JSONBOID, FILLED},
	{"result", JSONBOID, NULLABLE},
	{"timeout", INTERVALOID, NULLABLE},
	{"unique_key", TEXTOID, NULLABLE},
	{"unique_until", TIMESTAMPTZOID, NULLABLE},
	{"concurrency_key", TEXTOID, NULLABLE},
	{"tenant", TEXTOID, NULLABLE},
	{"parent_id", UUIDOID, NULLABLE},
	{"workflow_id", UUIDOID, NULLABLE},
	{"task_key", TEXTOID, NULLABLE},
	{"metadata", JSONBOID, NULLABLE},
	{"error_msg", TEXTOID, NULLABLE},
	{"error_code", TEXTOID, NULLABLE},
	{"error_details", JSONBOID, NULLABLE},
	{"worker", TEXTOID, NULLABLE},
	{"node", TEXTOID, NULLABLE},
	{"progress", NUMERICOID, NULLABLE},
	{"progress_data", JSONBOID, NULLABLE},
	{"backoff", JSONBOID, NULLABLE},
	{"unique_for", INTERVALOID, NULLABLE},
	{"keep_completed", INTERVALOID, NULLABLE},
	{"counted", BOOLOID, FILLED},
	{"enqueued_by", TEXTOID, NULLABLE},
	{"keep_dead", INTERVALOID, NULLABLE},
	{"after", UUIDARRAYOID, NULLABLE},
	{"after_rule", TEXTOID, NULLABLE}
};

const Shape queue_shape = SHAPE("queue", queue_columns);
const Shape history_shape = SHAPE("history", finished_columns);
const Shape dead_letters_shape = SHAPE("dead_letters", finished_columns);

StaticAssertDecl(lengthof(queue_columns) == Q_NATTS, "the queue's columns");
StaticAssertDecl(lengthof(finished_columns) == H_NATTS, "columns of history and dead_letters");
