/*
 * run_inline.h
 *	  What a handler leaves in the session of the caller of jobq.run_inline.
 */
#ifndef JOBQ_RUN_INLINE_H
#define JOBQ_RUN_INLINE_H

/*
 * Drops the cursors of the current subtransaction, the handler's: the caller
 * would fetch from them with its own rights.
 */
extern void inline_drop_cursors(void);

#endif
