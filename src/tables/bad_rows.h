/*
 * bad_rows.h
 *	  Rows of jobq.limits that the dispatcher cannot use: a value makes no sense.
 *
 * jobq's functions write no such row, plain SQL can.  The dispatcher ignores
 * it, and names it here for the log and health().
 */
#ifndef JOBQ_BAD_ROWS_H
#define JOBQ_BAD_ROWS_H

/* Enclose one reading of the table. */
extern void bad_rows_begin(void);
extern void bad_rows_note(const char *trouble);
extern void bad_rows_end(void);
/* Returns a message about the first bad row, "" without one. */
extern const char *bad_rows_trouble(void);

#endif
