/*
 * ddl_hook.c
 *	  Commands that need the queue's locks, or a database without sessions: jobq
 *	  stops its jobs for them.
 *
 * A handler holds locks on jobq.queue as long as it runs, so DROP EXTENSION
 * jobq would wait for it, and every enqueue would queue behind DROP EXTENSION.
 * A dispatcher never leaves its database, so DROP DATABASE, RENAME, SET
 * TABLESPACE and CREATE DATABASE ... TEMPLATE would fail after 5 s.  A
 * ProcessUtility hook sees these commands before they take a lock, and a
 * barrier (ddl_barrier.c) stops the jobs and processes that block them, also
 * the process that evaluates a signal's condition.  Then the command runs as
 * without jobq.
 *
 * The barrier is only for callers that may execute the command: others get the
 * server's error and disturb no job.
 *
 *	 command							cancels			before it			after its commit
 *	 DROP EXTENSION, DROP OWNED,		all handlers						all leave
 *		DROP SCHEMA CASCADE
 *	 REASSIGN OWNED						all handlers
 *	 ALTER EXTENSION UPDATE				SQL handlers	(tools hold no lock)
 *	 index, trigger, policy, ... of		SQL handlers
 *		jobq.queue (meet_change)
 *	 RENAME, SET TABLESPACE, copy of	all handlers	all leave
 *		a database, DROP DATABASE
 *
 * The same hook refuses changes of the columns of jobq's tables and their
 * partitions, unless a script of the extension makes them: C code reads and
 * writes rows by column number (tables/table_shape.h).
 *
 * A second hook refuses foreign keys to jobq's tables, by whatever command: a
 * job leaves the queue when it ends, in a way that fires no trigger, and the
 * reference would point to nothing.
 */
#include "jobq.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/dependency.h"
#include "catalog/index.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_database.h"
#include "catalog/pg_extension.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "commands/tablecmds.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/lmgr.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "base/relations.h"
#include "lifecycle/ddl_barrier.h"
#include "lifecycle/ddl_hook.h"
#include "shared/dispatcher_request.h"
#include "shared/shmem.h"
#include "shared/stat_changes.h"
#include "shared/xact_changes.h"

static ProcessUtility_hook_type prev_process_utility = NULL;
static object_access_hook_type prev_object_access = NULL;

/*
 * Finds the extension's owner and schema in this database; false: there is
 * none.
 */
