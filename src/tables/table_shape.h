/*
 * table_shape.h
 *	  The shapes of jobq's tables: the one check before any row is read or
 *	  written by column number.
 *
 * Each file that numbers the columns of a table lists them, too (a Shape).  A
 * table or partition that has other columns, more, or a dropped one is never
 * read or written: hand-out stops, health() names table and column, calls fail
 * with 55000.  With jobq preloaded no statement changes a table that way
 * (lifecycle/ddl_hook.c).
 */
#ifndef JOBQ_TABLE_SHAPE_H
#define JOBQ_TABLE_SHAPE_H

#include "catalog/pg_type.h"
#include "storage/lockdefs.h"
#include "utils/relcache.h"

#define JOB_STATUS_TYPE		InvalidOid	/* as ShapeColumn.type: jobq.job_status */

/* As ShapeColumn.filled. */
#define FILLED		true		/* NOT NULL */
#define NULLABLE	false

typedef struct ShapeColumn
{
	const char *name;
	Oid			type;			/* a domain over it will do */
	bool		filled;
} ShapeColumn;

typedef struct Shape
{
	const char *table;
	const ShapeColumn *columns;
	int			ncolumns;
} Shape;

#define SHAPE(table, columns) {table, columns, lengthof(columns)}

/*
 * Sets the shapes of all tables, once, when the library is loaded (jobq.c).
 * Each is declared in the header of the file that numbers the table's columns.
 */
extern void shapes_set(const Shape *const *all, int n);

/*
 * Returns a message about the columns of an open, locked table or partition,
 * or "".
 */
extern const char *shape_trouble(Relation rel);
/* The same as an error, 55000; also of another release. */
extern void shape_require(Relation rel);
/* Opens jobq.<name>, whose shape is checked. */
extern Relation shape_open(const char *name, LOCKMODE lock);

/*
 * Returns the reason why no job may run: the installed release, or the first
 * table or partition that differs; "": none.  Waits for no lock.
 */
extern const char *tables_trouble(void);

#endif
