/*
 * inline_session.c
 *	  The caller's session while jobq.run_inline runs a handler in it: see inline_session.h.
 *
 *	 cursors				dropped at the handler's end
 *	 temporary objects		dropped at the handler's end: those that the session lacked before
 *	 prepared statements	dropped; DEALLOCATE finds the handler's own only
 *	 advisory locks			the session's counts are put back; the caller's stay locked meanwhile
 *	 SET CONSTRAINTS		undone when no deferred trigger is left (inline_triggers.c)
 *	 LISTEN					refused, as in a worker; so are UNLISTEN and DISCARD,
 *							which would act on the caller
 *	 settings				undone by handler.c, as in a worker
 *
 * Objects are dropped past the executor, so no code of the handler's role runs
 * then.
 */
#include "jobq.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_db_role_setting.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "commands/prepare.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "tcop/utility.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/portal.h"
#include "utils/varlena.h"

#include "sql_worker/inline_session.h"
#include "sql_worker/inline_triggers.h"

typedef struct AdvisoryLock
{
	LOCKTAG		tag;
	LOCKMODE	mode;
	int64		count;			/* how often the session holds it */
} AdvisoryLock;

struct InlineSession
{
	MemoryContext context;
	SubTransactionId subid;		/* the caller's: what is younger is the handler's */
	ObjectAddresses *temporary; /* the caller's temporary objects */
	List	   *locks;			/* AdvisoryLock; each held once more, by the transaction */
	List	   *prepared;		/* names of the handler's prepared statements */
	bool		constraints_set;	/* by the handler, since its deferred triggers began to fire */
};

/* ---------- advisory locks ---------- */

static List *
add_modes(List *locks, const PROCLOCK *held)
{
	const LOCKTAG *tag = &held->tag.myLock->tag;

	for (LOCKMODE mode = 1; mode < MAX_LOCKMODES; mode++)
	{
		AdvisoryLock *lock;

		if (tag->locktag_type != LOCKTAG_ADVISORY || (held->holdMask & LOCKBIT_ON(mode)) == 0)
			continue;
		lock = palloc0(sizeof(AdvisoryLock));
		lock->tag = *tag;
		lock->mode = mode;
		locks = lappend(locks, lock);
	}
	return locks;
}

/*
 * Takes once more, for the transaction, a lock that this process holds;
 * returns the session's count.
 */
static int64
hold_and_count(const AdvisoryLock *lock)
{
	LOCALLOCK  *local;

	(void) LockAcquireExtended(&lock->tag, lock->mode, false, true, true, &local);
	for (int i = 0; i < local->numLockOwners; i++)
	{
		if (local->lockOwners[i].owner == NULL)
			return local->lockOwners[i].nLocks;
	}
	return 0;
}

/*
 * Lists the advisory locks of this process and takes each of them once more.
 */
static List *
hold_advisory_locks(void)
{
	List	   *locks = NIL;
	ListCell   *lc;

	for (int i = 0; i < NUM_LOCK_PARTITIONS; i++)
	{
		if (my_locks_empty(i))
			continue;
		LWLockAcquire(LockHashPartitionLockByIndex(i), LW_SHARED);
		for (PROCLOCK *held = my_locks_first(i); held != NULL; held = my_locks_next(i, held))
			locks = add_modes(locks, held);
		LWLockRelease(LockHashPartitionLockByIndex(i));
	}
	foreach(lc, locks)
	{
		AdvisoryLock *lock = lfirst(lc);

		lock->count = hold_and_count(lock);
	}
	return locks;
}

static int64
count_before(List *locks, const AdvisoryLock *now)
{
	ListCell   *lc;

	foreach(lc, locks)
	{
		AdvisoryLock *lock = lfirst(lc);

		if (lock->mode == now->mode && memcmp(&lock->tag, &now->tag, sizeof(LOCKTAG)) == 0)
			return lock->count;
	}
	return 0;
}

static void
release_each(List *locks)
{
	ListCell   *lc;

	foreach(lc, locks)
	{
		AdvisoryLock *lock = lfirst(lc);

		LockRelease(&lock->tag, lock->mode, false);
	}
}

/*
 * Restores the session's counts.  The transaction's hold keeps other sessions
 * out meanwhile.
 */
static void
restore_advisory_locks(List *before)
{
	List	   *now = hold_advisory_locks();
	ListCell   *lc;

	foreach(lc, now)
	{
		AdvisoryLock *lock = lfirst(lc);
		int64		wanted = count_before(before, lock);

		for (; lock->count > wanted; lock->count--)
			LockRelease(&lock->tag, lock->mode, true);
		for (; lock->count < wanted; lock->count++)
			(void) LockAcquire(&lock->tag, lock->mode, true, true);
	}
	release_each(now);
	release_each(before);
}

