/*
 * bad_rows.h
 *	  Rows of small tables that the dispatcher cannot use: a column is NULL or a
 *	  value makes no sense.
 *
 * jobq's functions write no such row, plain SQL can.  The dispatcher ignores
 * it, and names it here for the log and health().
 */
#ifndef JOBQ_BAD_ROWS_H
#define JOBQ_BAD_ROWS_H

typedef enum BadRows
{
	BAD_LIMITS,
	BAD_SIGNALS,				/* and pressure rules */
	BAD_QUOTAS
} BadRows;
#define BAD_ROWS_KINDS (BAD_QUOTAS + 1)

/* Enclose one reading of the table. */
extern void bad_rows_begin(BadRows kind);
extern void bad_rows_note(BadRows kind, const char *trouble);
extern void bad_rows_end(BadRows kind);
/* Returns a message about the first bad row, "" without one. */
extern const char *bad_rows_trouble(void);

#endif
