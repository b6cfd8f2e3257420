/*
 * other_columns.c
 *	  Columns of jobq's tables that jobq does not know: see other_columns.h.
 *
 * Defaults run as the owner of the table, as restricted as the expressions of
 * an index in VACUUM: the exec worker that writes a row is a superuser's
 * process.
 */
#include "jobq.h"

#include "catalog/pg_attribute.h"
#include "executor/nodeModifyTable.h"

#include "miscadmin.h"
#include "optimizer/optimizer.h"
#include "rewrite/rewriteHandler.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "tables/other_columns.h"
#include "tables/row_map.h"

/* ---------- defaults ---------- */

static void
prepare_defaults(Table *t)
{
	TupleDesc	desc = RelationGetDescr(t->rel);
	MemoryContext old = MemoryContextSwitchTo(t->estate->es_query_cxt);

	t->defaults = palloc0(sizeof(ExprState *) * desc->natts);
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		Expr	   *expr;

		if (att->attisdropped || att->attgenerated)
			continue;
		expr = (Expr *) build_column_default(t->rel, i + 1);
		if (expr != NULL)
			t->defaults[i] = ExecPrepareExpr(expr, t->estate);
	}
	MemoryContextSwitchTo(old);
}

static void
evaluate_defaults(Table *t, const bool *known)
{
	ExprContext *context = GetPerTupleExprContext(t->estate);
	TupleTableSlot *slot = t->slot;

	if (t->defaults == NULL)
		prepare_defaults(t);
	for (int i = 0; i < slot->tts_tupleDescriptor->natts; i++)
	{
		if (!known[i] && t->defaults[i] != NULL)
			slot->tts_values[i] = ExecEvalExprSwitchContext(t->defaults[i], context, &slot->tts_isnull[i]);
	}
}

/* ---------- the row that is replaced ---------- */

static void
copy_old(Table *t, const bool *known, ItemPointer old)
{
	TupleTableSlot *slot = t->slot;

	if (t->old == NULL)
		t->old = table_slot_create(t->rel, NULL);
	if (!table_tuple_fetch_row_version(t->rel, old, SnapshotAny, t->old))
		elog(ERROR, "could not fetch the row of \"%s\" that is to be replaced", RelationGetRelationName(t->rel));
	slot_getallattrs(t->old);
	for (int i = 0; i < slot->tts_tupleDescriptor->natts; i++)
	{
		if (known[i])
			continue;
		slot->tts_values[i] = t->old->tts_values[i];
		slot->tts_isnull[i] = t->old->tts_isnull[i];
	}
}

/* ---------- the whole row ---------- */

/* Computes generated columns, then checks NOT NULL and CHECK constraints. */
static void
finish_row(Table *t)
{
	TupleConstr *constr = RelationGetDescr(t->rel)->constr;

	t->slot->tts_tableOid = RelationGetRelid(t->rel);
	if (constr == NULL)
		return;
	if (constr->has_generated_stored)
		ExecComputeStoredGenerated(t->rri, t->estate, t->slot, CMD_INSERT);
	ExecConstraints(t->rri, t->slot, t->estate);
}

static void
as_owner(Table *t, const bool *known, ItemPointer old)
{
	int			nest = NewGUCNestLevel();
	Oid			user;
	int			context;

	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(t->rel->rd_rel->relowner,
						   context | SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION);
	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE,
							 true, 0, false);
	if (old == NULL)
		evaluate_defaults(t, known);
	ExecStoreVirtualTuple(t->slot);
	finish_row(t);
	AtEOXact_GUC(false, nest);
	SetUserIdAndSecContext(user, context);
}

void
other_columns_fill(Table *t, const Datum *values, const bool *nulls, ItemPointer old)
{
	TupleTableSlot *slot = t->slot;
	int			natts = slot->tts_tupleDescriptor->natts;
	bool	   *known = palloc0(sizeof(bool) * natts);

	memset(slot->tts_values, 0, sizeof(Datum) * natts);
	memset(slot->tts_isnull, true, sizeof(bool) * natts);
	for (int i = 0; i < t->map->shape->ncolumns; i++)
	{
		AttrNumber	att = t->map->atts[i];

		if (att == 0)
			continue;
		known[att - 1] = true;
		slot->tts_values[att - 1] = values[i];
		slot->tts_isnull[att - 1] = nulls[i];
	}
	if (old != NULL)
		copy_old(t, known, old);
	as_owner(t, known, old);
	pfree(known);
}