/* ---------- temporary objects ---------- */

/*
 * Adds the objects of this session's temporary schema to `found`, but for
 * those of `known`.
 */
static void
find_temporary(ObjectAddresses *found, const ObjectAddresses *known)
{
	ScanKeyData keys[2];
	Oid			namespace;
	Oid			toast;
	Relation	depend;
	SysScanDesc scan;
	HeapTuple	tuple;

	GetTempNamespaceState(&namespace, &toast);
	if (!OidIsValid(namespace))
		return;
	ScanKeyInit(&keys[0], Anum_pg_depend_refclassid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(NamespaceRelationId));
	ScanKeyInit(&keys[1], Anum_pg_depend_refobjid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(namespace));
	depend = table_open(DependRelationId, AccessShareLock);
	scan = systable_beginscan(depend, DependReferenceIndexId, true, NULL, 2, keys);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_depend row = (Form_pg_depend) GETSTRUCT(tuple);
		ObjectAddress object;

		ObjectAddressSubSet(object, row->classid, row->objid, row->objsubid);
		if (known == NULL || !object_address_present(&object, known))
			add_exact_object_address(&object, found);
	}
	systable_endscan(scan);
	table_close(depend, AccessShareLock);
}

static void
drop_temporary(const ObjectAddresses *known)
{
	ObjectAddresses *objects = new_object_addresses();

	CommandCounterIncrement();
	find_temporary(objects, known);
	performMultipleDeletions(objects, DROP_CASCADE,
							 PERFORM_DELETION_INTERNAL | PERFORM_DELETION_QUIETLY | PERFORM_DELETION_SKIP_EXTENSIONS);
	free_object_addresses(objects);
	CommandCounterIncrement();
}

/* ---------- cursors ---------- */

/*
 * Lists the cursors of the session: only the server's own function can, called
 * as a role that may call it.
 */
static List *
cursor_names(MemoryContext context)
{
	List	   *names = NIL;
	Oid			user;
	int			sec_context;

	GetUserIdAndSecContext(&user, &sec_context);
	SetUserIdAndSecContext(BOOTSTRAP_SUPERUSERID, sec_context | SECURITY_LOCAL_USERID_CHANGE);
	SPI_connect();
	if (SPI_execute("SELECT name FROM pg_catalog.pg_cursor()", true, 0) != SPI_OK_SELECT)
		elog(ERROR, "jobq: could not list cursors");
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		MemoryContext old = MemoryContextSwitchTo(context);

		names = lappend(names, SPI_getvalue(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1));
		MemoryContextSwitchTo(old);
	}
	SPI_finish();
	SetUserIdAndSecContext(user, sec_context);
	return names;
}

static void
drop_cursors(InlineSession *session)
{
	ListCell   *lc;

	foreach(lc, cursor_names(session->context))
	{
		Portal		portal = GetPortalByName(lfirst(lc));

		if (PortalIsValid(portal) && portal->createSubid > session->subid && portal->status != PORTAL_ACTIVE)
			PortalDrop(portal, false);
	}
}

/* ---------- prepared statements ---------- */

static bool
is_prepared_here(InlineSession *session, const char *name)
{
	ListCell   *lc;

	foreach(lc, session->prepared)
	{
		if (strcmp(lfirst(lc), name) == 0)
			return true;
	}
	return false;
}

static void
drop_prepared(InlineSession *session)
{
	ListCell   *lc;

	foreach(lc, session->prepared)
		DropPreparedStatement(lfirst(lc), false);
	session->prepared = NIL;
}

/* ---------- statements ---------- */

static void
refuse(Node *stmt)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("%s is not supported in a handler that jobq.run_inline runs", CreateCommandName(stmt)),
			 errdetail("It would act on the session of the caller.")));
}

/*
 * Executes DEALLOCATE ALL for the handler's own; a name that is not the
 * handler's is unknown, as in a worker.
 */
static bool
deallocate(InlineSession *session, const char *name)
{
	if (name == NULL)
		drop_prepared(session);
	else if (!is_prepared_here(session, name))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_PSTATEMENT),
				 errmsg("prepared statement \"%s\" does not exist", name),
				 errdetail("A handler that jobq.run_inline runs has only its own.")));
	return name == NULL;
}

