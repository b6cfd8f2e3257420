/*
 * row_map.c
 *	  Checks jobq's tables against their shapes, and reads rows by them: see
 *	  row_map.h.
 *
 * A map is made once per process and relation, and again after a relcache
 * invalidation.  Partitions have maps of their own: one that was made after a
 * column was dropped from its parent numbers the later columns differently.
 */
#include "jobq.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/partition.h"
#include "commands/extension.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "base/relations.h"
#include "lifecycle/release.h"
#include "tables/row_map.h"

#define MANY_MAPS	512			/* those of partitions that were dropped go when there are so many */

static const Shape *const *shapes = NULL;
static int	nshapes = 0;

static HTAB *maps = NULL;
static bool looked = false;		/* at all tables, since the last change of one */

void
row_map_set_shapes(const Shape *const *all, int n)
{
	shapes = all;
	nshapes = n;
}

/* ---------- the cache ---------- */

static void
relation_changed(Datum arg, Oid relid)
{
	HASH_SEQ_STATUS seq;
	RowMap	   *map;

	looked = false;
	if (relid != InvalidOid)
	{
		map = hash_search(maps, &relid, HASH_FIND, NULL);
		if (map != NULL)
			map->generation = 0;
		return;
	}
	hash_seq_init(&seq, maps);
	while ((map = hash_seq_search(&seq)) != NULL)
		map->generation = 0;
}

/* Drops maps of relations that are gone. */
static void
drop_unused(void)
{
	HASH_SEQ_STATUS seq;
	RowMap	   *map;

	hash_seq_init(&seq, maps);
	while ((map = hash_seq_search(&seq)) != NULL)
	{
		if (map->generation == 0 && !SearchSysCacheExists1(RELOID, ObjectIdGetDatum(map->relid)))
			hash_search(maps, &map->relid, HASH_REMOVE, NULL);
	}
}

static RowMap *
cached_map(Oid relid)
{
	RowMap	   *map;
	bool		found;

	if (maps == NULL)
	{
		HASHCTL		ctl;

		ctl.keysize = sizeof(Oid);
		ctl.entrysize = sizeof(RowMap);
		maps = hash_create("jobq row maps", 32, &ctl, HASH_ELEM | HASH_BLOBS);
		CacheRegisterRelcacheCallback(relation_changed, (Datum) 0);
	}
	map = hash_search(maps, &relid, HASH_FIND, NULL);
	if (map != NULL)
		return map;
	if (hash_get_num_entries(maps) >= MANY_MAPS)
		drop_unused();
	map = hash_search(maps, &relid, HASH_ENTER, &found);
	map->generation = 0;
	map->trouble[0] = '\0';
	return map;
}

/* ---------- making a map ---------- */

/* Returns the shape of a table of jobq's; a partition has that of its root. */
static const Shape *
shape_of(Relation rel)
{
	Oid			relid = RelationGetRelid(rel);
	char	   *name;

	if (RelationGetNamespace(rel) != get_namespace_oid("jobq", true))
		return NULL;
	if (rel->rd_rel->relispartition)
		relid = llast_oid(get_partition_ancestors(relid));
	name = get_rel_name(relid);
	for (int i = 0; name != NULL && i < nshapes; i++)
	{
		if (strcmp(shapes[i]->table, name) == 0)
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

/* Returns the number of a column; 0: there is no live column of that name. */
static AttrNumber
find_column(TupleDesc desc, const char *name)
{
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (!att->attisdropped && strcmp(NameStr(att->attname), name) == 0)
			return att->attnum;
	}
	return 0;
}

/*
 * Returns the place of column i of the shape; writes a mismatch into the map.
 */
static AttrNumber
place_column(RowMap *map, TupleDesc desc, int i)
{
	const ShapeColumn *column = &map->shape->columns[i];
	const char *table = map->shape->table;
	AttrNumber	attnum = find_column(desc, column->name);
	Form_pg_attribute att;

	if (attnum == 0)
	{
		if (i < map->shape->nfirst || !creating_extension)
			snprintf(map->trouble, sizeof(map->trouble), "column \"%s\" of jobq.%s is missing", column->name, table);
		return 0;
	}
	att = TupleDescAttr(desc, attnum - 1);
	if (i < map->shape->nfirst && attnum != i + 1)
		snprintf(map->trouble, sizeof(map->trouble), "column \"%s\" of jobq.%s is not in its place", column->name, table);
	else if (!type_fits(att, column->type))
		snprintf(map->trouble, sizeof(map->trouble), "column \"%s\" of jobq.%s has another type", column->name, table);
	else if (column->filled && !att->attnotnull)
		snprintf(map->trouble, sizeof(map->trouble), "column \"%s\" of jobq.%s is not NOT NULL any more",
				 column->name, table);
	return attnum;
}

static void
make_map(RowMap *map, Relation rel)
{
	TupleDesc	desc = RelationGetDescr(rel);
	int			n = map->shape->ncolumns;

	map->trouble[0] = '\0';
	map->natts = desc->natts;
	map->same = desc->natts == n;
	for (int i = 0; i < n && map->trouble[0] == '\0'; i++)
	{
		map->atts[i] = place_column(map, desc, i);
		map->same &= map->atts[i] == i + 1;
	}
}

const RowMap *
row_map_look(Relation rel)
{
	RowMap	   *map = cached_map(RelationGetRelid(rel));
	uint64		generation = relations_generation();

	if (map->generation == generation && generation != 0)
		return map;
	map->shape = shape_of(rel);
	if (map->shape == NULL)
		snprintf(map->trouble, sizeof(map->trouble), "\"%s\" is no table of jobq", RelationGetRelationName(rel));
	else
		make_map(map, rel);
	map->generation = generation;
	return map;
}

const RowMap *
row_map(Relation rel)
{
	const RowMap *map = row_map_look(rel);

	release_require();
	if (map->trouble[0] != '\0')
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("jobq cannot work with its tables: %s", map->trouble),
				 errhint("Undo the change of the table.  Columns may be added; those of jobq must stay as they are.")));
	return map;
}

