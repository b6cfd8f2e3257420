/*
 * hook_references.h
 *	  Jobs of hooks that name the row of another job, because its payload or
 *	  result was too large for theirs.
 *
 * A row of jobq.hook_references keeps the other job's row until the hook's job
 * has ended (25_retention.sql), also of a type that keeps nothing.  A later
 * expires_at alone would not keep it from retention by number.
 */
#ifndef JOBQ_HOOK_REFERENCES_H
#define JOBQ_HOOK_REFERENCES_H

#include "utils/uuid.h"

/* Adds one, in the transaction that enqueues the job of the hook. */
extern void hook_reference_add(const pg_uuid_t *hook_job, const pg_uuid_t *job);
/* True if a job of a hook names this one. */
extern bool hook_reference_exists(const pg_uuid_t *job);

/* The checked columns of jobq.hook_references: see table_shape.h. */
extern const struct Shape hook_references_shape;

#endif