bool
inline_session_executes(InlineSession *session, Node *stmt)
{
	switch (nodeTag(stmt))
	{
		case T_ListenStmt:
		case T_UnlistenStmt:
		case T_DiscardStmt:
			refuse(stmt);
			return false;
		case T_DeallocateStmt:
			return deallocate(session, ((DeallocateStmt *) stmt)->name);
		default:
			return false;
	}
}

void
inline_session_note(InlineSession *session, Node *stmt)
{
	MemoryContext old = MemoryContextSwitchTo(session->context);

	if (IsA(stmt, PrepareStmt))
		session->prepared = lappend(session->prepared, pstrdup(((PrepareStmt *) stmt)->name));
	else if (IsA(stmt, ConstraintsSetStmt))
		session->constraints_set = true;
	MemoryContextSwitchTo(old);
}

/* ---------- search_path ---------- */

/*
 * Returns the value that ALTER ROLE or ALTER DATABASE has stored for this
 * pair; NULL: none.
 */
static char *
stored_path(Relation settings, Oid database, Oid role)
{
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;
	Datum		config = (Datum) 0;
	bool		isnull = true;
	char	   *path = NULL;

	ScanKeyInit(&keys[0], Anum_pg_db_role_setting_setdatabase, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(database));
	ScanKeyInit(&keys[1], Anum_pg_db_role_setting_setrole, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(role));
	scan = systable_beginscan(settings, DbRoleSettingDatidRolidIndexId, true, NULL, 2, keys);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		config = heap_getattr(tuple, Anum_pg_db_role_setting_setconfig, RelationGetDescr(settings), &isnull);
	if (!isnull)
	{
		Datum	   *items;
		int			n;

		deconstruct_array(DatumGetArrayTypeP(config), TEXTOID, -1, false, TYPALIGN_INT, &items, NULL, &n);
		for (int i = 0; i < n && path == NULL; i++)
		{
			char	   *item = TextDatumGetCString(items[i]);

			if (strncmp(item, "search_path=", 12) == 0)
				path = item + 12;
		}
	}
	systable_endscan(scan);
	return path;
}

/*
 * Returns the server's own value, not the one this session started from by its
 * role or its client.
 */
static const char *
server_path(void)
{
	if (find_setting("search_path")->reset_source < PGC_S_GLOBAL)
		return GetConfigOptionResetString("search_path");
	return "\"$user\", public";
}

static const char *
path_of_role(Oid role)
{
	Relation	settings = table_open(DbRoleSettingRelationId, AccessShareLock);
	const char *path = stored_path(settings, MyDatabaseId, role);

	if (path == NULL)
		path = stored_path(settings, InvalidOid, role);
	if (path == NULL)
		path = stored_path(settings, MyDatabaseId, InvalidOid);
	if (path == NULL)
		path = stored_path(settings, InvalidOid, InvalidOid);
	if (path == NULL)
		path = server_path();
	table_close(settings, AccessShareLock);
	return path;
}

static bool
names_pg_temp(const char *path)
{
	List	   *names;
	ListCell   *lc;

	if (!SplitIdentifierString(pstrdup(path), ',', &names))
		return false;
	foreach(lc, names)
	{
		if (strcmp(lfirst(lc), "pg_temp") == 0)
			return true;
	}
	return false;
}

/*
 * Puts pg_temp last where the path does not name it: a temporary table of the
 * caller hides none of the role's.
 */
void
inline_session_set_path(Oid role)
{
	const char *path = path_of_role(role);

	if (path[0] == '\0')
		path = "pg_temp";
	else if (!names_pg_temp(path))
		path = psprintf("%s, pg_temp", path);
	(void) set_config_option("search_path", path, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
}

/* ---------- begin and end ---------- */

InlineSession *
inline_session_begin(void)
{
	InlineSession *session = palloc0(sizeof(InlineSession));

	session->context = CurrentMemoryContext;
	session->subid = GetCurrentSubTransactionId();
	session->temporary = new_object_addresses();
	find_temporary(session->temporary, NULL);
	session->locks = hold_advisory_locks();
	return session;
}

/* Fires deferred triggers, which may defer further ones. */
void
inline_session_fire(InlineSession *session)
{
	do
	{
		session->constraints_set = false;
		inline_triggers_fire();
	} while (session->constraints_set);
}

void
inline_session_drop(InlineSession *session)
{
	drop_cursors(session);
	drop_temporary(session->temporary);
	inline_triggers_restore();
}

void
inline_session_end(InlineSession *session)
{
	drop_prepared(session);
	restore_advisory_locks(session->locks);
	free_object_addresses(session->temporary);
}
