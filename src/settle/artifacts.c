/*
 * artifacts.c
 *	  Rows of jobq.artifacts: see artifacts.h.
 *
 * A row is written past the executor, by the transaction that records it.  It
 * expires when the job's row of history does, as far as that is known: an
 * attempt ends within its time limit, so keep_completed counts from the end of
 * that.  That of a task stays as long as its run.  The next attempt does not
 * move it, a retry of the run does (src/sql/58_runs.sql).
 */
#include "jobq.h"

#include "commands/sequence.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/numeric.h"
#include "utils/timestamp.h"

#include "base/errors.h"
#include "base/interval.h"
#include "base/json_build.h"
#include "base/json_size.h"
#include "base/relations.h"
#include "settle/artifact_key.h"
#include "settle/artifacts.h"
#include "tables/table_shape.h"

#define MAX_NAME		255		/* bytes of bucket and content_type */
#define SHA256			"sha256:"
#define SHA256_DIGITS	64

/* attribute numbers of jobq.artifacts: src/sql/56_artifacts.sql */
enum
{
	A_id = 1, A_created_at, A_job_id, A_workflow_id, A_task_key, A_tenant, A_attempt, A_key, A_kind,
	A_bucket, A_size_bytes, A_content_type, A_checksum, A_data, A_job_type, A_expires_at
};
#define A_NATTS A_expires_at

static const ShapeColumn artifacts_columns[] = {
	{"id", INT8OID, FILLED}, {"created_at", TIMESTAMPTZOID, FILLED}, {"job_id", UUIDOID, FILLED},
	{"workflow_id", UUIDOID, NULLABLE}, {"task_key", TEXTOID, NULLABLE}, {"tenant", TEXTOID, NULLABLE},
	{"attempt", INT4OID, FILLED}, {"key", TEXTOID, FILLED}, {"kind", TEXTOID, FILLED},
	{"bucket", TEXTOID, NULLABLE}, {"size_bytes", INT8OID, NULLABLE}, {"content_type", TEXTOID, NULLABLE},
	{"checksum", TEXTOID, NULLABLE}, {"data", JSONBOID, NULLABLE}, {"job_type", TEXTOID, NULLABLE},
	{"expires_at", TIMESTAMPTZOID, FILLED}
};
const Shape artifacts_shape = SHAPE("artifacts", artifacts_columns);

StaticAssertDecl(lengthof(artifacts_columns) == A_NATTS, "artifacts' columns");

/* ---------- checks ---------- */

/* True if it is "sha256:" and 64 hexadecimal digits. */
static bool
is_checksum(const char *text)
{
	const char *digits = text + strlen(SHA256);

	return strncmp(text, SHA256, strlen(SHA256)) == 0 && strlen(digits) == SHA256_DIGITS &&
		strspn(digits, "0123456789abcdefABCDEF") == SHA256_DIGITS;
}

/* Hexadecimal digits are stored in lower case, as encode() writes them. */
static void
fold_checksum(Artifact *artifact)
{
	if (artifact->checksum == NULL)
		return;
	for (char *p = artifact->checksum; *p; p++)
		*p = (char) pg_ascii_tolower((unsigned char) *p);
}

static bool
is_name(const char *name)
{
	return name == NULL || (name[0] != '\0' && strlen(name) <= MAX_NAME && !has_control(name));
}

static void
check_name(const char *argument, const char *name)
{
	if (is_name(name))
		return;
	if (strlen(name) > MAX_NAME)
		argument_too_long(argument, strlen(name), MAX_NAME);
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("argument \"%s\": \"%s\" is empty or has control characters", argument, argument_shown(name))));
}

