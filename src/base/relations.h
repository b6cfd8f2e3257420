/*
 * relations.h
 *	  The oids of the extension's tables and indexes, and their owner.
 */
#ifndef JOBQ_RELATIONS_H
#define JOBQ_RELATIONS_H

/*
 * Returns the oid of jobq.<name>, cached per backend; InvalidOid: the
 * extension is not installed.
 */
extern Oid	jobq_relid(const char *name);

/*
 * Returns a number, never 0, that rises when one of the relations or any
 * schema has changed.
 */
extern uint64 relations_generation(void);

/*
 * Returns the owner of the extension's tables: the role that jobq's own SQL
 * runs as.
 */
extern Oid	jobq_owner(void);

/*
 * Returns the oid of the schema of internal functions, jobq_internal, cached
 * per backend.
 */
extern Oid	jobq_internal_schema(void);

#endif
