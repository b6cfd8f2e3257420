/*
 * artifacts.h
 *	  Rows of jobq.artifacts: checked, written with the event of each.
 */
#ifndef JOBQ_ARTIFACTS_H
#define JOBQ_ARTIFACTS_H

#include "settle/settle.h"

/* What a handler, tool or client says of an artifact. */
typedef struct Artifact
{
	TimestampTz ts;				/* when it was recorded */
	char	   *key;
	char	   *kind;
	char	   *bucket;			/* NULL: not given, as the rest */
	bool		has_size;
	int64		size_bytes;
	char	   *content_type;
	char	   *checksum;
	Jsonb	   *data;
} Artifact;

/* Raises 22023, 22003 or 54000, with the argument's name.  Folds checksum. */
extern void artifact_check(Artifact *artifact);

/*
 * Fills an artifact from the object of a tool's line {"artifact": {...}};
 * false, and no error, if jobq.record_artifact would refuse it.
 */
extern bool artifact_from_json(Artifact *artifact, Jsonb *line);

/*
 * The job of an artifact: columns of jobq.queue, of which id, workflow_id,
 * task_key, tenant, keep_completed and keep_until count, and the attempt's time
 * limit.
 */
typedef struct ArtifactJob
{
	const Datum *values;
	const bool *nulls;
	JobType    *type;
	int64		timeout_us;		/* 0: none */
	int			attempt;
	const char *source;			/* of the event */
} ArtifactJob;

/* Fills timeout_us: the job's, or its type's. */
extern void artifact_job_timeout(ArtifactJob *of);

/*
 * Opens the partition of an artifact recorded at ts; false: there is none,
 * and *need is the time that lacks one.
 */
extern bool artifact_ready(Ledger *ledger, const ArtifactJob *of, TimestampTz ts, TimestampTz *need);

/*
 * Writes the row, and at level all the event.  The partition must exist
 * (artifact_ready).  Returns the id.
 */
extern int64 artifact_add(Ledger *ledger, const ArtifactJob *of, const Artifact *artifact);

/* The checked columns of jobq.artifacts: see table_shape.h. */
extern const struct Shape artifacts_shape;

#endif
