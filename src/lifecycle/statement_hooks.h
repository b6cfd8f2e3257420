/*
 * statement_hooks.h
 *	  Utility statements that the dispatcher or a wait for snapshots must know of.
 */
#ifndef JOBQ_STATEMENT_HOOKS_H
#define JOBQ_STATEMENT_HOOKS_H

extern void statements_install_hook(void);

#endif