void
artifact_check(Artifact *artifact)
{
	if (strlen(artifact->key) > ARTIFACT_MAX_KEY)
		argument_too_long("key", strlen(artifact->key), ARTIFACT_MAX_KEY);
	if (!artifact_key_is_sound(artifact->key))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"key\": \"%s\" is no artifact key", argument_shown(artifact->key)),
				 errhint("%s", ARTIFACT_KEY_HINT)));
	if (!artifact_kind_is_known(artifact->kind))
		argument_no_choice("kind", artifact->kind, ARTIFACT_KINDS);
	check_name("bucket", artifact->bucket);
	if (artifact->has_size && artifact->size_bytes < 0)
		argument_out_of_range("size_bytes", artifact->size_bytes, 0, PG_INT64_MAX);
	check_name("content_type", artifact->content_type);
	if (artifact->checksum != NULL && !is_checksum(artifact->checksum))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"checksum\": \"%s\" is not sha256: and 64 hexadecimal digits",
						argument_shown(artifact->checksum))));
	fold_checksum(artifact);
	if (artifact->data != NULL)
		check_json_size_hint("data", artifact->data, jobq_max_payload,
							 "Raise jobq.max_payload, or store large data as an object of its own.");
}

/* ---------- lines of tools ---------- */

/* Reads a string; a null or missing one is NULL.  False: another type. */
static bool
read_string(Jsonb *line, const char *name, char **out)
{
	JsonbValue	v;

	*out = NULL;
	if (getKeyJsonValueFromContainer(&line->root, name, (int) strlen(name), &v) == NULL || v.type == jbvNull)
		return true;
	if (v.type != jbvString)
		return false;
	*out = pnstrdup(v.val.string.val, v.val.string.len);
	return true;
}

/* Reads size_bytes: a whole number in the range of bigint, or null. */
static bool
read_size(Jsonb *line, Artifact *artifact)
{
	JsonbValue	v;
	const char *text;
	char	   *end;

	artifact->has_size = false;
	if (getKeyJsonValueFromContainer(&line->root, "size_bytes", 10, &v) == NULL || v.type == jbvNull)
		return true;
	if (v.type != jbvNumeric)
		return false;
	text = DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(v.val.numeric)));
	if (strlen(text) > 19 || text[0] < '0' || text[0] > '9')
		return false;
	errno = 0;
	artifact->size_bytes = strtoi64(text, &end, 10);
	artifact->has_size = true;
	return errno == 0 && *end == '\0';
}

bool
artifact_from_json(Artifact *artifact, Jsonb *line)
{
	JsonbValue	v;

	if (!JB_ROOT_IS_OBJECT(line) ||
		!read_string(line, "key", &artifact->key) || artifact->key == NULL ||
		!read_string(line, "kind", &artifact->kind) ||
		!read_string(line, "bucket", &artifact->bucket) || !read_size(line, artifact) ||
		!read_string(line, "content_type", &artifact->content_type) ||
		!read_string(line, "checksum", &artifact->checksum))
		return false;
	if (artifact->kind == NULL)
		artifact->kind = pstrdup("output");
	artifact->data = NULL;
	if (getKeyJsonValueFromContainer(&line->root, "data", 4, &v) != NULL && v.type != jbvNull)
		artifact->data = JsonbValueToJsonb(&v);
	fold_checksum(artifact);
	return artifact_key_is_sound(artifact->key) && artifact_kind_is_known(artifact->kind) &&
		is_name(artifact->bucket) && is_name(artifact->content_type) &&
		(artifact->checksum == NULL || is_checksum(artifact->checksum)) &&
		(artifact->data == NULL || json_fits(artifact->data, jobq_max_payload));
}

/* ---------- the row ---------- */

void
artifact_job_timeout(ArtifactJob *of)
{
	if (!of->nulls[Q_timeout - 1])
		of->timeout_us = interval_to_us(DatumGetIntervalP(of->values[Q_timeout - 1]));
	else
		of->timeout_us = of->type ? of->type->timeout_us : 0;
}

/*
 * Returns the time at which an artifact goes: keep_completed after the last
 * moment at which its attempt can end, and at least a day from now.  An
 * attempt without a time limit counts as one of a day.  The tasks and the
 * output of a run read its artifacts until its end.
 */