/* ---------- rows ---------- */

static void
deform_other(const RowMap *map, HeapTuple tuple, TupleDesc desc, Datum *values, bool *nulls)
{
	Datum	   *all = palloc(sizeof(Datum) * desc->natts);
	bool	   *allnull = palloc(sizeof(bool) * desc->natts);

	heap_deform_tuple(tuple, desc, all, allnull);
	for (int i = 0; i < map->shape->ncolumns; i++)
	{
		AttrNumber	att = map->atts[i];

		nulls[i] = att == 0 || allnull[att - 1];
		values[i] = nulls[i] ? (Datum) 0 : all[att - 1];
	}
	pfree(all);
	pfree(allnull);
}

/*
 * Returns a message about a NULL where none may be: a constraint that is not
 * valid lets older ones in.
 */
static const char *
trouble_of_row(const RowMap *map, const bool *nulls)
{
	for (int i = 0; i < map->shape->ncolumns; i++)
	{
		if (nulls[i] && map->shape->columns[i].filled && map->atts[i] != 0)
			return psprintf("column \"%s\" of jobq.%s is NULL in a row", map->shape->columns[i].name,
							map->shape->table);
	}
	return NULL;
}

static const char *
deform(const RowMap *map, Relation rel, HeapTuple tuple, Datum *values, bool *nulls)
{
	if (map->natts != RelationGetDescr(rel)->natts)
		elog(ERROR, "\"%s\" has changed under its lock", RelationGetRelationName(rel));
	if (map->same)
		heap_deform_tuple(tuple, RelationGetDescr(rel), values, nulls);
	else
		deform_other(map, tuple, RelationGetDescr(rel), values, nulls);
	return trouble_of_row(map, nulls);
}

const char *
row_look(Relation rel, HeapTuple tuple, Datum *values, bool *nulls)
{
	return deform(row_map(rel), rel, tuple, values, nulls);
}

void
row_deform(Relation rel, HeapTuple tuple, Datum *values, bool *nulls)
{
	row_deform_by(row_map(rel), rel, tuple, values, nulls);
}

void
row_deform_by(const RowMap *map, Relation rel, HeapTuple tuple, Datum *values, bool *nulls)
{
	const char *trouble = deform(map, rel, tuple, values, nulls);

	if (trouble != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("%s", trouble)));
}

/* ---------- all of them ---------- */

/* Checks a table; false: it is locked. */
static bool
look_at(const Shape *shape, const char **trouble)
{
	Oid			relid = jobq_relid(shape->table);
	RowMap	   *map;
	Relation	rel;

	*trouble = "";
	if (!OidIsValid(relid) && shape->nfirst == 0 && creating_extension)
		return true;
	if (!OidIsValid(relid))
	{
		*trouble = psprintf("table jobq.%s is missing", shape->table);
		return true;
	}
	map = cached_map(relid);
	if (map->generation == 0 || map->generation != relations_generation())
	{
		if (!ConditionalLockRelationOid(relid, AccessShareLock))
			return false;
		rel = try_table_open(relid, NoLock);
		if (rel == NULL)
			return false;
		(void) row_map_look(rel);
		table_close(rel, AccessShareLock);
	}
	*trouble = map->trouble;
	return true;
}

const char *
tables_trouble(bool *complete)
{
	static uint64 looked_at = 0;	/* relations_generation() */
	const char *trouble;

	*complete = true;
	if (looked && looked_at == relations_generation())
		return "";
	for (int i = 0; i < nshapes; i++)
	{
		if (!look_at(shapes[i], &trouble))
			*complete = false;
		else if (trouble[0] != '\0')
			return trouble;
	}
	looked = *complete;
	looked_at = relations_generation();
	return "";
}
