/*
 * hints.h
 *	  Hints to errors that PostgreSQL raises before any code of jobq runs.
 */
#ifndef JOBQ_HINTS_H
#define JOBQ_HINTS_H

extern void hints_install_hook(void);

#endif
