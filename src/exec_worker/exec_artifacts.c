/*
 * exec_artifacts.c
 *	  Artifacts of tools: lines {"artifact": {...}} on descriptor 3.
 *
 * A line is checked when it arrives: one that jobq.record_artifact would
 * refuse counts as malformed.  The row is written with the tool's events,
 * within half a second or with the settlement, whatever the outcome is.  Only
 * an exec worker that dies loses the lines of its last half second.
 */
#include "jobq.h"

#include "utils/timestamp.h"

#include "exec_worker/exec_internal.h"

/* Reads the object of a line.  False: it is no artifact. */
static bool
read_artifact(const char *text, int len, Artifact *artifact)
{
	char	   *why;
	Jsonb	   *line = json_from_utf8(text, len, &why);
	JsonbValue	v;

	if (line == NULL || !JB_ROOT_IS_OBJECT(line) ||
		getKeyJsonValueFromContainer(&line->root, "artifact", 8, &v) == NULL || v.type != jbvBinary)
		return false;
	return artifact_from_json(artifact, JsonbValueToJsonb(&v));
}

typedef struct ArtifactLine
{
	const FrameText *text;
	bool		sound;
} ArtifactLine;

static void
check_line(void *arg)
{
	ArtifactLine *line = arg;
	Artifact	artifact;

	line->sound = read_artifact(line->text->data, (int) line->text->len, &artifact);
}

void
exec_got_artifact(ExecJob *x, const FrameText *text)
{
	ArtifactLine line = {text, false};
	TimestampTz arrived = GetCurrentTimestamp();

	if (exec_in_transaction(check_line, &line) != NULL || !line.sound)
		x->bad_artifacts++;
	else if (x->nartifacts++ < EXEC_MAX_ARTIFACTS)
	{
		exec_keep_event(x, FRAME_EVENT_ARTIFACT, text);
		/* its event is written after that of the attempt's end, and sorts before it */
		((ToolEvent *) llast(x->events))->ts = arrived;
	}
}

bool
exec_has_artifact(const ExecJob *x)
{
	ListCell   *lc;

	foreach(lc, x->events)
	{
		if (((ToolEvent *) lfirst(lc))->kind == FRAME_EVENT_ARTIFACT)
			return true;
	}
	return false;
}

static void
describe_job(ArtifactJob *of, ExecJob *x, JobType *type)
{
	of->values = x->row.values;
	of->nulls = x->row.nulls;
	of->type = type;
	of->timeout_us = x->timeout_us;
	of->attempt = JOB_INT(&x->row, Q_attempts);
	of->source = "helper";
}

bool
exec_artifacts_ready(Ledger *ledger, ExecJob *x, JobType *type, TimestampTz *need)
{
	ArtifactJob of;
	ListCell   *lc;

	if (!exec_has_artifact(x))
		return true;
	describe_job(&of, x, type);
	foreach(lc, x->events)
	{
		ToolEvent  *kept = lfirst(lc);

		if (kept->kind == FRAME_EVENT_ARTIFACT && !artifact_ready(ledger, &of, kept->ts, need))
			return false;
	}
	return true;
}

void
exec_write_artifacts(Ledger *ledger, ExecJob *x, JobType *type)
{
	ArtifactJob of;
	ListCell   *lc;

	if (!exec_has_artifact(x))
		return;
	describe_job(&of, x, type);
	foreach(lc, x->events)
	{
		ToolEvent  *kept = lfirst(lc);
		Artifact	artifact;

		if (kept->kind != FRAME_EVENT_ARTIFACT ||
			!read_artifact(kept->text, (int) strlen(kept->text), &artifact))
			continue;
		artifact.ts = kept->ts;
		(void) artifact_add(ledger, &of, &artifact);
	}
}
