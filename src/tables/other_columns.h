/*
 * other_columns.h
 *	  Rows of a table that has more columns than jobq knows (row_map.h).
 *
 * A column that the owner has added gets its default in a new row and keeps
 * its value in a changed one, as in the executor.  Generated columns and
 * identities are computed, too, and the table's constraints are checked.
 */
#ifndef JOBQ_OTHER_COLUMNS_H
#define JOBQ_OTHER_COLUMNS_H

#include "tables/queue_table.h"

/*
 * Fills t's slot, which is empty, with the row in the order of the shape and
 * stores it.  old: the version that the row replaces; NULL: it is new.  Values
 * of defaults live until ResetPerTupleExprContext(t->estate).
 */
extern void other_columns_fill(Table *t, const Datum *values, const bool *nulls, ItemPointer old);

#endif
