/*
 * statements.h
 *	  Utility statements that jobq wants to know of.
 */
#ifndef JOBQ_STATEMENTS_H
#define JOBQ_STATEMENTS_H

extern void statements_install_hook(void);

#endif
