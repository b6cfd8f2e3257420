/*
 * other_columns.h
 *	  Rows of a table whose columns are not just those that jobq knows (row_map.h).
 *
 * A column that the owner has added gets its default in a new row and keeps its value in a changed one, as the executor does
 * it: also generated columns and identities, and the table's constraints are checked.
 */
#ifndef JOBQ_OTHER_COLUMNS_H
#define JOBQ_OTHER_COLUMNS_H

#include "tables/queue_table.h"

/*
 * Fills t's slot, which is empty, with the row in the order of the shape and stores it.  old: where the version is that the
 * row replaces; NULL: it is new.  What defaults return lives until ResetPerTupleExprContext(t->estate).
 */
extern void other_columns_fill(Table *t, const Datum *values, const bool *nulls, ItemPointer old);

#endif
