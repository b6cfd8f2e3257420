/*
 * key_hash.c
 *	  What the dispatcher knows a concurrency key by: a hash of key and tenant.
 *
 * Stored with the row whoever writes it (store.c, the trigger in triggers.c), so that one narrow index finds the jobs of a
 * key.  Two keys with one hash would wait for each other: no job runs that should not, and it takes some 2^32 live keys
 * for such a pair to be likely.
 */
#include "jobq.h"

#include "common/hashfn.h"

#include "key_hash.h"

static uint64
hash_text(const text *t, uint64 seed)
{
	return hash_bytes_extended((const unsigned char *) VARDATA_ANY(t), VARSIZE_ANY_EXHDR(t), seed);
}

uint64
key_hash(const text *tenant, const text *key)
{
	if (key == NULL)
		return 0;
	return Max(hash_text(key, tenant == NULL ? 0 : hash_text(tenant, 1)), 1);
}
