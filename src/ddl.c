/*
 * ddl.c
 *	  Makes way for commands that need the queue's locks, or a database that nobody uses.
 *
 * A handler holds locks on jobq.queue as long as it runs, so DROP EXTENSION jobq would wait for it, and
 * every enqueue would queue behind DROP EXTENSION.  A dispatcher never leaves its database, so DROP
 * DATABASE, RENAME, SET TABLESPACE and CREATE DATABASE ... TEMPLATE would fail after 5 s.  Our
 * ProcessUtility hook meets these commands before they take a lock: it stops hand-out
 * (db->suspended), has the running handlers cancelled (they are put back at no charge), for the
 * database-level ones makes all our processes leave (db->leave), and waits until that is so, at most
 * GIVE_WAY_MS; then the command runs as without us, and reports what it would report.
 *
 * Only for callers whom the command will obey: others get the server's error and disturb nothing.
 *
 * What was stopped goes on when the transaction ends, either way: after a commit the dispatcher finds
 * that the extension is gone and exits, or the database is gone and its entry is freed here.  A
 * savepoint's rollback counts as its end; so does PREPARE TRANSACTION: from then on the locks keep the
 * dispatcher out, and it waits for none.  The callbacks take JobqShmem->lock and can't fail.
 *
 *	 command								suspended	cancels			leave
 *	 DROP EXTENSION, DROP OWNED,			yes			all handlers	no
 *		REASSIGN OWNED, DROP SCHEMA CASCADE
 *	 ALTER EXTENSION UPDATE					yes			SQL handlers	no		(tools hold no lock)
 *	 DROP, RENAME, SET TABLESPACE, copy		yes			all handlers	yes
 *		of a database
 */
#include "jobq.h"

#include <signal.h>

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/pg_database.h"
#include "catalog/pg_extension.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "pgstat.h"
#include "storage/ipc.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "ddl.h"
#include "slots.h"

#define GIVE_WAY_MS		2000
#define ASK_MS			1000	/* then who has not obeyed is terminated */
#define POLL_MS			10
#define MAX_DETOURS		4		/* this database, and one other: the rest are not transactional */

/* What this transaction holds up. */
typedef struct Detour
{
	JobqDb	   *db;
	Oid			dboid;
	bool		leave;
	bool		drops;			/* the database */
	SubTransactionId subid;
} Detour;

typedef enum CancelScope
{
	SQL_HANDLERS,
	ALL_HANDLERS
} CancelScope;

static Detour detours[MAX_DETOURS];
static int	ndetours = 0;
static ProcessUtility_hook_type prev_process_utility = NULL;

/* ---------- holding up, going on ---------- */

static void
hold_up(const Detour *detour)
{
	JobqDb	   *db = detour->db;

	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	db->suspended++;
	db->suspended_at = GetCurrentTimestamp();
	if (detour->leave)
	{
		db->leaving++;
		db->leave = true;
	}
	LWLockRelease(JobqShmem->lock);
	wake_dispatcher(db);
}

/* In a callback at the end of a transaction: nothing here can fail. */
static void
go_on(const Detour *detour, bool committed)
{
	JobqDb	   *db = detour->db;
	Latch	   *launcher;

	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	if (db->dboid == detour->dboid)
	{
		db->suspended--;
		if (detour->leave)
		{
			db->leaving--;
			db->leave = db->leaving > 0;
		}
		if (committed && detour->drops && db->dispatcher == NULL)
			db->dboid = InvalidOid;
		else if (detour->leave || db->dispatcher == NULL)
			db->wanted = true;
	}
	launcher = JobqShmem->launcher;
	LWLockRelease(JobqShmem->lock);
	wake_dispatcher(db);
	if (launcher)
		SetLatch(launcher);
}

static void
ddl_xact_callback(XactEvent event, void *arg)
{
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE)
		return;
	while (ndetours > 0)
		go_on(&detours[--ndetours], event == XACT_EVENT_COMMIT);
}

static void
ddl_subxact_callback(SubXactEvent event, SubTransactionId subid, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_COMMIT_SUB)
	{
		for (int i = 0; i < ndetours; i++)
		{
			if (detours[i].subid == subid)
				detours[i].subid = parent;
		}
	}
	else if (event == SUBXACT_EVENT_ABORT_SUB)
	{
		/* the youngest is the last */
		while (ndetours > 0 && detours[ndetours - 1].subid == subid)
			go_on(&detours[--ndetours], false);
	}
}

