/*
 * table_shape.c
 *	  Checks jobq's tables against their shapes: see table_shape.h.
 *
 * The answer is kept per process and relation until a relcache invalidation of
 * the relation.  A relation that is open and locked does not change, so a check
 * at its opening holds for all its rows.
 *
 * tables_trouble checks all tables and partitions again after a change of one.
 * A table that is locked now is checked in the next turn; until then the last
 * answer holds: a table that an open transaction changes is locked against
 * every reader.
 */
#include "jobq.h"

#include "access/table.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/partition.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_inherits.h"
#include "storage/lmgr.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "base/relations.h"
#include "lifecycle/release.h"
#include "tables/table_shape.h"

PG_FUNCTION_INFO_V1(jobq_update_check);

typedef struct Checked
{
	Oid			relid;			/* hash key */
	char		trouble[256];	/* '': the relation has its shape */
} Checked;

static const Shape *const *shapes = NULL;
static int	nshapes = 0;

static HTAB *checked = NULL;
static uint64 all_fit_at = 0;	/* relations_generation() at which all had their shapes; 0: check again */

void
shapes_set(const Shape *const *all, int n)
{
	shapes = all;
	nshapes = n;
}

/* ---------- the cache ---------- */

static void
relation_changed(Datum arg, Oid relid)
{
	HASH_SEQ_STATUS seq;
	Checked    *entry;

	if (relid != InvalidOid)
	{
		if (hash_search(checked, &relid, HASH_REMOVE, NULL) != NULL)
			all_fit_at = 0;
		return;
	}
	all_fit_at = 0;
	hash_seq_init(&seq, checked);
	while ((entry = hash_seq_search(&seq)) != NULL)
		hash_search(checked, &entry->relid, HASH_REMOVE, NULL);
}

static Checked *
find_checked(Oid relid)
{
	HASHCTL		ctl;

	if (checked == NULL)
	{
		ctl.keysize = sizeof(Oid);
		ctl.entrysize = sizeof(Checked);
		checked = hash_create("jobq table shapes", 64, &ctl, HASH_ELEM | HASH_BLOBS);
		CacheRegisterRelcacheCallback(relation_changed, (Datum) 0);
	}
	return hash_search(checked, &relid, HASH_FIND, NULL);
}

/* ---------- one relation ---------- */

/* Returns the shape of a table of jobq's; a partition has that of its root. */
static const Shape *
shape_of(Relation rel)
{
	Oid			relid = RelationGetRelid(rel);

	if (rel->rd_rel->relispartition)
		relid = llast_oid(get_partition_ancestors(relid));
	for (int i = 0; i < nshapes; i++)
	{
		if (jobq_relid(shapes[i]->table) == relid)
			return shapes[i];
	}
	return NULL;
}

static bool
type_fits(Form_pg_attribute att, Oid type)
{
	if (type == JOB_STATUS_TYPE)
		return att->atttypid == GetSysCacheOid2(TYPENAMENSP, Anum_pg_type_oid, CStringGetDatum("job_status"),
												ObjectIdGetDatum(get_namespace_oid("jobq", true)));
	return (att->atttypid == type || getBaseType(att->atttypid) == type) &&
		att->atttypmod == -1 && att->attcollation == get_typcollation(type);
}

/* Writes a message about column i of the shape; leaves it empty if the column is there. */
static void
check_column(Relation rel, const ShapeColumn *column, int i, const char *table, StringInfo trouble)
{
	TupleDesc	desc = RelationGetDescr(rel);
	Form_pg_attribute att = i < desc->natts ? TupleDescAttr(desc, i) : NULL;

	if (att == NULL)
		appendStringInfo(trouble, "column \"%s\" of %s is missing", column->name, table);
	else if (att->attisdropped)
		appendStringInfo(trouble, "a dropped column of %s is in the place of \"%s\"", table, column->name);
	else if (strcmp(NameStr(att->attname), column->name) != 0)
		appendStringInfo(trouble, "column \"%s\" of %s is in the place of \"%s\"", NameStr(att->attname), table,
						 column->name);
	else if (!type_fits(att, column->type))
		appendStringInfo(trouble, "column \"%s\" of %s has another type", column->name, table);
	else if (column->filled && !column_has_no_nulls(desc, i))
		appendStringInfo(trouble, "column \"%s\" of %s is not NOT NULL", column->name, table);
}

