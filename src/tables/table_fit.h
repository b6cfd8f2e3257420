/*
 * table_fit.h
 *	  Checks whether the extension's release and tables fit the library.
 */
#ifndef JOBQ_TABLE_FIT_H
#define JOBQ_TABLE_FIT_H

/*
 * Returns the reason why no job may run: the installed version, or a changed
 * table; "": they fit.  Waits for no lock.
 */
extern const char *fit_trouble(void);

#endif
