/*
 * edge_table.h
 *	  The rows of jobq.dependencies: an edge from a parent to a job that waits
 *	  for it.
 */
#ifndef JOBQ_EDGE_TABLE_H
#define JOBQ_EDGE_TABLE_H

#include "tables/queue_table.h"

/* attribute numbers: src/sql/00_schema.sql */
enum
{
	D_parent_id = 1, D_child_id
};
#define D_NATTS D_child_id

typedef struct Edge
{
	pg_uuid_t	child;
	ItemPointerData tid;
} Edge;

extern void edges_open(Table *t);
extern void edge_insert(Table *t, const pg_uuid_t *parent, const pg_uuid_t *child);
/* Reads up to max edges of the parent behind the first `skip`; returns their number. */
extern int	edges_of(Table *t, const pg_uuid_t *parent, Snapshot snapshot, int skip, Edge *edges, int max);
/*
 * Reads the parents of edges behind that id, in the order of ids, each once:
 * those of up to max edges; returns their number.  *more: there may be others.
 */
extern int	edge_parents(Table *t, const pg_uuid_t *behind, Snapshot snapshot, int max, pg_uuid_t **parents, bool *more);
/* Deletes an edge; one that another transaction deletes is left to it. */
extern void edge_delete(Table *t, Edge *edge);
/* Deletes the edges of that parent to the child. */
extern void edges_delete(Table *t, const pg_uuid_t *parent, const pg_uuid_t *child);

/* The checked columns of jobq.dependencies: see table_shape.h. */
extern const struct Shape dependencies_shape;

#endif
