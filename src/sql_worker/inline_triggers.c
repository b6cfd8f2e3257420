/*
 * inline_triggers.c
 *	  Deferred triggers around a handler that jobq.run_inline runs.
 *
 * The caller's deferred triggers fire before the handler, or they would fire
 * as its role.  The handler's fire at its end.  AfterTriggerFireDeferred() is
 * for the end of a transaction: inside of a query it fails an assertion, and
 * inside of a subtransaction it frees events that a rollback brings back.  SET
 * CONSTRAINTS ... IMMEDIATE fires them anywhere, but its mode stays.
 *
 * The handler's mode is undone by AfterTriggerEndSubXact(), called once more
 * than its subtransaction does. The caller's mode is not to be read.  It is
 * known while the transaction has executed no SET CONSTRAINTS: each constraint
 * is as it was created; and after SET CONSTRAINTS ALL that has not been rolled
 * back.
 */
#include "jobq.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_trigger.h"
#include "commands/trigger.h"
#include "nodes/makefuncs.h"
#include "storage/proc.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "sql_worker/inline_triggers.h"

typedef enum Modes
{
	MODES_INITIAL,
	MODES_DEFERRED,
	MODES_IMMEDIATE,
	MODES_UNKNOWN
} Modes;

static Modes modes = MODES_INITIAL;
static LocalTransactionId modes_in = InvalidLocalTransactionId;
static SubTransactionId modes_sub = InvalidSubTransactionId;

/*
 * The subtransactions that began later than one that is open now are inside of
 * it.
 */
static void
forget_rolled_back(SubXactEvent event, SubTransactionId subid, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB && modes_sub >= subid)
		modes = MODES_UNKNOWN;
}

void
inline_triggers_begin(void)
{
	RegisterSubXactCallback(forget_rolled_back, NULL);
	if (MyProc == NULL)
		return;					/* in the postmaster */
	modes = MODES_UNKNOWN;
	modes_in = my_lxid();
}

void
inline_triggers_note(const ConstraintsSetStmt *stmt)
{
	if (stmt->constraints != NIL)
		modes = MODES_UNKNOWN;
	else
		modes = stmt->deferred ? MODES_DEFERRED : MODES_IMMEDIATE;
	modes_in = my_lxid();
	modes_sub = GetCurrentSubTransactionId();
}

/* Executes SET CONSTRAINTS; `constraints` NIL: ALL. */
static void
set_constraints(List *constraints, bool deferred)
{
	ConstraintsSetStmt *stmt = makeNode(ConstraintsSetStmt);

	stmt->constraints = constraints;
	stmt->deferred = deferred;
	AfterTriggerSetState(stmt);
}

/* ---------- constraints with a trigger that waits ---------- */

static RangeVar *
name_of_constraint(Oid constraint)
{
	HeapTuple	tuple = SearchSysCache1(CONSTROID, ObjectIdGetDatum(constraint));
	Form_pg_constraint row;
	RangeVar   *name;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for constraint %u", constraint);
	row = (Form_pg_constraint) GETSTRUCT(tuple);
	name = makeRangeVar(get_namespace_name(row->connamespace), pstrdup(NameStr(row->conname)), -1);
	ReleaseSysCache(tuple);
	return name;
}

/*
 * Collects constraints whose triggers may be deferred and wait now; those
 * created INITIALLY IMMEDIATE only if asked.
 */
static List *
waiting_constraints(bool with_immediate)
{
	List	   *found = NIL;
	Relation	triggers = table_open(TriggerRelationId, AccessShareLock);
	SysScanDesc scan = systable_beginscan(triggers, InvalidOid, false, NULL, 0, NULL);
	HeapTuple	tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_trigger row = (Form_pg_trigger) GETSTRUCT(tuple);

		if (row->tgdeferrable && (row->tginitdeferred || with_immediate) && AfterTriggerPendingOnRel(row->tgrelid))
			found = list_append_unique_oid(found, row->tgconstraint);
	}
	systable_endscan(scan);
	table_close(triggers, AccessShareLock);
	return found;
}

static void
refuse(const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("jobq.run_inline cannot fire the deferred triggers of its caller"),
			 errdetail_internal("%s", detail),
			 errhint("Execute SET CONSTRAINTS ALL IMMEDIATE first.")));
}

/* SET CONSTRAINTS takes all constraints of that name and schema. */
static void
refuse_namesake(Relation constraints, const RangeVar *name)
{
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&keys[0], Anum_pg_constraint_conname, BTEqualStrategyNumber, F_NAMEEQ,
				CStringGetDatum(name->relname));
	ScanKeyInit(&keys[1], Anum_pg_constraint_connamespace, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(get_namespace_oid(name->schemaname, false)));
	scan = systable_beginscan(constraints, ConstraintNameNspIndexId, true, NULL, 2, keys);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_constraint row = (Form_pg_constraint) GETSTRUCT(tuple);

		if (!row->condeferred)
			refuse(psprintf("Constraint \"%s\" is INITIALLY DEFERRED in one table, but not in another.", name->relname));
	}
	systable_endscan(scan);
}

static List *
names_of_constraints(List *oids)
{
	Relation	constraints = table_open(ConstraintRelationId, AccessShareLock);
	List	   *names = NIL;
	ListCell   *lc;

	foreach(lc, oids)
	{
		names = lappend(names, name_of_constraint(lfirst_oid(lc)));
		refuse_namesake(constraints, llast(names));
	}
	table_close(constraints, AccessShareLock);
	return names;
}

/* ---------- the caller's ---------- */

/*
 * Fires the triggers of constraints that are as they were created, and those
 * that these defer in turn.
 */
static void
fire_initially_deferred(void)
{
	List	   *fired = NIL;
	List	   *more;

	while ((more = list_difference_oid(waiting_constraints(false), fired)) != NIL)
	{
		set_constraints(names_of_constraints(more), false);
		fired = list_concat(fired, more);
	}
	if (fired != NIL)
		set_constraints(names_of_constraints(fired), true);
}

void
inline_triggers_fire_callers(void)
{
	switch (modes_in == my_lxid() ? modes : MODES_INITIAL)
	{
		case MODES_INITIAL:
			fire_initially_deferred();
			break;
		case MODES_DEFERRED:
			set_constraints(NIL, false);
			set_constraints(NIL, true);
			break;
		case MODES_IMMEDIATE:
			break;
		case MODES_UNKNOWN:
			if (waiting_constraints(true) != NIL)
				refuse("SET CONSTRAINTS has named some or was rolled back: which to defer again is not known.");
			break;
	}
}

/* ---------- the handler's ---------- */

void
inline_triggers_fire(void)
{
	set_constraints(NIL, false);
}

void
inline_triggers_restore(void)
{
	AfterTriggerEndSubXact(false);
}
