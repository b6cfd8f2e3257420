/*
 * statement_hooks.h
 *	  COMMIT PREPARED and ROLLBACK PREPARED, for dispatcher, conductor and statistics.
 */
#ifndef JOBQ_STATEMENT_HOOKS_H
#define JOBQ_STATEMENT_HOOKS_H

extern void statements_install_hook(void);

#endif