static bool
find_extension(Oid *owner, Oid *namespace)
{
	Relation	rel = table_open(ExtensionRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		found;

	ScanKeyInit(&key, Anum_pg_extension_extname, BTEqualStrategyNumber, F_NAMEEQ,
				CStringGetDatum("jobq"));
	scan = systable_beginscan(rel, ExtensionNameIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	found = HeapTupleIsValid(tuple);
	if (found)
	{
		*owner = ((Form_pg_extension) GETSTRUCT(tuple))->extowner;
		*namespace = ((Form_pg_extension) GETSTRUCT(tuple))->extnamespace;
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return found;
}

static bool
owns_database(Oid dboid)
{
	HeapTuple	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(dboid));
	Oid			owner;

	if (!HeapTupleIsValid(tuple))
		return false;
	owner = ((Form_pg_database) GETSTRUCT(tuple))->datdba;
	ReleaseSysCache(tuple);
	return has_privs_of_role(GetUserId(), owner);
}

static void
lock_table(const char *name)
{
	Oid			relid = jobq_relid(name);

	if (OidIsValid(relid))
		LockRelationOid(relid, AccessExclusiveLock);
}

/*
 * Locks the tables in the order of an enqueue, which reads the registry,
 * writes the queue, then others.  DROP locks tables as it finds them, and
 * would deadlock with an enqueue.
 */
static void
make_way_for_extension(BarrierKind kind)
{
	Oid			owner;
	Oid			namespace;

	if (!find_extension(&owner, &namespace) || !has_privs_of_role(GetUserId(), owner))
		return;
	barrier_begin(MyDatabaseId, kind);
	if (kind == DROPS_EXTENSION)
	{
		lock_table("job_types");
		lock_table("queue");
	}
}

static void
meet_drop(DropStmt *stmt)
{
	Oid			owner;
	Oid			namespace;
	ListCell   *lc;

	if (stmt->removeType != OBJECT_EXTENSION &&
		!(stmt->removeType == OBJECT_SCHEMA && stmt->behavior == DROP_CASCADE))
		return;
	if (!find_extension(&owner, &namespace))
		return;
	foreach(lc, stmt->objects)
	{
		const char *name = strVal(lfirst(lc));

		/*
		 * a cascade reaches the extension from the schema it was created in,
		 * not from its own
		 */
		if (stmt->removeType == OBJECT_EXTENSION ? strcmp(name, "jobq") == 0 :
			get_namespace_oid(name, true) == namespace)
			make_way_for_extension(DROPS_EXTENSION);
	}
}

static void
meet_owned(List *roles, BarrierKind kind)
{
	Oid			owner;
	Oid			namespace;
	ListCell   *lc;

	if (!find_extension(&owner, &namespace))
		return;
	foreach(lc, roles)
	{
		if (get_rolespec_oid(lfirst_node(RoleSpec, lc), true) == owner)
			make_way_for_extension(kind);
	}
}

static void
meet_database(const char *name, BarrierKind kind, bool top_level)
{
	Oid			dboid = name ? get_database_oid(name, true) : InvalidOid;

	/*
	 * in a transaction block, or on this very database, the command fails
	 * anyhow
	 */
	if (!OidIsValid(dboid) || dboid == MyDatabaseId || IsInTransactionBlock(top_level))
		return;
	if (owns_database(dboid))
		barrier_begin(dboid, kind);
}

static bool
is_concurrent(List *options)
{
	bool		concurrent = false;
	ListCell   *lc;

	foreach(lc, options)
	{
		DefElem    *def = lfirst_node(DefElem, lc);

		if (strcmp(def->defname, "concurrently") == 0)
			concurrent = defGetBoolean(def);
	}
	return concurrent;
}

/*
 * Returns the relation of an object that is dropped: the index, or the table of
 * a trigger, policy or rule.
 */
static RangeVar *
named_by_drop(DropStmt *stmt, List *name)
{
	if (stmt->removeType == OBJECT_INDEX)
		return stmt->concurrent ? NULL : makeRangeVarFromNameList(name);
	if ((stmt->removeType != OBJECT_TRIGGER && stmt->removeType != OBJECT_POLICY && stmt->removeType != OBJECT_RULE) ||
		list_length(name) < 2)
		return NULL;
	return makeRangeVarFromNameList(list_truncate(list_copy(name), list_length(name) - 1));
}

/* Returns the relation that a command locks against writers; NULL: none. */
static RangeVar *
changed_relation(Node *stmt)
{
	switch (nodeTag(stmt))
	{
		case T_AlterTableStmt:
			return AlterTableGetLockLevel(((AlterTableStmt *) stmt)->cmds) >= ShareLock ? ((AlterTableStmt *) stmt)->relation : NULL;
		case T_IndexStmt:
			return ((IndexStmt *) stmt)->concurrent ? NULL : ((IndexStmt *) stmt)->relation;
		case T_ReindexStmt:
			return is_concurrent(((ReindexStmt *) stmt)->params) ? NULL : ((ReindexStmt *) stmt)->relation;
		case T_CreateTrigStmt:
			return ((CreateTrigStmt *) stmt)->relation;
		case T_CreatePolicyStmt:
			return ((CreatePolicyStmt *) stmt)->table;
		case T_AlterPolicyStmt:
			return ((AlterPolicyStmt *) stmt)->table;
		case T_RuleStmt:
			return ((RuleStmt *) stmt)->relation;
		case T_RenameStmt:
			return ((RenameStmt *) stmt)->relation;
		default:
			return NULL;
	}
}

/* True if it is the queue, or an index of it whose name stays. */
static bool
is_of_queue(RangeVar *name, bool renamed)
{
	Oid			relid = name != NULL ? RangeVarGetRelid(name, NoLock, true) : InvalidOid;

	if (OidIsValid(relid) && get_rel_relkind(relid) == RELKIND_INDEX && !renamed)
		relid = IndexGetRelation(relid, true);
	return OidIsValid(relid) && relid == jobq_relid("queue");
}

/*
 * Makes way for a session's own command that locks the queue against writers
 * while it runs.  Not for one of a function: jobq's disturb no job.  Nor for
 * LOCK, TRUNCATE, CLUSTER, and commands in several transactions (VACUUM FULL,
 * REINDEX SCHEMA).
 */
static void
meet_change(Node *stmt)
{
	bool		changes = is_of_queue(changed_relation(stmt), IsA(stmt, RenameStmt));
	ListCell   *lc;

	if (IsA(stmt, DropStmt))
	{
		DropStmt   *drop = (DropStmt *) stmt;

		foreach(lc, drop->objects)
		{
			if (IsA(lfirst(lc), List))
				changes |= is_of_queue(named_by_drop(drop, lfirst_node(List, lc)), false);
		}
	}
	if (changes)
		make_way_for_extension(CHANGES_QUEUE);
}

static const char *
option_string(List *options, const char *name, const char *otherwise)
{
	ListCell   *lc;

	foreach(lc, options)
	{
		DefElem    *def = lfirst_node(DefElem, lc);

		if (strcmp(def->defname, name) == 0 && def->arg != NULL)
			return defGetString(def);
	}
	return otherwise;
}

static void
meet_create_database(CreatedbStmt *stmt, bool top_level)
{
	const char *template = option_string(stmt->options, "template", "template1");
	Oid			dboid = get_database_oid(template, true);

	/*
	 * a copy of the current database is allowed: other sessions must leave it,
	 * also jobq's
	 */
	if (OidIsValid(dboid) && !IsInTransactionBlock(top_level) && owns_database(dboid))
		barrier_begin(dboid, NEEDS_DATABASE);
}

static void
meet_command(Node *stmt, bool top_level)
{
	switch (nodeTag(stmt))
	{
		case T_DropStmt:
			meet_drop((DropStmt *) stmt);
			break;
		case T_DropOwnedStmt:
			meet_owned(((DropOwnedStmt *) stmt)->roles, DROPS_EXTENSION);
			break;
		case T_ReassignOwnedStmt:
			meet_owned(((ReassignOwnedStmt *) stmt)->roles, REASSIGNS_EXTENSION);
			break;
		case T_AlterExtensionStmt:
			if (strcmp(((AlterExtensionStmt *) stmt)->extname, "jobq") == 0)
				make_way_for_extension(CHANGES_EXTENSION);
			break;
		case T_DropdbStmt:
			meet_database(((DropdbStmt *) stmt)->dbname, DROPS_DATABASE, top_level);
			break;
		case T_RenameStmt:
			if (((RenameStmt *) stmt)->renameType == OBJECT_DATABASE)
				meet_database(((RenameStmt *) stmt)->subname, NEEDS_DATABASE, top_level);
			break;
		case T_AlterDatabaseStmt:
			if (option_string(((AlterDatabaseStmt *) stmt)->options, "tablespace", NULL))
				meet_database(((AlterDatabaseStmt *) stmt)->dbname, NEEDS_DATABASE, top_level);
			break;
		case T_CreatedbStmt:
			meet_create_database((CreatedbStmt *) stmt, top_level);
			break;
		default:
			break;
	}
}

/* ---------- columns ---------- */

static bool
changes_columns(const AlterTableStmt *stmt)
{
	ListCell   *lc;

	foreach(lc, stmt->cmds)
	{
		switch (lfirst_node(AlterTableCmd, lc)->subtype)
		{
			case AT_AddColumn:
			case AT_DropColumn:
			case AT_AlterColumnType:
			case AT_ColumnDefault:
			case AT_SetNotNull:
			case AT_DropNotNull:
				return true;
			default:
				break;
		}
	}
	return false;
}

/* True if the relation is a table of the extension, or a partition of one. */
static bool
is_table_of(Oid extension, Oid relid)
{
	char		kind = get_rel_relkind(relid);

	if (kind != RELKIND_RELATION && kind != RELKIND_PARTITIONED_TABLE)
		return false;
	if (get_rel_relispartition(relid))
		relid = llast_oid(get_partition_ancestors(relid));
	return getExtensionOfObject(RelationRelationId, relid) == extension;
}

static void
check_columns(Node *stmt)
{
	RangeVar   *table = NULL;
	Oid			extension;
	Oid			relid;

	if (IsA(stmt, AlterTableStmt) && changes_columns((AlterTableStmt *) stmt))
		table = ((AlterTableStmt *) stmt)->relation;
	else if (IsA(stmt, RenameStmt) && ((RenameStmt *) stmt)->renameType == OBJECT_COLUMN)
		table = ((RenameStmt *) stmt)->relation;
	if (table == NULL)
		return;
	extension = get_extension_oid("jobq", true);
	if (!OidIsValid(extension) || (creating_extension && CurrentExtensionObject == extension))
		return;
	relid = RangeVarGetRelid(table, NoLock, true);
	if (OidIsValid(relid) && is_table_of(extension, relid))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("the columns of the table \"%s.%s\" can't be changed",
						get_namespace_name(get_rel_namespace(relid)), get_rel_name(relid)),
				 errhint("Keep a value of yours in the job's metadata, or in a table of your own with the job's id.")));
}

