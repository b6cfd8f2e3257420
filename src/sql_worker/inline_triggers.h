/*
 * inline_triggers.h
 *	  Deferred triggers around a handler that jobq.run_inline runs: the caller's and the handler's.
 */
#ifndef JOBQ_INLINE_TRIGGERS_H
#define JOBQ_INLINE_TRIGGERS_H

#include "nodes/parsenodes.h"

/*
 * Notes a SET CONSTRAINTS that this session has executed outside of such a
 * handler.
 */
extern void inline_triggers_note(const ConstraintsSetStmt *stmt);

/*
 * Called once, when the library is loaded: this transaction may have executed
 * SET CONSTRAINTS before.
 */
extern void inline_triggers_begin(void);

/*
 * Fires the caller's deferred triggers, before the handler's subtransaction;
 * 55000 where that cannot be undone.
 */
extern void inline_triggers_fire_callers(void);
/* Fires all deferred triggers; inside the handler's subtransaction. */
extern void inline_triggers_fire(void);

/*
 * Undoes the handler's SET CONSTRAINTS, when none of its triggers is left; at
 * the level of its subtransaction.
 */
extern void inline_triggers_restore(void);

#endif
