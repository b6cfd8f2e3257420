/*
 * row_map.h
 *	  The places of columns in jobq's tables: the check before any row is read or
 *	  written by column number.
 *
 * The owner of the tables may add columns, and a later release appends some.
 * Each file that numbers the columns of a table also lists them (a Shape), and
 * reads a row through row_deform.  The columns of the first release must be in
 * their places, with their types; later ones are found by name.  Columns that
 * no Shape lists are the owner's.
 */
#ifndef JOBQ_ROW_MAP_H
#define JOBQ_ROW_MAP_H

#include "access/htup.h"
#include "access/tupdesc.h"
#include "catalog/pg_type.h"
#include "utils/relcache.h"

#define MAX_SHAPE_COLUMNS	64
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
	int			nfirst;			/* those of release 0.1.0; a table may lack the others; 0: it is newer */
} Shape;

/* The shape of a table with all its columns from the first release. */
#define FIRST_SHAPE(table, columns) {table, columns, lengthof(columns), lengthof(columns)}

/*
 * Sets the shapes of all tables, once, when the library is loaded (jobq.c).
 * Each is declared in the header of the file that numbers the table's columns.
 */
extern void row_map_set_shapes(const Shape *const *all, int n);

/* Valid as long as the relation is locked. */
typedef struct RowMap
{
	Oid			relid;			/* hash key */
	const Shape *shape;
	uint64		generation;		/* relations_generation() that it was made at; 0: make it again */
	int			natts;			/* columns of the relation, dropped ones included */
	bool		same;			/* they are those of the shape, in the same places */
	AttrNumber	atts[MAX_SHAPE_COLUMNS];	/* the place of each column of the shape; 0: not there yet */
	char		trouble[256];	/* '': the table fits */
} RowMap;

/*
 * Returns the map of an open, locked table or partition.  55000 when jobq
 * cannot work with it.
 */
extern const RowMap *row_map(Relation rel);
/* The same without the error: the map's trouble has the reason. */
extern const RowMap *row_map_look(Relation rel);

/*
 * Fills arrays as long as the shape.  A column that the table does not have
 * yet reads as NULL.
 */
extern void row_deform(Relation rel, HeapTuple tuple, Datum *values, bool *nulls);

/*
 * The same, but returns a message about a NULL where none may be; NULL: the
 * row is fine.
 */
extern const char *row_look(Relation rel, HeapTuple tuple, Datum *values, bool *nulls);
/* The same for many rows of a relation. */
extern void row_deform_by(const RowMap *map, Relation rel, HeapTuple tuple, Datum *values, bool *nulls);

/*
 * Returns a message about the first table that jobq cannot work with, or "".
 * Waits for no lock: *complete is false when a table could not be checked.
 */
extern const char *tables_trouble(bool *complete);

#endif