/*
 * Makes every process read the version again (release.c), and has the rows
 * counted anew: an update may write them without triggers that count.
 */
static void
version_changed(void)
{
	Oid			relid = jobq_relid("queue");

	if (!OidIsValid(relid))
		return;
	CacheInvalidateRelcacheByRelid(relid);
	note_types_changed();
	stat_recount();
}

static void
ddl_process_utility(PlannedStmt *pstmt, const char *query, bool read_only_tree,
					ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *env,
					DestReceiver *dest, QueryCompletion *qc)
{
	Node	   *stmt = pstmt->utilityStmt;

	if (JobqShmem != NULL && OidIsValid(MyDatabaseId) && IsTransactionState() && !RecoveryInProgress())
	{
		check_columns(stmt);
		meet_command(stmt, context == PROCESS_UTILITY_TOPLEVEL);
		if (context == PROCESS_UTILITY_TOPLEVEL)
			meet_change(stmt);
	}

	if (prev_process_utility)
		prev_process_utility(pstmt, query, read_only_tree, context, params, env, dest, qc);
	else
		standard_ProcessUtility(pstmt, query, read_only_tree, context, params, env, dest, qc);
	if (IsA(stmt, AlterExtensionStmt) && strcmp(((AlterExtensionStmt *) stmt)->extname, "jobq") == 0)
		version_changed();
	if (IsA(stmt, AlterDatabaseStmt))
		request_database_scan();
}

