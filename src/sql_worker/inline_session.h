/*
 * inline_session.h
 *	  Keeps the handler's session state away from the caller of jobq.run_inline.
 *
 * A worker's session belongs to its role.  run_inline runs the handler in the
 * caller's session, which may have more rights.  A cursor, a prepared
 * statement or a temporary object of the handler would wait there for the
 * caller to use it.
 */
#ifndef JOBQ_INLINE_SESSION_H
#define JOBQ_INLINE_SESSION_H

#include "nodes/parsenodes.h"

typedef struct InlineSession InlineSession;

/*
 * Notes what the caller's session holds.  Call it outside the handler's
 * subtransaction.
 */
extern InlineSession *inline_session_begin(void);

/*
 * Sets search_path as a new session of that role in this database has it; in
 * the handler's GUC nest level.
 */
extern void inline_session_set_path(Oid role);
/* Fires the handler's deferred triggers; inside its subtransaction. */
extern void inline_session_fire(InlineSession *session);

/*
 * Drops the handler's cursors and temporary objects, undoes its SET
 * CONSTRAINTS; before its subtransaction ends.
 */
extern void inline_session_drop(InlineSession *session);

/*
 * Drops the rest, which a rollback leaves: prepared statements, advisory locks
 * of the session.
 */
extern void inline_session_end(InlineSession *session);

/*
 * ERROR when the statement would act on the caller's session.  True: it has
 * been executed here, and the server must not execute it.
 */
extern bool inline_session_executes(InlineSession *session, Node *stmt);
/* Notes a statement that the server has executed. */
extern void inline_session_note(InlineSession *session, Node *stmt);

#endif
