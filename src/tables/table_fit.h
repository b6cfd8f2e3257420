/*
 * table_fit.h
 *	  Whether the extension's tables in this database are such that jobs may run.
 */
#ifndef JOBQ_TABLE_FIT_H
#define JOBQ_TABLE_FIT_H

/* Why jobs may not run: the installed version, or a table that was changed; "": they may.  Waits for no lock. */
extern const char *fit_trouble(void);

#endif
