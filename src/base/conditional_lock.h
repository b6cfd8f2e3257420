/*
 * conditional_lock.h
 *	  Locks for reading that the dispatcher does not wait for.
 */
#ifndef JOBQ_CONDITIONAL_LOCK_H
#define JOBQ_CONDITIONAL_LOCK_H

#include "utils/relcache.h"

/*
 * Lock in AccessShareLock mode until the end of the transaction.  Each returns
 * false if a lock is not free, by REINDEX say; others may have been taken
 * then.
 */

/*
 * All indexes of a table.  The caller's lock on the table keeps them from
 * being dropped.
 */
extern bool lock_indexes_if_free(Relation rel);
/* The table, its partitions, and the indexes of all of them. */
extern bool lock_tree_if_free(Oid relid);
/* The table and, if it has any rows, its TOAST table with its index. */
extern bool lock_rows_if_free(Oid relid);

#endif
