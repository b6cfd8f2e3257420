/*
 * statement_hooks.c
 *	  A hook that looks at utility statements and changes none.
 *
 * COMMIT PREPARED has no transaction callback in a backend that knows what was
 * prepared.  The hook wakes the dispatcher, which keeps the published keys
 * beside the transaction id.
 */
#include "jobq.h"

#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "tcop/utility.h"

#include "lifecycle/statement_hooks.h"
#include "shared/publish_ends.h"
#include "shared/publish_schedules.h"
#include "shared/shmem.h"
#include "shared/stat_changes.h"

static ProcessUtility_hook_type prev_process_utility = NULL;

static bool
ends_prepared(Node *stmt)
{
	return IsA(stmt, TransactionStmt) &&
		(((TransactionStmt *) stmt)->kind == TRANS_STMT_COMMIT_PREPARED ||
		 ((TransactionStmt *) stmt)->kind == TRANS_STMT_ROLLBACK_PREPARED);
}

static void
wake_for_prepared(void)
{
	JobqDb	   *db = find_db(MyDatabaseId); /* takes no entry where there is no jobq */

	if (db == NULL)
		return;
	SpinLockAcquire(&db->mutex);
	db->prepared.ended++;
	db->requests.types_changed |= db->prepared.types_changed;
	SpinLockRelease(&db->mutex);
	wake_dispatcher(db);
	schedule_news_prepared_ended(db);
	ends_prepared_ended(db);
	stat_prepared_ended(db);
}

static void
look_at_utility(PlannedStmt *pstmt, const char *query, bool read_only_tree,
				ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *env,
				DestReceiver *dest, QueryCompletion *qc)
{
	bool		prepared = ends_prepared(pstmt->utilityStmt);

	if (prev_process_utility)
		prev_process_utility(pstmt, query, read_only_tree, context, params, env, dest, qc);
	else
		standard_ProcessUtility(pstmt, query, read_only_tree, context, params, env, dest, qc);
	if (prepared)
		wake_for_prepared();
}

void
statements_install_hook(void)
{
	prev_process_utility = ProcessUtility_hook;
	ProcessUtility_hook = look_at_utility;
}
