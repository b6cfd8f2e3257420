/*
 * finished_keys.h
 *	  Unique keys of finished jobs whose unique_for is not over.
 */
#ifndef JOBQ_FINISHED_KEYS_H
#define JOBQ_FINISHED_KEYS_H

#include "tables/unique_key_lookup.h"

/* Returns true, and the newest one's id, if a finished job has the key still. */
extern bool finished_key_look(const UniqueKey *key, pg_uuid_t *id);

/*
 * Notes, in this transaction, that jobs of the type may have unique_for;
 * called before such a job is written.
 */
extern void finished_key_note_type(int32 type_id);

extern const struct Shape unique_for_types_shape;

#endif
