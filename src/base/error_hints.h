/*
 * error_hints.h
 *	  Hints to errors that PostgreSQL raises before any code of jobq runs.
 */
#ifndef JOBQ_ERROR_HINTS_H
#define JOBQ_ERROR_HINTS_H

extern void hints_install_hook(void);

#endif
