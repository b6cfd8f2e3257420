/*
 * table.h
 *	  Rows of cells in aligned columns.
 */
#ifndef JOBQ_TOP_TABLE_H
#define JOBQ_TOP_TABLE_H

#include "top/text.h"

#define MAX_COLUMNS 12

typedef struct Column
{
	const char *title;
	bool		right;			/* aligned to the right */
	int			least;			/* may shrink to so many columns; 0: never */
} Column;

typedef struct Table
{
	Buf			title;
	Buf			note;			/* shown where there are no rows */
	const Column *columns;
	int			n_columns;
	int			n_cells;
	char	  **cells;
	char	  **ids;			/* the job of each row, "" without one */
	int			n_rows;
} Table;

extern void table_begin(Table *table, const Column *columns, int n_columns);
extern void table_row(Table *table, const char *id);
extern void table_cell(Table *table, const char *text);

/* Computes columns that fit into total (< 0: any), from the first rows of the table. */
extern void table_widths(const Table *table, int total, int widths[MAX_COLUMNS]);

/* Appends a row, -1: the titles. */
extern void table_put(Buf *buf, const Table *table, int row, const int widths[MAX_COLUMNS]);

#endif
