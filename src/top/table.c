/*
 * table.c
 *	  Rows of cells in aligned columns.
 *
 * A column is as wide as its widest cell.  Where they do not fit, the widest
 * column that may shrink does, one by one.
 */
#include "top/table.h"

#include <stdlib.h>

#define GAP		2
#define WIDEST	200

void
table_begin(Table *table, const Column *columns, int n_columns)
{
	int			k;

	for (k = 0; k < table->n_cells; k++)
		free(table->cells[k]);
	for (k = 0; k < table->n_rows; k++)
		free(table->ids[k]);
	table->columns = columns;
	table->n_columns = n_columns;
	table->n_cells = table->n_rows = 0;
	buf_clear(&table->title);
	buf_clear(&table->note);
}

void
table_row(Table *table, const char *id)
{
	size_t		rows = (size_t) table->n_rows + 1;

	table->ids = mem_more(table->ids, rows * sizeof(char *));
	table->cells = mem_more(table->cells, rows * (size_t) table->n_columns * sizeof(char *));
	table->ids[table->n_rows++] = text_copy(id);
}

void
table_cell(Table *table, const char *text)
{
	table->cells[table->n_cells++] = text_copy(text);
}

static const char *
cell(const Table *table, int row, int column)
{
	return row < 0 ? table->columns[column].title : table->cells[row * table->n_columns + column];
}

/* The column to shrink next, -1: none. */
static int
widest(const Table *table, const int widths[MAX_COLUMNS])
{
	int			found = -1;

	for (int c = 0; c < table->n_columns; c++)
		if (table->columns[c].least > 0 && widths[c] > table->columns[c].least && (found < 0 || widths[c] > widths[found]))
			found = c;
	return found;
}

void
table_widths(const Table *table, int total, int widths[MAX_COLUMNS])
{
	int			sum = (table->n_columns - 1) * GAP;

	for (int c = 0; c < table->n_columns; c++)
	{
		widths[c] = 0;
		for (int row = -1; row < table->n_rows; row++)
		{
			int			width = text_width(cell(table, row, c));

			if (width > widths[c])
				widths[c] = width;
		}
		if (total >= 0 && widths[c] > WIDEST)
			widths[c] = WIDEST;
		sum += widths[c];
	}
	for (int c; total >= 0 && sum > total && (c = widest(table, widths)) >= 0; sum--)
		widths[c]--;
}

void
table_put(Buf *buf, const Table *table, int row, const int widths[MAX_COLUMNS])
{
	for (int c = 0; c < table->n_columns; c++)
	{
		const char *text = cell(table, row, c);
		int			pad = widths[c] - text_width(text);

		if (table->columns[c].right && pad > 0)
			buf_printf(buf, "%*s", pad, "");
		text_put(buf, text, widths[c]);
		if (c == table->n_columns - 1)
			break;
		if (!table->columns[c].right && pad > 0)
			buf_printf(buf, "%*s", pad, "");
		buf_printf(buf, "%*s", GAP, "");
	}
}
