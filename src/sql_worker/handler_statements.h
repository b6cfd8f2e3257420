/*
 * handler_statements.h
 *	  Statements that a SQL handler executes and that its job's transaction must know of.
 */
#ifndef JOBQ_HANDLER_STATEMENTS_H
#define JOBQ_HANDLER_STATEMENTS_H

/*
 * Called once, when the library is loaded; after the other ProcessUtility
 * hooks of sessions, so that it is the outer one.
 */
extern void handler_statements_install_hooks(void);

#endif