/* ---------- waiting until the way is free ---------- */

/* Asks a slot's handlers to end; true while it has some, or jobs that it may still begin. */
static bool
slot_is_busy(Slot *slot)
{
	bool		busy = false;

	for (int i = 0; i < JOBQ_CELLS; i++)
	{
		Cell	   *cell = &slot->cells[i];
		uint32		state = pg_atomic_read_u32(&cell->state);
		pg_uuid_t	id;

		if (state != CELL_ASSIGNED && state != CELL_BEGUN)
			continue;
		busy = true;
		id = cell->ref.id;
		if (state == CELL_BEGUN)
			(void) slot_cancel(slot, i, &id, CANCEL_DDL, NULL);
	}
	return busy;
}

/*
 * Cancels what runs; true while something does.  A handler that doesn't obey for ASK_MS loses its
 * process: it is put back all the same.
 */
static bool
handlers_run(JobqDb *db, CancelScope scope, bool terminate)
{
	bool		busy = false;

	LWLockAcquire(JobqShmem->lock, LW_SHARED);
	for (int i = 0; i < JobqShmem->nslots; i++)
	{
		Slot	   *slot = &JobqShmem->slots[i];

		if (!slot->in_use || slot->dead || slot->dboid != db->dboid || slot == MySlot)
			continue;
		if (slot->kind == SLOT_EXEC && scope == SQL_HANDLERS)
			continue;
		if (!slot_is_busy(slot))
			continue;
		busy = true;
		if (terminate && slot->kind == SLOT_SQL && slot->pid > 0)
			kill(slot->pid, SIGTERM);
	}
	LWLockRelease(JobqShmem->lock);
	return busy;
}

/* Wakes our processes in the database, or terminates them; true while there are some. */
static bool
processes_run(JobqDb *db, bool terminate)
{
	bool		found = false;

	LWLockAcquire(JobqShmem->lock, LW_SHARED);
	for (int i = 0; i < JobqShmem->nslots; i++)
	{
		Slot	   *slot = &JobqShmem->slots[i];

		if (!slot->in_use || slot->dead || slot->dboid != db->dboid)
			continue;
		found = true;
		slot_wake(slot);
		if (terminate && slot->pid > 0)
			kill(slot->pid, SIGTERM);
	}
	if (db->dispatcher)
	{
		found = true;
		SetLatch(&db->dispatcher->procLatch);
		if (terminate && db->dispatcher_pid > 0)
			kill(db->dispatcher_pid, SIGTERM);
	}
	if (db->maintenance_pid > 0)
	{
		found = true;			/* what it did not finish is done next time */
		kill(db->maintenance_pid, SIGTERM);
	}
	LWLockRelease(JobqShmem->lock);
	return found;
}