/* Returns a message about the first column that differs, or "". */
static const char *
difference(Relation rel, const Shape *shape)
{
	TupleDesc	desc = RelationGetDescr(rel);
	const char *table = psprintf("%s.%s", get_namespace_name(RelationGetNamespace(rel)), RelationGetRelationName(rel));
	StringInfoData trouble;

	initStringInfo(&trouble);
	for (int i = 0; i < shape->ncolumns && trouble.len == 0; i++)
		check_column(rel, &shape->columns[i], i, table, &trouble);
	if (trouble.len == 0 && desc->natts > shape->ncolumns)
	{
		Form_pg_attribute more = TupleDescAttr(desc, shape->ncolumns);

		if (more->attisdropped)
			appendStringInfo(&trouble, "a column of %s was added and dropped", table);
		else
			appendStringInfo(&trouble, "column \"%s\" of %s is not jobq's", NameStr(more->attname), table);
	}
	return trouble.data;
}

const char *
shape_trouble(Relation rel)
{
	Oid			relid = RelationGetRelid(rel);
	Checked    *entry = find_checked(relid);
	const Shape *shape;
	const char *trouble;

	if (entry != NULL)
		return entry->trouble;
	shape = shape_of(rel);
	trouble = shape ? difference(rel, shape) : psprintf("\"%s\" is no table of jobq", RelationGetRelationName(rel));
	entry = hash_search(checked, &relid, HASH_ENTER, NULL);
	strlcpy(entry->trouble, trouble, sizeof(entry->trouble));
	return entry->trouble;
}

static void
raise_trouble(const char *trouble)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("jobq cannot work with its tables: %s", trouble),
			 errhint("Undo the change of the table.")));
}

void
shape_require(Relation rel)
{
	const char *trouble;

	release_require();
	trouble = shape_trouble(rel);
	if (trouble[0] != '\0')
		raise_trouble(trouble);
}

Relation
shape_open(const char *name, LOCKMODE lock)
{
	Relation	rel = table_open(jobq_relid(name), lock);

	shape_require(rel);
	return rel;
}

/* ---------- all of them ---------- */

/* Checks a relation; false: it is locked. */
static bool
look_at(Oid relid, const char **trouble)
{
	Checked    *entry = find_checked(relid);
	Relation	rel;

	if (entry == NULL)
	{
		if (!ConditionalLockRelationOid(relid, AccessShareLock))
			return false;
		rel = try_table_open(relid, NoLock);
		if (rel == NULL)
		{
			UnlockRelationOid(relid, AccessShareLock);
			return false;
		}
		*trouble = pstrdup(shape_trouble(rel));
		table_close(rel, AccessShareLock);
		return true;
	}
	*trouble = pstrdup(entry->trouble);
	return true;
}

/* Checks a table and its partitions; false: one of them is locked. */
static bool
look_at_table(const char *name, const char **trouble)
{
	Oid			relid = jobq_relid(name);
	bool		complete = true;
	List	   *relids;
	ListCell   *lc;

	if (!OidIsValid(relid))
	{
		*trouble = psprintf("table jobq.%s is missing", name);
		return true;
	}
	relids = get_rel_relkind(relid) == RELKIND_PARTITIONED_TABLE ? find_all_inheritors(relid, NoLock, NULL) :
		list_make1_oid(relid);
	foreach(lc, relids)
	{
		complete &= look_at(lfirst_oid(lc), trouble);
		if ((*trouble)[0] != '\0')
			break;
	}
	return complete;
}

/* Checks the release; false: pg_extension is locked. */
static bool
look_at_release(const char **trouble)
{
	static uint64 ours_at = 0;	/* relations_generation() */
	const char *found;

	if (ours_at == relations_generation())
		return true;
	if (!ConditionalLockRelationOid(ExtensionRelationId, AccessShareLock) ||
		!ConditionalLockRelationOid(ExtensionNameIndexId, AccessShareLock))
		return false;
	found = release_trouble();
	if (found == NULL)
		ours_at = relations_generation();
	else
		*trouble = found;
	return true;
}

/* Checks all; false: a relation is locked. */
static bool
look_at_all(const char **trouble)
{
	bool		complete = true;

	if (!look_at_release(trouble))
		return false;
	if ((*trouble)[0] != '\0' || all_fit_at == relations_generation())
		return true;
	for (int i = 0; i < nshapes && (*trouble)[0] == '\0'; i++)
		complete &= look_at_table(shapes[i]->table, trouble);
	if (complete && (*trouble)[0] == '\0')
		all_fit_at = relations_generation();
	return complete;
}

const char *
tables_trouble(void)
{
	static char last[512] = "";
	const char *trouble = "";

	if (look_at_all(&trouble) || trouble[0] != '\0')
		strlcpy(last, trouble, sizeof(last));
	return last;
}

/*
 * The last step of an update (src/sql/upgrade/99_foot.sql): an error, if a table
 * has not the shape of this release.
 */
Datum
jobq_update_check(PG_FUNCTION_ARGS)
{
	const char *trouble = "";

	(void) look_at_all(&trouble);
	if (trouble[0] != '\0')
		raise_trouble(trouble);
	PG_RETURN_VOID();
}
