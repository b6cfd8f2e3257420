/*
 * statement_hooks.h
 *	  Utility statements that jobq takes note of.
 */
#ifndef JOBQ_STATEMENT_HOOKS_H
#define JOBQ_STATEMENT_HOOKS_H

extern void statements_install_hook(void);

#endif