static void
wait_for_way(const Detour *detour, CancelScope scope)
{
	TimestampTz start = GetCurrentTimestamp();
	bool		terminate = false;

	while (handlers_run(detour->db, scope, terminate) ||
		   (detour->leave && processes_run(detour->db, terminate)))
	{
		TimestampTz now = GetCurrentTimestamp();

		if (TimestampDifferenceExceeds(start, now, GIVE_WAY_MS))
			break;
		terminate = TimestampDifferenceExceeds(start, now, ASK_MS);
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, POLL_MS,
						 PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

/* The database's entry; made anew for executors that have outlived it (DROP EXTENSION). */
static JobqDb *
entry_of(Oid dboid)
{
	JobqDb	   *db = find_db(dboid);
	bool		needed = false;

	if (db)
		return db;
	LWLockAcquire(JobqShmem->lock, LW_SHARED);
	for (int i = 0; i < JobqShmem->nslots; i++)
	{
		Slot	   *slot = &JobqShmem->slots[i];

		if (slot->in_use && !slot->dead && slot->dboid == dboid)
			needed = true;
	}
	LWLockRelease(JobqShmem->lock);
	return needed ? make_db(dboid) : NULL;
}

static void
make_way(Oid dboid, bool leave, bool drops, CancelScope scope)
{
	static bool registered = false;
	JobqDb	   *db = entry_of(dboid);
	Detour	   *detour;

	if (db == NULL || ndetours == MAX_DETOURS)
		return;
	for (int i = 0; i < ndetours; i++)
	{
		if (detours[i].dboid == dboid)
			return;				/* this transaction holds it up already */
	}
	if (!registered)
	{
		RegisterXactCallback(ddl_xact_callback, NULL);
		RegisterSubXactCallback(ddl_subxact_callback, NULL);
		registered = true;
	}
	detour = &detours[ndetours];
	detour->db = db;
	detour->dboid = dboid;
	detour->leave = leave;
	detour->drops = drops;
	detour->subid = GetCurrentSubTransactionId();
	hold_up(detour);
	ndetours++;
	wait_for_way(detour, scope);
}

/* ---------- which commands, on what ---------- */

/* Our extension's owner and schema in this database; false: there is none. */
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
make_way_for_extension(CancelScope scope)
{
	Oid			owner;
	Oid			namespace;

	if (find_extension(&owner, &namespace) && has_privs_of_role(GetUserId(), owner))
		make_way(MyDatabaseId, false, false, scope);
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

		/* a cascade reaches the extension from the schema it was created in, not from its own */
		if (stmt->removeType == OBJECT_EXTENSION ? strcmp(name, "jobq") == 0 :
			get_namespace_oid(name, true) == namespace)
			make_way_for_extension(ALL_HANDLERS);
	}
}

/* DROP OWNED, REASSIGN OWNED */
static void
meet_owned(List *roles)
{
	Oid			owner;
	Oid			namespace;
	ListCell   *lc;

	if (!find_extension(&owner, &namespace))
		return;
	foreach(lc, roles)
	{
		if (get_rolespec_oid(lfirst_node(RoleSpec, lc), true) == owner)
			make_way_for_extension(ALL_HANDLERS);
	}
}

static void
meet_database(const char *name, bool drops, bool top_level)
{
	Oid			dboid = name ? get_database_oid(name, true) : InvalidOid;

	/* in a transaction block, or on this very database, the command fails anyhow */
	if (!OidIsValid(dboid) || dboid == MyDatabaseId || IsInTransactionBlock(top_level))
		return;
	if (owns_database(dboid))
		make_way(dboid, true, drops, ALL_HANDLERS);
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

	/* a copy of the current database is allowed: others must leave it, and we are others */
	if (OidIsValid(dboid) && !IsInTransactionBlock(top_level) && owns_database(dboid))
		make_way(dboid, true, false, ALL_HANDLERS);
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
			meet_owned(((DropOwnedStmt *) stmt)->roles);
			break;
		case T_ReassignOwnedStmt:
			meet_owned(((ReassignOwnedStmt *) stmt)->roles);
			break;
		case T_AlterExtensionStmt:
			if (strcmp(((AlterExtensionStmt *) stmt)->extname, "jobq") == 0)
				make_way_for_extension(SQL_HANDLERS);
			break;
		case T_DropdbStmt:
			meet_database(((DropdbStmt *) stmt)->dbname, true, top_level);
			break;
		case T_RenameStmt:
			if (((RenameStmt *) stmt)->renameType == OBJECT_DATABASE)
				meet_database(((RenameStmt *) stmt)->subname, false, top_level);
			break;
		case T_AlterDatabaseStmt:
			if (option_string(((AlterDatabaseStmt *) stmt)->options, "tablespace", NULL))
				meet_database(((AlterDatabaseStmt *) stmt)->dbname, false, top_level);
			break;
		case T_CreatedbStmt:
			meet_create_database((CreatedbStmt *) stmt, top_level);
			break;
		default:
			break;
	}
}

static void
ddl_process_utility(PlannedStmt *pstmt, const char *query, bool read_only_tree,
					ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *env,
					DestReceiver *dest, QueryCompletion *qc)
{
	if (JobqShmem != NULL && OidIsValid(MyDatabaseId) && IsTransactionState() && !RecoveryInProgress())
		meet_command(pstmt->utilityStmt, context == PROCESS_UTILITY_TOPLEVEL);

	if (prev_process_utility)
		prev_process_utility(pstmt, query, read_only_tree, context, params, env, dest, qc);
	else
		standard_ProcessUtility(pstmt, query, read_only_tree, context, params, env, dest, qc);
}

void
ddl_install_hooks(void)
{
	prev_process_utility = ProcessUtility_hook;
	ProcessUtility_hook = ddl_process_utility;
}