static TimestampTz
expires_at(const ArtifactJob *of, TimestampTz ts)
{
	Interval	keep = {0};
	TimestampTz end = ts + (of->timeout_us > 0 ? Min(of->timeout_us, JOBQ_MAX_INTERVAL_US) : USECS_PER_DAY);

	if (!of->nulls[Q_keep_completed - 1])
		keep = *DatumGetIntervalP(of->values[Q_keep_completed - 1]);
	else if (of->type)
		keep = of->type->keep_completed;
	end = DatumGetTimestampTz(DirectFunctionCall2(timestamptz_pl_interval, TimestampTzGetDatum(end),
												  IntervalPGetDatum(&keep)));
	if (!of->nulls[Q_keep_until - 1])
		end = Max(end, DatumGetTimestampTz(of->values[Q_keep_until - 1]));
	return Max(end, ts + USECS_PER_DAY);
}

static void
set_text(Datum *values, bool *nulls, int att, const char *text)
{
	nulls[att - 1] = text == NULL;
	values[att - 1] = text ? CStringGetTextDatum(text) : (Datum) 0;
}

static void
copy_column(Datum *values, bool *nulls, int to, const ArtifactJob *of, int from)
{
	values[to - 1] = of->values[from - 1];
	nulls[to - 1] = of->nulls[from - 1];
}

static void
write_event(Ledger *ledger, const ArtifactJob *of, const Artifact *artifact, int64 id)
{
	Event		event = {.ts = artifact->ts, .attempt = of->attempt, .type = "artifact", .source = of->source,
	.level = "info"};
	JsonBuild	b;

	json_begin_object(&b);
	json_add_integer(&b, "id", id);
	json_add_string(&b, "key", artifact->key);
	json_add_string(&b, "kind", artifact->kind);
	json_add_string(&b, "bucket", artifact->bucket);
	if (artifact->has_size)
		json_add_integer(&b, "size_bytes", artifact->size_bytes);
	json_add_string(&b, "content_type", artifact->content_type);
	json_add_string(&b, "checksum", artifact->checksum);
	event.data = json_end_object(&b);
	event_add(&ledger->events, of->values, of->nulls, of->type->name, &event);
}

int64
artifact_add(Ledger *ledger, const ArtifactJob *of, const Artifact *artifact)
{
	Datum		values[A_NATTS] = {0};
	bool		nulls[A_NATTS] = {0};
	int64		id = nextval_internal(jobq_relid("artifact_id_seq"), false);
	TimestampTz expires = expires_at(of, artifact->ts);

	ledger_open_partition(ledger, &ledger->artifacts, "artifacts", expires);
	values[A_id - 1] = Int64GetDatum(id);
	values[A_created_at - 1] = TimestampTzGetDatum(artifact->ts);
	copy_column(values, nulls, A_job_id, of, Q_id);
	copy_column(values, nulls, A_workflow_id, of, Q_workflow_id);
	copy_column(values, nulls, A_task_key, of, Q_task_key);
	copy_column(values, nulls, A_tenant, of, Q_tenant);
	values[A_attempt - 1] = Int32GetDatum(of->attempt);
	set_text(values, nulls, A_key, artifact->key);
	set_text(values, nulls, A_kind, artifact->kind);
	set_text(values, nulls, A_bucket, artifact->bucket);
	values[A_size_bytes - 1] = Int64GetDatum(artifact->size_bytes);
	nulls[A_size_bytes - 1] = !artifact->has_size;
	set_text(values, nulls, A_content_type, artifact->content_type);
	set_text(values, nulls, A_checksum, artifact->checksum);
	values[A_data - 1] = PointerGetDatum(artifact->data);
	nulls[A_data - 1] = artifact->data == NULL;
	set_text(values, nulls, A_job_type, of->type ? of->type->name : NULL);
	values[A_expires_at - 1] = TimestampTzGetDatum(expires);
	table_insert_row(&ledger->artifacts.table, values, nulls);
	if (EVENTS_WANTED(of->type, EVENTS_ALL))
		write_event(ledger, of, artifact, id);
	return id;
}
