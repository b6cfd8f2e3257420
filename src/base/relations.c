/*
 * relations.c
 *	  The oids of the extension's tables and indexes, their owner, and the
 *	  schema of internal functions.
 *
 * They are dropped when one of them is invalidated or any schema changes, so
 * that DROP EXTENSION and CREATE EXTENSION in one backend find the new tables.
 * That there is none is never remembered.
 */
#include "jobq.h"

#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "base/relations.h"

typedef struct NamedRelation
{
	char		name[NAMEDATALEN];	/* hash key */
	Oid			relid;
} NamedRelation;

static HTAB *relations = NULL;
static Oid	owner = InvalidOid;
static Oid	internal = InvalidOid;	/* the schema of internal functions */
static uint64 generation = 1;	/* rises when they are dropped */

static void
forget_relations(void)
{
	HASH_SEQ_STATUS seq;
	NamedRelation *entry;

	generation++;
	owner = InvalidOid;
	internal = InvalidOid;
	hash_seq_init(&seq, relations);
	while ((entry = hash_seq_search(&seq)) != NULL)
		entry->relid = InvalidOid;
}

static bool
knows_relation(Oid relid)
{
	HASH_SEQ_STATUS seq;
	NamedRelation *entry;

	hash_seq_init(&seq, relations);
	while ((entry = hash_seq_search(&seq)) != NULL)
		if (entry->relid == relid)
		{
			hash_seq_term(&seq);
			return true;
		}
	return false;
}

static void
relation_changed(Datum arg, Oid relid)
{
	if (relid == InvalidOid || knows_relation(relid))
		forget_relations();
}

static void
schema_changed(Datum arg, int cacheid, uint32 hashvalue)
{
	forget_relations();
}

/* Once per backend. */
static void
relations_init(void)
{
	HASHCTL		ctl;

	if (relations != NULL)
		return;
	ctl.keysize = NAMEDATALEN;
	ctl.entrysize = sizeof(NamedRelation);
	relations = hash_create("jobq relations", 32, &ctl, HASH_ELEM | HASH_STRINGS);
	CacheRegisterRelcacheCallback(relation_changed, (Datum) 0);
	CacheRegisterSyscacheCallback(NAMESPACEOID, schema_changed, (Datum) 0);
}

Oid
jobq_relid(const char *name)
{
	NamedRelation *entry;
	uint64		found_at;
	Oid			schema;
	Oid			relid;

	relations_init();
	entry = hash_search(relations, name, HASH_FIND, NULL);
	if (entry != NULL && OidIsValid(entry->relid))
		return entry->relid;

	found_at = generation;
	schema = get_namespace_oid("jobq", true);
	relid = OidIsValid(schema) ? get_relname_relid(name, schema) : InvalidOid;
	if (OidIsValid(relid) && found_at == generation)
	{
		entry = hash_search(relations, name, HASH_ENTER, NULL);
		entry->relid = relid;
	}
	return relid;
}

uint64
relations_generation(void)
{
	return generation;
}

Oid
jobq_owner(void)
{
	uint64		found_at;
	HeapTuple	tuple;
	Oid			role;

	relations_init();
	if (OidIsValid(owner))
		return owner;
	found_at = generation;
	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(jobq_relid("queue")));
	if (!HeapTupleIsValid(tuple))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("extension \"jobq\" is not installed in this database")));
	role = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);
	if (found_at == generation)
		owner = role;
	return role;
}

Oid
jobq_internal_schema(void)
{
	uint64		found_at;
	Oid			schema;

	relations_init();
	if (OidIsValid(internal))
		return internal;
	found_at = generation;
	schema = get_namespace_oid("jobq_internal", true);
	if (!OidIsValid(schema))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("schema \"jobq_internal\" of extension \"jobq\" is missing"),
				 errhint("A schema that was renamed gets its name back by ALTER SCHEMA ... RENAME TO jobq_internal.")));
	if (found_at == generation)
		internal = schema;
	return schema;
}
