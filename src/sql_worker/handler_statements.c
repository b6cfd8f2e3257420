/*
 * handler_statements.c
 *	  Hooks that look at the statements of SQL handlers, and change none.
 *
 * A statement whose effect the next job in the same transaction would notice
 * closes the batch (handler.c).  So does pg_notify(), which is no statement:
 * two equal notifications of one transaction are sent as one.
 */
#include "jobq.h"

#include "catalog/objectaccess.h"
#include "catalog/pg_proc.h"
#include "nodes/parsenodes.h"
#include "tcop/utility.h"
#include "utils/fmgroids.h"

#include "sql_worker/handler.h"
#include "sql_worker/handler_statements.h"

static ProcessUtility_hook_type prev_process_utility = NULL;
static object_access_hook_type prev_object_access = NULL;

/*
 * True if the effect outlives the job: locks, constraint modes, notifications.
 */
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
declares_held_cursor(Node *stmt)
{
	return IsA(stmt, DeclareCursorStmt) && (((DeclareCursorStmt *) stmt)->options & CURSOR_OPT_HOLD) != 0;
}

static void
look_at_utility(PlannedStmt *pstmt, const char *query, bool read_only_tree,
				ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *env,
				DestReceiver *dest, QueryCompletion *qc)
{
	if (is_conspicuous(pstmt->utilityStmt))
		handler_note_conspicuous();
	if (prev_process_utility)
		prev_process_utility(pstmt, query, read_only_tree, context, params, env, dest, qc);
	else
		standard_ProcessUtility(pstmt, query, read_only_tree, context, params, env, dest, qc);
	if (declares_held_cursor(pstmt->utilityStmt))
		handler_note_held_cursor(((DeclareCursorStmt *) pstmt->utilityStmt)->portalname);
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
handler_statements_install_hooks(void)
{
	prev_object_access = object_access_hook;
	object_access_hook = look_at_access;
	prev_process_utility = ProcessUtility_hook;
	ProcessUtility_hook = look_at_utility;
}
