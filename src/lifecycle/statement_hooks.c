/*
 * statement_hooks.c
 *	  Hooks that look at statements.  They change and refuse none, but for a
 *	  handler under run_inline.
 *
 * Inside a SQL handler, statements whose effect the next job in the same
 * transaction would notice close the batch (handler.c); so does pg_notify(),
 * which is no statement: two equal notifications of one transaction are sent as
 * one.  COMMIT PREPARED runs no transaction callback in a backend that knows the
 * prepared keys, so it wakes the dispatcher, which keeps the keys beside the xid.
 * SET TRANSACTION SNAPSHOT is counted: a wait until all older snapshots are gone
 * needs the count (snapshot_horizon.c).
 */
#include "jobq.h"

#include "catalog/objectaccess.h"
#include "catalog/pg_proc.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "tcop/utility.h"
#include "utils/fmgroids.h"

#include "lifecycle/statement_hooks.h"
#include "shared/shmem.h"
#include "sql_worker/handler.h"
#include "sql_worker/inline_session.h"
#include "sql_worker/inline_triggers.h"

static ProcessUtility_hook_type prev_process_utility = NULL;
static object_access_hook_type prev_object_access = NULL;

/* True if the statement's effect outlives the job: locks, constraint modes, notifications. */
static bool
is_conspicuous(Node *stmt)
{
	switch (nodeTag(stmt))
	{
		case T_LockStmt:
		case T_ConstraintsSetStmt:
		case T_NotifyStmt:
		case T_ListenStmt:
		case T_UnlistenStmt:
		case T_PrepareStmt:
		case T_DiscardStmt:
			return true;
		default:
			return false;
	}
}

static bool
ends_prepared(Node *stmt)
{
	return IsA(stmt, TransactionStmt) &&
		(((TransactionStmt *) stmt)->kind == TRANS_STMT_COMMIT_PREPARED ||
		 ((TransactionStmt *) stmt)->kind == TRANS_STMT_ROLLBACK_PREPARED);
}

static bool
imports_snapshot(Node *stmt)
{
	return IsA(stmt, VariableSetStmt) && ((VariableSetStmt *) stmt)->kind == VAR_SET_MULTI &&
		strcmp(((VariableSetStmt *) stmt)->name, "TRANSACTION SNAPSHOT") == 0;
}

static bool
declares_held_cursor(Node *stmt)
{
	return IsA(stmt, DeclareCursorStmt) && (((DeclareCursorStmt *) stmt)->options & CURSOR_OPT_HOLD) != 0;
}

static void
count_import(void)
{
	JobqDb	   *db = find_db(MyDatabaseId);

	if (db)
		pg_atomic_fetch_add_u32(&db->compaction.imports, 1);
}

static void
look_at_utility(PlannedStmt *pstmt, const char *query, bool read_only_tree,
				ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *env,
				DestReceiver *dest, QueryCompletion *qc)
{
	bool		prepared = ends_prepared(pstmt->utilityStmt);
	const Run  *inline_run = handler_inline_run();

	if (inline_run && inline_session_executes(inline_run->session, pstmt->utilityStmt))
		return;
	if (is_conspicuous(pstmt->utilityStmt))
		handler_note_conspicuous();
	if (imports_snapshot(pstmt->utilityStmt))
		count_import();
	if (prev_process_utility)
		prev_process_utility(pstmt, query, read_only_tree, context, params, env, dest, qc);
	else
		standard_ProcessUtility(pstmt, query, read_only_tree, context, params, env, dest, qc);
	if (declares_held_cursor(pstmt->utilityStmt))
		handler_note_held_cursor(((DeclareCursorStmt *) pstmt->utilityStmt)->portalname);
	if (inline_run)
		inline_session_note(inline_run->session, pstmt->utilityStmt);
	else if (IsA(pstmt->utilityStmt, ConstraintsSetStmt))
		inline_triggers_note((ConstraintsSetStmt *) pstmt->utilityStmt);
	if (prepared)
	{
		JobqDb	   *db = find_db(MyDatabaseId); /* takes no entry where there is no jobq */

		if (db)
		{
			SpinLockAcquire(&db->mutex);
			db->prepared.ended++;
			db->requests.types_changed |= db->prepared.types_changed;
			SpinLockRelease(&db->mutex);
			wake_dispatcher(db);
		}
	}
}

static void
look_at_access(ObjectAccessType access, Oid classid, Oid objid, int subid, void *arg)
{
	if (prev_object_access)
		prev_object_access(access, classid, objid, subid, arg);
	if (access == OAT_FUNCTION_EXECUTE && classid == ProcedureRelationId && objid == F_PG_NOTIFY)
		handler_note_conspicuous();
}

void
statements_install_hook(void)
{
	prev_object_access = object_access_hook;
	object_access_hook = look_at_access;
	prev_process_utility = ProcessUtility_hook;
	ProcessUtility_hook = look_at_utility;
	inline_triggers_begin();
}
