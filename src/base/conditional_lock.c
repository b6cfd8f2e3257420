/*
 * conditional_lock.c
 *	  Locks for reading that the dispatcher does not wait for.
 *
 * An owner's transaction may hold a table of jobq or one of its indexes
 * (REINDEX) for as long as it is open.  Planner, executor and detoasting wait
 * for such a lock; the dispatcher takes all that they need before, and reads
 * later when one is not free.
 *
 * Catalogs of the system are not covered: behind an exclusive lock of one of
 * them the server starts no session and plans no query either.
 */
#include "jobq.h"

#include "access/table.h"
#include "catalog/pg_inherits.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/rel.h"

#include "base/conditional_lock.h"

bool
lock_indexes_if_free(Relation rel)
{
	List	   *indexes = RelationGetIndexList(rel);
	ListCell   *lc;
	bool		locked = true;

	foreach(lc, indexes)
		locked = locked && ConditionalLockRelationOid(lfirst_oid(lc), AccessShareLock);
	list_free(indexes);
	return locked;
}

/*
 * Returns the table, open, its lock to be kept; NULL: it is not free, or not
 * there.
 */
static Relation
open_if_free(Oid relid)
{
	if (!OidIsValid(relid) || !ConditionalLockRelationOid(relid, AccessShareLock))
		return NULL;
	return try_table_open(relid, NoLock);
}

bool
lock_tree_if_free(Oid relid)
{
	bool		locked = OidIsValid(relid) && ConditionalLockRelationOid(relid, AccessShareLock);
	ListCell   *lc;

	if (!locked)
		return false;
	foreach(lc, find_all_inheritors(relid, NoLock, NULL))
	{
		Relation	rel = open_if_free(lfirst_oid(lc));

		locked = rel != NULL && lock_indexes_if_free(rel);
		if (rel != NULL)
			table_close(rel, NoLock);
		if (!locked)
			return false;
	}
	return true;
}

bool
lock_rows_if_free(Oid relid)
{
	Relation	rel = open_if_free(relid);
	Relation	toast = NULL;
	bool		locked = rel != NULL;

	if (locked && OidIsValid(rel->rd_rel->reltoastrelid))
	{
		toast = open_if_free(rel->rd_rel->reltoastrelid);
		locked = toast != NULL && (RelationGetNumberOfBlocks(toast) == 0 || lock_indexes_if_free(toast));
	}
	if (toast != NULL)
		table_close(toast, NoLock);
	if (rel != NULL)
		table_close(rel, NoLock);
	return locked;
}