/* Raises an error if a new constraint is a foreign key from another schema to a table of jobq. */
static void
check_constraint(Oid constraint)
{
	Oid			queue = jobq_relid("queue");
	Relation	rel;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	Oid			from = InvalidOid;
	Oid			to = InvalidOid;

	if (!OidIsValid(queue))
		return;
	rel = table_open(ConstraintRelationId, AccessShareLock);
	ScanKeyInit(&key, Anum_pg_constraint_oid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(constraint));
	/* no command counter has made it visible yet */
	scan = systable_beginscan(rel, ConstraintOidIndexId, true, SnapshotSelf, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple) && ((Form_pg_constraint) GETSTRUCT(tuple))->contype == CONSTRAINT_FOREIGN)
	{
		from = ((Form_pg_constraint) GETSTRUCT(tuple))->conrelid;
		to = ((Form_pg_constraint) GETSTRUCT(tuple))->confrelid;
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	if (OidIsValid(to) && get_rel_namespace(to) == get_rel_namespace(queue) && get_rel_namespace(from) != get_rel_namespace(queue))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("a foreign key can't reference the table \"jobq.%s\"", get_rel_name(to)),
				 errdetail("jobq moves and removes rows without triggers: a job leaves the queue when it ends."),
				 errhint("Keep the id in a column without a constraint; jobq.jobs has the job as long as its history is kept.")));
}

/* pg_upgrade restores what there was. */
static void
ddl_object_access(ObjectAccessType access, Oid class, Oid object, int sub_id, void *arg)
{
	if (prev_object_access)
		prev_object_access(access, class, object, sub_id, arg);
	if (access == OAT_POST_CREATE && class == ConstraintRelationId && !IsBinaryUpgrade)
		check_constraint(object);
}

void
ddl_install_hooks(void)
{
	prev_process_utility = ProcessUtility_hook;
	ProcessUtility_hook = ddl_process_utility;
	prev_object_access = object_access_hook;
	object_access_hook = ddl_object_access;
}
